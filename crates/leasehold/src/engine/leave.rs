//! Callers that leave before their answer: they time out, they go away, or the engine closes.

use std::time::Duration;

use leasehold_core::{BootTime, Held, Name, Operation};

use super::ambiguous::{lost_answer, may_have_happened};
use super::closing;
use super::pending::Pending;
use super::table::Table;
use crate::Error;

impl Table {
    /// Takes a caller whose wait is over out of the line. It is refused if the store has shown since it asked, and not
    /// before `since`, who is in its way. `None`: it is not in line, or the store is asked once more.
    pub(super) fn stop_waiting(&mut self, name: &Name, id: u64, since: BootTime) -> Option<Held> {
        let entry = self.entries.get_mut(name)?;
        let cached = entry.cached.as_ref();
        let is_old = cached.is_some_and(|cached| cached.received < since);
        let confirmed = cached.is_some_and(|cached| cached.confirmed > id) && !is_old;
        let mut waiter = entry.line.remove(&id)?;
        self.counts.waiters -= 1;
        if let (true, Some(held)) = (confirmed, entry.held.clone()) {
            let withdrawal = waiter.withdrawal();
            self.after_leaving(name, withdrawal);
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

    /// Removes a caller that has gone away. Only a write that is under way or unanswered stays.
    pub(super) fn leave(&mut self, name: &Name, id: u64) {
        self.withdraw(name, id);
        self.tidy(name);
    }

    /// Removes a caller that has timed out. The error says whether a write of its may have landed.
    pub(super) fn give_up(&mut self, name: &Name, id: u64, within: Duration) -> Error {
        let unsent = self.withdraw(name, id);
        self.tidy(name);
        let why = self
            .trouble
            .clone()
            .unwrap_or_else(|| format!("the store did not answer within {within:?}"));
        match unsent {
            true => Error::Unavailable(why),
            false => may_have_happened(why),
        }
    }

    /// Withdraws an operation; whether none of its writes was sent.
    fn withdraw(&mut self, name: &Name, id: u64) -> bool {
        let Some(pending) = self.take_out(name, id) else {
            return false;
        };
        let unsent = !pending.is_ambiguous();
        if !unsent {
            self.look_up(name, pending);
        }
        unsent
    }

    /// Queues an operation whose caller has gone until the record shows whether its write landed. A grant is then
    /// undone. The operation is not performed again.
    fn look_up(&mut self, name: &Name, mut pending: Box<Pending>) {
        pending.abandon();
        pending.wait_until = None;
        let entry = self.entries.entry(name.clone()).or_default();
        entry.queue.push_front(pending);
        self.counts.queued += 1;
        self.make_ready(name, false);
    }

    /// Removes an operation from the wait queue or the queue; `None` if it is in neither, because it is under way.
    pub(super) fn take_out(&mut self, name: &Name, id: u64) -> Option<Box<Pending>> {
        let entry = self.entries.get_mut(name)?;
        if let Some(waiter) = entry.line.remove(&id) {
            self.counts.waiters -= 1;
            self.after_leaving(name, waiter.withdrawal());
            return Some(waiter);
        }
        let index = entry.queue.iter().position(|pending| pending.id == id)?;
        self.counts.queued -= 1;
        entry.queue.remove(index)
    }

    /// A waiter has left the line: its reservation goes, and the next waiter may not have to wait.
    fn after_leaving(&mut self, name: &Name, withdrawal: Option<Operation>) {
        match withdrawal {
            Some(withdrawal) => self.enqueue_own(name, withdrawal),
            None => self.make_ready(name, false),
        }
    }

    /// Refuses all waiters, and admits no further operation.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.counts.waiters = 0;
        let mut waiting = Vec::new();
        for (name, entry) in &mut self.entries {
            let line = std::mem::take(&mut entry.line);
            waiting.extend(line.into_values().map(|waiter| (name.clone(), waiter)));
        }
        for (name, waiter) in waiting {
            self.turn_away(&name, waiter);
        }
    }

    /// Refuses a waiter of a closing engine.
    pub(super) fn turn_away(&mut self, name: &Name, mut waiter: Box<Pending>) {
        let reply = waiter.abandon();
        if let Some(withdrawal) = waiter.withdrawal() {
            self.enqueue_own(name, withdrawal);
        }
        let error = match waiter.is_ambiguous() {
            true => lost_answer(),
            false => closing(),
        };
        if waiter.is_ambiguous() {
            self.look_up(name, waiter);
        }
        if let Some(reply) = reply {
            let _ = reply.send(Err(error));
        }
    }

    /// Whether it admits no further operation.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether nothing is queued and nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.loading + self.swapping == 0
            && self.counts.queued == 0
            && self.ready.is_empty()
            && self.patient.is_empty()
            && self.to_load.is_empty()
    }
}
