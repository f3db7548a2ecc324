//! Resolves writes that were sent and not answered. The version of the record shows whether a write landed; otherwise
//! the outcome is indeterminate.

use std::fmt::Display;

use leasehold_core::{BootTime, Name, Operation, Outcome, Record};

use super::pending::PendingOperation;
use super::plan::PlannedOperation;
use super::table::Table;
use crate::store::{Stored, WriteId};
use crate::{Error, Result};

/// An unanswered write of an operation.
pub(super) struct Attempt {
    write: WriteId,
    base: Option<WriteId>,
    pub(super) outcome: Outcome,
    pub(super) sent: BootTime,
    /// Whether the record has changed since, so that it no longer shows whether this write landed.
    unresolvable: bool,
}

impl PlannedOperation {
    /// Notes an unanswered write of this operation.
    pub(super) fn add_attempt(&mut self, write: WriteId, base: Option<WriteId>, sent: BootTime) {
        self.pending.attempts.push(Attempt {
            write,
            base,
            outcome: self.outcome.clone(),
            sent,
            unresolvable: false,
        });
    }
}

impl PendingOperation {
    /// Whether one of its writes is unanswered.
    pub(super) fn is_ambiguous(&self) -> bool {
        !self.attempts.is_empty()
    }

    /// Replaces a refusal or an error by [`Error::Indeterminate`] if an unanswered write of this operation may be the
    /// reason for it.
    pub(super) fn reclassify(&self, result: Result<Outcome>) -> Result<Outcome> {
        if !self.is_ambiguous() {
            return result;
        }
        match result {
            Ok(Outcome::Fenced | Outcome::Expired | Outcome::NotHeld | Outcome::Denied) => {
                Err(lost_answer())
            }
            // A claim does not recognise its own grant, so the obstacle may be that grant.
            Ok(Outcome::Held(_)) if self.is_claim() => Err(lost_answer()),
            Err(error @ Error::Indeterminate(_)) => Err(error),
            Err(error) => Err(indeterminate(error)),
            other => other,
        }
    }

    fn is_claim(&self) -> bool {
        matches!(&self.operation, Operation::Acquire(acquire) if acquire.in_state.is_some())
    }

    /// Whether it is safe to apply it again to this record although an earlier write may have landed, followed by
    /// others.
    fn is_repeatable(&self, record: Option<&Record>) -> bool {
        match &self.operation {
            // A record has the nonce of its last put only: another put may have followed this one.
            Operation::Put(put) => {
                put.nonce.is_some() && record.is_some_and(|record| record.put == put.nonce)
            }
            Operation::Remove | Operation::Break(_) => false,
            _ => true,
        }
    }

    /// Removes the attempt that created the current version. Other attempts on the same base have not landed.
    fn take_landed(&mut self, current: Option<WriteId>) -> Option<Attempt> {
        let index = self
            .attempts
            .iter()
            .position(|attempt| Some(attempt.write) == current)?;
        let landed = self.attempts.swap_remove(index);
        self.attempts.retain(|other| other.base != landed.base);
        Some(landed)
    }

    /// Whether the outcome of its writes can no longer be determined.
    fn is_unresolvable(&mut self, current: Option<&Stored>) -> bool {
        let write = current.map(|stored| stored.version.write);
        for attempt in &mut self.attempts {
            attempt.unresolvable |= attempt.base != write;
        }
        let record = current.map(|stored| &*stored.record);
        self.attempts.iter().any(|attempt| attempt.unresolvable) && !self.is_repeatable(record)
    }
}

impl Table {
    /// Removes the operations whose ambiguous writes are resolved by the cached record, which was just loaded. Returns
    /// each with the attempt that landed, or with `None` if that can no longer be determined.
    pub(super) fn resolve(&mut self, name: &Name) -> Vec<(Box<PendingOperation>, Option<Attempt>)> {
        let Some(entry) = self.entries.get_mut(name) else {
            return Vec::new();
        };
        let cached = entry.cached.as_ref();
        let current = cached.and_then(|cached| cached.stored.as_ref());
        let write = current.map(|stored| stored.version.write);
        let mut resolved = Vec::new();
        let operations = entry.queue.iter_mut().chain(entry.wait_queue.values_mut());
        for pending in operations.filter(|pending| pending.is_ambiguous()) {
            if let Some(landed) = pending.take_landed(write) {
                resolved.push((pending.id, Some(landed)));
            } else if pending.is_unresolvable(current) {
                resolved.push((pending.id, None));
            }
        }
        let removed = resolved
            .into_iter()
            .filter_map(|(id, landed)| Some((self.remove_operation(name, id)?, landed)));
        removed.collect()
    }
}

pub(super) fn lost_answer() -> Error {
    indeterminate("the answer of the store was lost")
}

pub(super) fn indeterminate(why: impl Display) -> Error {
    Error::Indeterminate(format!(
        "{why}; the operation may have happened: check the record before retrying"
    ))
}
