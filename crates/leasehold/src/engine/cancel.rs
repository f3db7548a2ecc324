//! Cancels operations before their answer: the caller times out or goes away, or the engine closes.

use std::time::Duration;

use leasehold_core::{BootTime, Held, Name, Operation};

use super::ambiguous::{indeterminate, lost_answer};
use super::closing_error;
use super::pending::PendingOperation;
use super::table::Table;
use crate::Error;

impl Table {
    /// Removes a waiter whose wait has ended from the queue.
    ///
    /// Returns the obstacle if the store has shown it after the request and not before `since`. Otherwise the store is
    /// asked once more and the result is `None`, as for a caller that is not in the wait queue.
    pub(super) fn end_wait(&mut self, name: &Name, id: u64, since: BootTime) -> Option<Held> {
        let entry = self.entries.get_mut(name)?;
        let cached = entry.cached.as_ref();
        let is_old = cached.is_some_and(|cached| cached.received < since);
        let confirmed = cached.is_some_and(|cached| cached.confirmed > id) && !is_old;
        let mut waiter = entry.wait_queue.remove(&id)?;
        self.counts.waiters -= 1;
        if let (true, Some(held)) = (confirmed, entry.held.clone()) {
            let withdrawal = waiter.withdrawal();
            self.after_waiter_left(name, withdrawal);
            return Some(held);
        }
        waiter.wait_until = None;
        entry.queue.push_front(waiter);
        entry.recheck = true;
        entry.load_first |= is_old;
        self.counts.queued += 1;
        self.make_ready(name, true);
        None
    }

    /// Cancels the operation of a caller that has gone away, except for writes that were sent.
    pub(super) fn cancel(&mut self, name: &Name, id: u64) {
        self.withdraw(name, id);
        self.remove_if_unused(name);
    }

    /// Cancels the operation of a caller that has timed out. The error says whether a write of it may have landed.
    pub(super) fn time_out(&mut self, name: &Name, id: u64, within: Duration) -> Error {
        let unsent = self.withdraw(name, id);
        self.remove_if_unused(name);
        let why = self
            .last_failure
            .clone()
            .unwrap_or_else(|| format!("the store did not answer within {within:?}"));
        match unsent {
            true => Error::Unavailable(why),
            false => indeterminate(why),
        }
    }

    /// Removes an operation. Returns whether none of its writes was sent.
    fn withdraw(&mut self, name: &Name, id: u64) -> bool {
        let Some(pending) = self.remove_operation(name, id) else {
            return false;
        };
        let unsent = !pending.is_ambiguous();
        if !unsent {
            self.look_up(name, pending);
        }
        unsent
    }

    /// Queues an operation of a caller that has gone away until the record shows whether its write landed. A grant is
    /// then undone. The operation is not performed again.
    fn look_up(&mut self, name: &Name, mut pending: Box<PendingOperation>) {
        pending.abandon();
        pending.wait_until = None;
        let entry = self.entries.entry(name.clone()).or_default();
        entry.queue.push_front(pending);
        self.counts.queued += 1;
        self.make_ready(name, false);
    }

    /// Removes an operation from the wait queue or the queue. Returns `None` if it is in neither because it is in
    /// flight.
    pub(super) fn remove_operation(
        &mut self,
        name: &Name,
        id: u64,
    ) -> Option<Box<PendingOperation>> {
        let entry = self.entries.get_mut(name)?;
        if let Some(waiter) = entry.wait_queue.remove(&id) {
            self.counts.waiters -= 1;
            self.after_waiter_left(name, waiter.withdrawal());
            return Some(waiter);
        }
        let index = entry.queue.iter().position(|pending| pending.id == id)?;
        self.counts.queued -= 1;
        entry.queue.remove(index)
    }

    /// Withdraws the reservation of a waiter that has left the queue. The next waiter may be granted now.
    fn after_waiter_left(&mut self, name: &Name, withdrawal: Option<Operation>) {
        match withdrawal {
            Some(withdrawal) => self.enqueue_internal(name, withdrawal),
            None => self.make_ready(name, false),
        }
    }

    /// Refuses all waiters, and rejects new operations.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.counts.waiters = 0;
        let mut waiting = Vec::new();
        for (name, entry) in &mut self.entries {
            let wait_queue = std::mem::take(&mut entry.wait_queue);
            waiting.extend(
                wait_queue
                    .into_values()
                    .map(|waiter| (name.clone(), waiter)),
            );
        }
        for (name, waiter) in waiting {
            self.refuse_waiter(&name, waiter);
        }
    }

    /// Refuses a waiter of a closing engine.
    pub(super) fn refuse_waiter(&mut self, name: &Name, mut waiter: Box<PendingOperation>) {
        let reply = waiter.abandon();
        if let Some(withdrawal) = waiter.withdrawal() {
            self.enqueue_internal(name, withdrawal);
        }
        let error = match waiter.is_ambiguous() {
            true => lost_answer(),
            false => closing_error(),
        };
        if waiter.is_ambiguous() {
            self.look_up(name, waiter);
        }
        if let Some(reply) = reply {
            let _ = reply.send(Err(error));
        }
    }

    /// Whether it rejects new operations.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether nothing is queued or in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.loading + self.swapping == 0
            && self.counts.queued == 0
            && self.ready.is_empty()
            && self.delayed_renewals.is_empty()
            && self.to_load.is_empty()
    }
}
