//! The answer to an operation.

use std::fmt;
use std::sync::{Arc, Weak};

use leasehold_core::{BootTime, GrantKind, HolderRef, Name, Operation, Outcome, Release};

use super::{Inner, refusal};
use crate::Result;

/// The answer to an operation. A fresh grant in a reply that is dropped without [`take`](Self::take) is released,
/// because the caller has gone away. A lease that was granted *again* is left to expire, because its owner may still be
/// working.
#[must_use = "a fresh grant that is not taken is released"]
pub struct Reply {
    /// Boxed, because it is large and often moved.
    content: Box<ReplyContent>,
}

struct ReplyContent {
    outcome: Outcome,
    confirmation: Option<Confirmation>,
    undo_on_drop: Option<UndoOnDrop>,
}

/// The store call that confirmed an outcome, and the deadline of a holder.
#[derive(Clone, Copy)]
pub(super) struct Confirmation {
    pub(super) call_times: CallTimes,
    pub(super) deadline: Option<BootTime>,
}

/// When a store call was sent and answered, by this machine's boot clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTimes {
    /// When the call was sent.
    pub sent: BootTime,
    /// When the answer arrived.
    pub received: BootTime,
}

impl Reply {
    /// Creates a reply without a confirmation and without undo.
    pub(super) fn plain(outcome: Outcome) -> Self {
        let content = ReplyContent {
            outcome,
            confirmation: None,
            undo_on_drop: None,
        };
        Self {
            content: content.into(),
        }
    }

    /// Creates a reply that performs `undo` unless it is taken.
    pub(super) fn new(
        outcome: Outcome,
        confirmation: Option<Confirmation>,
        undo: Option<Release>,
        name: &Name,
        inner: &Arc<Inner>,
    ) -> Self {
        let undo_on_drop = undo.map(|undo| UndoOnDrop {
            inner: Arc::downgrade(inner),
            name: name.clone(),
            undo: Some(undo),
        });
        let content = ReplyContent {
            outcome,
            confirmation,
            undo_on_drop,
        };
        Self {
            content: content.into(),
        }
    }

    /// Returns the outcome without taking it.
    pub fn outcome(&self) -> &Outcome {
        &self.content.outcome
    }

    /// Returns until when a holder may rely on the lease, by this machine's boot clock.
    pub fn deadline(&self) -> Option<BootTime> {
        self.content.confirmation?.deadline
    }

    /// Returns the times of the store call that wrote the outcome; `None` if no write was needed.
    pub fn call_times(&self) -> Option<CallTimes> {
        Some(self.content.confirmation?.call_times)
    }

    /// Updates a grant with its renewal.
    pub(super) fn apply_renewal(&mut self, renewal: Self) -> Result<()> {
        let confirmation = renewal.content.confirmation;
        let (outcome, _) = renewal.take();
        match (&mut self.content.outcome, outcome) {
            (Outcome::Granted(grant), Outcome::Renewed(renewal)) => {
                grant.expires_at = renewal.expires_at;
                self.content.confirmation = confirmation;
                Ok(())
            }
            (_, other) => Err(refusal(other)),
        }
    }

    /// Takes the outcome and the deadline. The caller has to release a grant from now on.
    pub fn take(mut self) -> (Outcome, Option<BootTime>) {
        self.disarm();
        let deadline = self.deadline();
        (self.content.outcome, deadline)
    }

    /// Returns the release of a fresh grant.
    pub(super) fn undo(&self) -> Option<&Release> {
        self.content.undo_on_drop.as_ref()?.undo.as_ref()
    }

    /// Cancels the undo on drop, and returns it.
    pub(super) fn disarm(&mut self) -> Option<Release> {
        self.content.undo_on_drop.as_mut()?.undo.take()
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("outcome", &self.content.outcome)
            .field("deadline", &self.deadline())
            .finish()
    }
}

/// Returns the release of a fresh grant, for a reply that is not taken.
pub(super) fn undo(operation: &Operation, outcome: &Outcome) -> Option<Release> {
    match (operation, outcome) {
        (Operation::Acquire(acquire), Outcome::Granted(grant))
            if grant.granted == GrantKind::Fresh =>
        {
            // By fence, so that it can never end another caller's lease.
            let principal = acquire.principal.clone();
            Some(Release {
                holder: HolderRef::Fence(grant.fence),
                principal,
            })
        }
        _ => None,
    }
}

struct UndoOnDrop {
    inner: Weak<Inner>,
    name: Name,
    undo: Option<Release>,
}

impl Drop for UndoOnDrop {
    fn drop(&mut self) {
        if let (Some(undo), Some(inner)) = (self.undo.take(), self.inner.upgrade()) {
            let mut table = inner.table();
            table.enqueue_internal(&self.name, Operation::Release(undo));
            inner.drive_from(table);
        }
    }
}
