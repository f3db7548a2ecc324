//! Completes operations after a store call was answered or failed.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    BootTime, ClockChange, Fence, Name, Operation, Outcome, Stamp, Text, deadline,
};

use super::ambiguous::lost_answer;
use super::call::{CallInfo, SentWrite};
use super::pending::PendingOperation;
use super::plan::PlannedOperation;
use super::reply::{CallTimes, Confirmation, Reply, undo};
use super::table::Table;
use super::watch::RecordSource;
use super::{Inner, jittered, store_thread};
use crate::host::Host;
use crate::store::{Answer, Stored, Swapped, Version, WriteId};
use crate::{Error, Result};

/// How long to back off after the first failure of the store.
const BACKOFF: Duration = Duration::from_millis(10);

impl Inner {
    /// Completes a load.
    pub(super) fn complete_load(
        self: &Arc<Self>,
        call: CallInfo,
        names: Vec<Name>,
        result: Result<Answer<Vec<Option<Stored>>>>,
    ) {
        let mut table = self.table();
        table.loading -= 1;
        let failure = match result {
            Ok(Answer { value, stamp }) => {
                table.note_answer(call, stamp);
                for (name, stored) in names.iter().zip(value) {
                    self.complete_read(&mut table, name, stored, call, stamp);
                }
                return self.after_call(&mut table, names.iter());
            }
            Err(failure) => failure,
        };
        table.note_failure(&failure, call.received);
        let is_single = names.len() == 1;
        for name in &names {
            let Some(entry) = table.entries.get_mut(name) else {
                continue;
            };
            entry.busy = false;
            if is_transient(&failure) {
                table.back_off(name, &*self.host);
            } else if is_single {
                let waiters = std::mem::take(&mut entry.wait_queue).into_values();
                let operations: Vec<_> = entry.queue.drain(..).chain(waiters).collect();
                table.recount();
                for pending in operations {
                    self.deliver(&mut table, name, pending, Err(failure.clone()), None);
                }
            } else {
                // One bad record must not fail the others: load each of them separately.
                entry.load_alone = true;
                table.make_ready(name, true);
            }
        }
        self.after_call(&mut table, [].iter());
    }

    /// Completes a batch of writes.
    pub(super) fn complete_swap(
        self: &Arc<Self>,
        call: CallInfo,
        sent_writes: Vec<SentWrite>,
        result: Result<Answer<Vec<Swapped>>>,
    ) {
        let mut table = self.table();
        table.swapping -= 1;
        match result {
            Ok(Answer { value, stamp }) => {
                let change = table.note_answer(call, stamp);
                for (write, swapped) in sent_writes.into_iter().zip(value) {
                    let name = write.name.clone();
                    match swapped {
                        Swapped::Written { tag } => {
                            self.complete_write(&mut table, write, tag, call, stamp, change)
                        }
                        // The write was delivered twice, and conflicts with its own first copy.
                        Swapped::Conflict(Some(current)) if write.has_created(&current.version) => {
                            let tag = current.version.tag;
                            self.complete_write(&mut table, write, tag, call, stamp, change);
                        }
                        Swapped::Conflict(current) => {
                            table.counts.conflicts += 1;
                            table.requeue(&write.name, write.planned, call.received);
                            self.complete_read(&mut table, &write.name, current, call, stamp);
                        }
                        Swapped::Failed(failure) => {
                            self.fail_write(&mut table, write, call, failure)
                        }
                    }
                    table.after_call(&name);
                }
            }
            Err(failure) => {
                for write in sent_writes {
                    let name = write.name.clone();
                    self.fail_write(&mut table, write, call, failure.clone());
                    table.after_call(&name);
                }
            }
        }
        self.after_call(&mut table, [].iter());
    }

    /// Completes the operations of a durable write.
    fn complete_write(
        self: &Arc<Self>,
        table: &mut Table,
        write: SentWrite,
        tag: Option<Text>,
        call: CallInfo,
        stamp: Stamp,
        change: ClockChange,
    ) {
        let SentWrite {
            name,
            put,
            planned,
            base,
        } = write;
        table.counts.writes += 1;
        if base.is_none() {
            table.note_guess(false);
        }
        let stored = put.map(|(write, record)| Stored {
            version: Version { write, tag },
            record,
        });
        // Only a hint for waiting claims. The core decides whether the item can be claimed.
        let is_free_item = stored.as_ref().is_some_and(|stored| {
            stored.record.state.is_some() && stored.record.holders.is_empty()
        });
        if is_free_item {
            self.item_freed.notify_waiters();
        }
        let CallInfo {
            number, received, ..
        } = call;
        table.cache_record(&name, stored, number, received, RecordSource::Written);
        // A first fence is derived from the clock. If the clock was wrong, a purged record may have had a higher one.
        let too_low = (base.is_none() && change == ClockChange::Stepped)
            .then(|| Fence::starting_at(table.clock.interval(call.received).latest));
        let mut repeated = Vec::new();
        for mut planned in planned {
            if let (Some(floor), Operation::Acquire(acquire), Outcome::Granted(_)) =
                (too_low, &mut planned.pending.operation, &planned.outcome)
            {
                acquire.floor = floor;
                repeated.push(PlannedOperation {
                    was_waiting: false,
                    ..planned
                });
                continue;
            }
            let confirmation = self.confirmation(&planned.outcome, call.sent, received, stamp);
            let outcome = Ok(planned.outcome);
            self.deliver(table, &name, planned.pending, outcome, Some(confirmation));
        }
        table.requeue(&name, repeated, call.received);
    }

    /// Retries the operations of a write that failed or was not answered. If a retry cannot help, returns the error to
    /// their callers.
    fn fail_write(
        self: &Arc<Self>,
        table: &mut Table,
        write: SentWrite,
        call: CallInfo,
        failure: Error,
    ) {
        let SentWrite {
            name,
            base,
            put,
            mut planned,
        } = write;
        table.note_failure(&failure, call.received);
        if !is_transient(&failure) {
            for planned in planned {
                self.deliver(table, &name, planned.pending, Err(failure.clone()), None);
            }
            return;
        }
        if let Error::Indeterminate(_) = failure {
            let write = put.map_or(WriteId(0), |(write, _)| write);
            for planned in &mut planned {
                planned.add_attempt(write, base, call.sent);
            }
            if let Some(entry) = table.entries.get_mut(&name) {
                entry.load_first = true;
            }
        }
        table.requeue(&name, planned, call.received);
        table.back_off(&name, &*self.host);
    }

    /// Caches the current record, and completes the operations whose ambiguous writes it resolves.
    fn complete_read(
        self: &Arc<Self>,
        table: &mut Table,
        name: &Name,
        stored: Option<Stored>,
        call: CallInfo,
        stamp: Stamp,
    ) {
        let exists = stored.is_some();
        let CallInfo {
            number, received, ..
        } = call;
        if table.cache_record(name, stored, number, received, RecordSource::Read) {
            table.note_guess(exists);
        }
        for (pending, landed) in table.resolve(name) {
            let (result, confirmation) = match landed {
                Some(landed) => {
                    let confirmation =
                        self.confirmation(&landed.outcome, landed.sent, received, stamp);
                    (Ok(landed.outcome), Some(confirmation))
                }
                None => (Err(lost_answer()), None),
            };
            self.deliver(table, name, pending, result, confirmation);
        }
    }

    /// Returns the store call that confirmed an outcome, and the deadline of a holder.
    fn confirmation(
        &self,
        outcome: &Outcome,
        sent: BootTime,
        received: BootTime,
        stamp: Stamp,
    ) -> Confirmation {
        let until = |ttl, expires_at| deadline(sent, ttl, expires_at, stamp, self.facts.margin);
        Confirmation {
            call_times: CallTimes { sent, received },
            deadline: match outcome {
                Outcome::Granted(grant) => Some(until(grant.ttl, grant.expires_at)),
                Outcome::Renewed(renewal) => Some(until(renewal.ttl, renewal.expires_at)),
                _ => None,
            },
        }
    }

    /// Delivers the result to the caller. A grant is undone if the caller has gone away.
    pub(super) fn deliver(
        self: &Arc<Self>,
        table: &mut Table,
        name: &Name,
        pending: Box<PendingOperation>,
        result: Result<Outcome>,
        confirmation: Option<Confirmation>,
    ) {
        table.counts.operations += 1;
        let result = pending.reclassify(result);
        let Some(sender) = pending.reply else { return };
        let undo = result
            .as_ref()
            .ok()
            .and_then(|outcome| undo(&pending.operation, outcome));
        let reply = result.map(|outcome| Reply::new(outcome, confirmation, undo, name, self));
        if let Err(Ok(mut reply)) = store_thread::deliver(sender, reply) {
            // Undone here, because dropping the reply would lock the table, which is locked.
            if let Some(undo) = reply.disarm() {
                table.enqueue_internal(name, Operation::Release(undo));
            }
        }
    }

    fn after_call<'n>(&self, table: &mut Table, names: impl Iterator<Item = &'n Name>) {
        for name in names {
            table.after_call(name);
        }
        table.evict(&self.config);
        self.notify_if_idle(table);
    }

    /// Notifies [`Engine::close`](super::Engine::close) once nothing is queued or in flight.
    pub(super) fn notify_if_idle(&self, table: &Table) {
        if table.is_closed() && table.is_idle() {
            self.idle.notify_waiters();
        }
    }
}

/// Whether the same call may succeed later.
fn is_transient(failure: &Error) -> bool {
    matches!(failure, Error::Unavailable(_) | Error::Indeterminate(_))
}

impl Table {
    /// Notes an answer of the store, and updates the clock.
    fn note_answer(&mut self, call: CallInfo, stamp: Stamp) -> ClockChange {
        (self.failures, self.last_failure) = (0, None);
        self.observe_time(call.sent, call.received, stamp)
    }

    fn note_failure(&mut self, failure: &Error, received: BootTime) {
        self.metrics.count_failure(failure, received);
        self.failures = self.failures.saturating_add(1);
        self.last_failure = Some(failure.to_string());
    }

    /// Delays the next call for this name: exponentially with each failure, and with jitter.
    fn back_off(&mut self, name: &Name, host: &dyn Host) {
        let at = jittered(host, BACKOFF * (1 << self.failures.min(6)));
        if let Some(entry) = self.entries.get_mut(name) {
            entry.backing_off = true;
            self.set_timer(name, Some(at));
        }
    }

    /// Makes a name ready again after a call for it.
    fn after_call(&mut self, name: &Name) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        entry.busy = false;
        // A newer load was requested after this call was sent.
        entry.load_first |= entry.publish_after.is_some();
        if entry.load_first || !(entry.queue.is_empty() && entry.wait_queue.is_empty()) {
            entry.make_ready(name, true, &mut self.ready, &mut self.to_load);
        } else if let Some(since) = entry.free_since() {
            self.note_free(name, since);
        }
    }

    /// Recomputes the counts after all operations of an entry were removed.
    fn recount(&mut self) {
        self.counts.queued = self
            .entries
            .values()
            .map(|entry| entry.queue.len() as u64)
            .sum();
        self.counts.waiters = self
            .entries
            .values()
            .map(|entry| entry.wait_queue.len() as u64)
            .sum();
    }
}
