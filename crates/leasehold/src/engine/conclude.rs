//! What follows from an answer of the store, or from the lack of one.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    BootTime, ClockChange, Fence, Name, Operation, Outcome, Stamp, Text, deadline,
};

use super::ambiguous::lost_answer;
use super::call::{Times, Written};
use super::pending::Pending;
use super::plan::Planned;
use super::reply::{Basis, Called, Reply, undo};
use super::table::Table;
use super::watch::Learnt;
use super::{Inner, caller, jittered};
use crate::host::Host;
use crate::store::{Answer, Stored, Swapped, Version, WriteId};
use crate::{Error, Result};

/// How long to leave a store alone that failed, the first time.
const BACKOFF: Duration = Duration::from_millis(10);

impl Inner {
    pub(super) fn conclude_load(
        self: &Arc<Self>,
        times: Times,
        names: Vec<Name>,
        result: Result<Answer<Vec<Option<Stored>>>>,
    ) {
        let mut table = self.table();
        table.loading -= 1;
        let failure = match result {
            Ok(Answer { value, stamp }) => {
                table.heard(times, stamp);
                for (name, stored) in names.iter().zip(value) {
                    self.found(&mut table, name, stored, times, stamp);
                }
                return self.after_call(&mut table, names.iter());
            }
            Err(failure) => failure,
        };
        table.failed(&failure, times.received);
        let alone = names.len() == 1;
        for name in &names {
            let Some(entry) = table.entries.get_mut(name) else {
                continue;
            };
            entry.busy = false;
            if may_pass(&failure) {
                table.back_off(name, &*self.host);
            } else if alone {
                let waiting = std::mem::take(&mut entry.line).into_values();
                let asking: Vec<_> = entry.queue.drain(..).chain(waiting).collect();
                table.recount();
                for pending in asking {
                    self.deliver(&mut table, name, pending, Err(failure.clone()), None);
                }
            } else {
                // One bad record must not fail the others: each is loaded alone.
                entry.load_alone = true;
                table.make_ready(name, true);
            }
        }
        self.after_call(&mut table, [].iter());
    }

    pub(super) fn conclude_swap(
        self: &Arc<Self>,
        times: Times,
        carried: Vec<Written>,
        result: Result<Answer<Vec<Swapped>>>,
    ) {
        let mut table = self.table();
        table.swapping -= 1;
        match result {
            Ok(Answer { value, stamp }) => {
                let observed = table.heard(times, stamp);
                for (written, swapped) in carried.into_iter().zip(value) {
                    let name = written.name.clone();
                    match swapped {
                        Swapped::Written { tag } => {
                            self.landed(&mut table, written, tag, times, stamp, observed)
                        }
                        // Sent twice on the way, the write conflicts with its own first copy.
                        Swapped::Conflict(Some(current)) if written.made(&current.version) => {
                            let tag = current.version.tag;
                            self.landed(&mut table, written, tag, times, stamp, observed);
                        }
                        Swapped::Conflict(current) => {
                            table.counts.conflicts += 1;
                            table.put_back(&written.name, written.planned, times.received);
                            self.found(&mut table, &written.name, current, times, stamp);
                        }
                        Swapped::Failed(failure) => self.fell(&mut table, written, times, failure),
                    }
                    table.after_call(&name);
                }
            }
            Err(failure) => {
                for written in carried {
                    let name = written.name.clone();
                    self.fell(&mut table, written, times, failure.clone());
                    table.after_call(&name);
                }
            }
        }
        self.after_call(&mut table, [].iter());
    }

    /// A write is durable: what it carried has happened.
    fn landed(
        self: &Arc<Self>,
        table: &mut Table,
        written: Written,
        tag: Option<Text>,
        times: Times,
        stamp: Stamp,
        observed: ClockChange,
    ) {
        let Written {
            name,
            put,
            planned,
            base,
        } = written;
        table.counts.writes += 1;
        if base.is_none() {
            table.turned_out(false);
        }
        let stored = put.map(|(write, record)| Stored {
            version: Version { write, tag },
            record,
        });
        // Only a hint to those who wait for items: the core decides who gets it.
        let item = stored.as_ref().is_some_and(|stored| {
            stored.record.state.is_some() && stored.record.holders.is_empty()
        });
        if item {
            self.items.notify_waiters();
        }
        let Times {
            number, received, ..
        } = times;
        table.remember(&name, stored, number, received, Learnt::Written);
        // A first fence comes from the clock. If the clock was off, it may be lower than one of a purged record.
        let too_low = (base.is_none() && observed == ClockChange::Stepped)
            .then(|| Fence::starting_at(table.clock.interval(times.received).latest));
        let mut redone = Vec::new();
        for mut planned in planned {
            if let (Some(floor), Operation::Acquire(acquire), Outcome::Granted(_)) =
                (too_low, &mut planned.pending.operation, &planned.outcome)
            {
                acquire.floor = floor;
                redone.push(Planned {
                    from_line: false,
                    ..planned
                });
                continue;
            }
            let basis = self.basis(&planned.outcome, times.sent, received, stamp);
            let outcome = Ok(planned.outcome);
            self.deliver(table, &name, planned.pending, outcome, Some(basis));
        }
        table.put_back(&name, redone, times.received);
    }

    /// A write may not have landed: what it carried is tried again, or answered if that is no use.
    fn fell(self: &Arc<Self>, table: &mut Table, written: Written, times: Times, failure: Error) {
        let Written {
            name,
            base,
            put,
            mut planned,
        } = written;
        table.failed(&failure, times.received);
        if !may_pass(&failure) {
            for planned in planned {
                self.deliver(table, &name, planned.pending, Err(failure.clone()), None);
            }
            return;
        }
        if let Error::Indeterminate(_) = failure {
            let write = put.map_or(WriteId(0), |(write, _)| write);
            for planned in &mut planned {
                planned.add_try(write, base, times.sent);
            }
            if let Some(entry) = table.entries.get_mut(&name) {
                entry.load_first = true;
            }
        }
        table.put_back(&name, planned, times.received);
        table.back_off(&name, &*self.host);
    }

    /// The store has shown the current record.
    fn found(
        self: &Arc<Self>,
        table: &mut Table,
        name: &Name,
        stored: Option<Stored>,
        times: Times,
        stamp: Stamp,
    ) {
        let is_there = stored.is_some();
        let Times {
            number, received, ..
        } = times;
        if table.remember(name, stored, number, received, Learnt::Shown) {
            table.turned_out(is_there);
        }
        for (pending, landed) in table.resolve(name) {
            let (told, basis) = match landed {
                Some(landed) => {
                    let basis = self.basis(&landed.outcome, landed.sent, received, stamp);
                    (Ok(landed.outcome), Some(basis))
                }
                None => (Err(lost_answer()), None),
            };
            self.deliver(table, name, pending, told, basis);
        }
    }

    /// What an outcome rests on: its write, and until when a holder may believe.
    fn basis(&self, outcome: &Outcome, sent: BootTime, received: BootTime, stamp: Stamp) -> Basis {
        let until = |ttl, expires_at| deadline(sent, ttl, expires_at, stamp, self.facts.margin);
        Basis {
            called: Called { sent, received },
            deadline: match outcome {
                Outcome::Granted(grant) => Some(until(grant.ttl, grant.expires_at)),
                Outcome::Renewed(renewal) => Some(until(renewal.ttl, renewal.expires_at)),
                _ => None,
            },
        }
    }

    /// Completes a caller's operation. A grant that it does not take is undone.
    pub(super) fn deliver(
        self: &Arc<Self>,
        table: &mut Table,
        name: &Name,
        pending: Box<Pending>,
        told: Result<Outcome>,
        basis: Option<Basis>,
    ) {
        table.counts.operations += 1;
        let told = pending.honest(told);
        let Some(sender) = pending.reply else { return };
        let undo = told
            .as_ref()
            .ok()
            .and_then(|outcome| undo(&pending.operation, outcome));
        let reply = told.map(|outcome| Reply::new(outcome, basis, undo, name, self));
        if let Err(Ok(mut untaken)) = caller::tell(sender, reply) {
            // Undone here: dropping the reply would ask for the lock that is held.
            if let Some(undo) = untaken.keep() {
                table.enqueue_own(name, Operation::Release(undo));
            }
        }
    }

    fn after_call<'n>(&self, table: &mut Table, names: impl Iterator<Item = &'n Name>) {
        for name in names {
            table.after_call(name);
        }
        table.evict(&self.config);
        self.tell_idle(table);
    }

    /// Tells whoever closes the engine, once nothing is left to do.
    pub(super) fn tell_idle(&self, table: &Table) {
        if table.is_closed() && table.is_idle() {
            self.idle.notify_waiters();
        }
    }
}

/// Whether the same call may succeed later.
fn may_pass(failure: &Error) -> bool {
    matches!(failure, Error::Unavailable(_) | Error::Indeterminate(_))
}

impl Table {
    /// The store has answered.
    fn heard(&mut self, times: Times, stamp: Stamp) -> ClockChange {
        (self.failures, self.trouble) = (0, None);
        self.learn_time(times.sent, times.received, stamp)
    }

    fn failed(&mut self, failure: &Error, received: BootTime) {
        self.measures.failed(failure, received);
        self.failures = self.failures.saturating_add(1);
        self.trouble = Some(failure.to_string());
    }

    /// Leaves the store alone for a while: longer with every failure, and never all names for equally long.
    fn back_off(&mut self, name: &Name, host: &dyn Host) {
        let at = jittered(host, BACKOFF * (1 << self.failures.min(6)));
        if let Some(entry) = self.entries.get_mut(name) {
            entry.backing_off = true;
            self.set_timer(name, Some(at));
        }
    }

    /// A call for this name is over.
    fn after_call(&mut self, name: &Name) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        entry.busy = false;
        // Somebody was to look, and the call that is over was sent before.
        entry.load_first |= entry.look.is_some();
        if entry.load_first || !(entry.queue.is_empty() && entry.line.is_empty()) {
            entry.make_ready(name, true, &mut self.ready, &mut self.to_load);
        } else if let Some(since) = entry.free_since() {
            self.leave_alone(name, since);
        }
    }

    /// Counts again after a whole entry was emptied.
    fn recount(&mut self) {
        self.counts.queued = self
            .entries
            .values()
            .map(|entry| entry.queue.len() as u64)
            .sum();
        self.counts.waiters = self
            .entries
            .values()
            .map(|entry| entry.line.len() as u64)
            .sum();
    }
}
