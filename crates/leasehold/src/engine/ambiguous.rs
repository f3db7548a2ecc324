//! Writes that were sent and never answered. The version of the record shows whether one landed; where it cannot, the
//! outcome is indeterminate.

use std::fmt::Display;

use leasehold_core::{BootTime, Name, Operation, Outcome, Record};

use super::pending::Pending;
use super::plan::Planned;
use super::table::Table;
use crate::store::{Stored, WriteId};
use crate::{Error, Result};

/// A write that carried an operation and was never answered.
pub(super) struct Try {
    write: WriteId,
    base: Option<WriteId>,
    pub(super) outcome: Outcome,
    pub(super) sent: BootTime,
    /// The record has changed since, so that it no longer shows whether this write landed.
    unknowable: bool,
}

impl Planned {
    /// A write that carried it was not answered.
    pub(super) fn add_try(&mut self, write: WriteId, base: Option<WriteId>, sent: BootTime) {
        self.pending.tries.push(Try {
            write,
            base,
            outcome: self.outcome.clone(),
            sent,
            unknowable: false,
        });
    }
}

impl Pending {
    /// Whether it may have happened without an answer.
    pub(super) fn is_ambiguous(&self) -> bool {
        !self.tries.is_empty()
    }

    /// Makes an outcome as uncertain as it is: after a lost answer, a refusal or an error may come of its own first run.
    pub(super) fn honest(&self, told: Result<Outcome>) -> Result<Outcome> {
        if !self.is_ambiguous() {
            return told;
        }
        match told {
            Ok(Outcome::Fenced | Outcome::Expired | Outcome::NotHeld | Outcome::Denied) => {
                Err(lost_answer())
            }
            // A claim does not recognise its own grant, so that grant may be what is in its way.
            Ok(Outcome::Held(_)) if self.is_claim() => Err(lost_answer()),
            Err(error @ Error::Indeterminate(_)) => Err(error),
            Err(error) => Err(may_have_happened(error)),
            other => other,
        }
    }

    fn is_claim(&self) -> bool {
        matches!(&self.operation, Operation::Acquire(acquire) if acquire.in_state.is_some())
    }

    /// Whether running it again on this record is safe although an earlier run may have landed and other writes have
    /// followed.
    fn is_repeatable(&self, record: Option<&Record>) -> bool {
        match &self.operation {
            // A record knows the nonce of its last put only: another put may have followed ours.
            Operation::Put(put) => {
                put.nonce.is_some() && record.is_some_and(|record| record.put == put.nonce)
            }
            Operation::Remove | Operation::Break(_) => false,
            _ => true,
        }
    }

    /// The attempt that turns out to have landed. Others on the same base have not.
    fn take_landed(&mut self, current: Option<WriteId>) -> Option<Try> {
        let index = self
            .tries
            .iter()
            .position(|attempt| Some(attempt.write) == current)?;
        let landed = self.tries.swap_remove(index);
        self.tries.retain(|other| other.base != landed.base);
        Some(landed)
    }

    /// Whether the outcome of its writes can no longer be found out.
    fn is_lost(&mut self, current: Option<&Stored>) -> bool {
        let write = current.map(|stored| stored.version.write);
        for attempt in &mut self.tries {
            attempt.unknowable |= attempt.base != write;
        }
        let record = current.map(|stored| &*stored.record);
        self.tries.iter().any(|attempt| attempt.unknowable) && !self.is_repeatable(record)
    }
}

impl Table {
    /// Takes out the operations whose ambiguous write is resolved by the cached record, which the store has just shown:
    /// each with the attempt that landed, or with `None` if that can no longer be known.
    pub(super) fn resolve(&mut self, name: &Name) -> Vec<(Box<Pending>, Option<Try>)> {
        let Some(entry) = self.entries.get_mut(name) else {
            return Vec::new();
        };
        let cached = entry.cached.as_ref();
        let current = cached.and_then(|cached| cached.stored.as_ref());
        let write = current.map(|stored| stored.version.write);
        let mut resolved = Vec::new();
        let asked = entry.queue.iter_mut().chain(entry.line.values_mut());
        for pending in asked.filter(|pending| pending.is_ambiguous()) {
            if let Some(landed) = pending.take_landed(write) {
                resolved.push((pending.id, Some(landed)));
            } else if pending.is_lost(current) {
                resolved.push((pending.id, None));
            }
        }
        let taken = resolved
            .into_iter()
            .filter_map(|(id, landed)| Some((self.take_out(name, id)?, landed)));
        taken.collect()
    }
}

pub(super) fn lost_answer() -> Error {
    may_have_happened("an answer of the store was lost")
}

pub(super) fn may_have_happened(why: impl Display) -> Error {
    Error::Indeterminate(format!(
        "{why}; it may have happened: look before you try again"
    ))
}
