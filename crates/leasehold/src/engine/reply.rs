//! The answer to an operation.

use std::fmt;
use std::sync::{Arc, Weak};

use leasehold_core::{BootTime, GrantKind, HolderRef, Name, Operation, Outcome, Release};

use super::{Inner, refusal};
use crate::Result;

/// The answer to an operation. A fresh grant in a reply that is dropped without [`take`](Self::take) is released: its
/// caller has gone. (A lease that was granted *again* is left to expire, because its owner may still be working.)
#[must_use = "a fresh grant that is not taken is released"]
pub struct Reply {
    /// On the heap: it is large, and handed on often.
    told: Box<Told>,
}

struct Told {
    outcome: Outcome,
    basis: Option<Basis>,
    untaken: Option<Untaken>,
}

/// What a reply rests on.
#[derive(Clone, Copy)]
pub(super) struct Basis {
    pub(super) called: Called,
    pub(super) deadline: Option<BootTime>,
}

/// When the store was called and when it answered, by this machine's boot clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// When it was called.
    pub sent: BootTime,
    /// When it answered.
    pub received: BootTime,
}

impl Reply {
    /// Without anything to release.
    pub(super) fn plain(outcome: Outcome) -> Self {
        let told = Told {
            outcome,
            basis: None,
            untaken: None,
        };
        Self { told: told.into() }
    }

    /// With what it rests on, and with what undoes it unless it is taken.
    pub(super) fn new(
        outcome: Outcome,
        basis: Option<Basis>,
        undo: Option<Release>,
        name: &Name,
        inner: &Arc<Inner>,
    ) -> Self {
        let untaken = undo.map(|undo| Untaken {
            inner: Arc::downgrade(inner),
            name: name.clone(),
            undo: Some(undo),
        });
        let told = Told {
            outcome,
            basis,
            untaken,
        };
        Self { told: told.into() }
    }

    /// What came of the operation, before deciding to take it.
    pub fn outcome(&self) -> &Outcome {
        &self.told.outcome
    }

    /// Until when a holder may believe, by this machine's boot clock.
    pub fn deadline(&self) -> Option<BootTime> {
        self.told.basis?.deadline
    }

    /// The call of the store that wrote it; `None` if nothing had to be written for it.
    pub fn called(&self) -> Option<Called> {
        Some(self.told.basis?.called)
    }

    /// Takes in a renewal of what was granted.
    pub(super) fn extend(&mut self, renewal: Self) -> Result<()> {
        let basis = renewal.told.basis;
        let (outcome, _) = renewal.take();
        match (&mut self.told.outcome, outcome) {
            (Outcome::Granted(grant), Outcome::Renewed(renewal)) => {
                grant.expires_at = renewal.expires_at;
                self.told.basis = basis;
                Ok(())
            }
            (_, other) => Err(refusal(other)),
        }
    }

    /// Takes the outcome: a grant is now the caller's to release.
    pub fn take(mut self) -> (Outcome, Option<BootTime>) {
        self.keep();
        let deadline = self.deadline();
        (self.told.outcome, deadline)
    }

    /// What undoes the grant in it, unless it was granted again.
    pub(super) fn undo(&self) -> Option<&Release> {
        self.told.untaken.as_ref()?.undo.as_ref()
    }

    /// Leaves the outcome as it is, and gives what would have undone it.
    pub(super) fn keep(&mut self) -> Option<Release> {
        self.told.untaken.as_mut()?.undo.take()
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("outcome", &self.told.outcome)
            .field("deadline", &self.deadline())
            .finish()
    }
}

/// What undoes a fresh grant that nobody took.
pub(super) fn undo(operation: &Operation, outcome: &Outcome) -> Option<Release> {
    match (operation, outcome) {
        (Operation::Acquire(acquire), Outcome::Granted(grant))
            if grant.granted == GrantKind::Fresh =>
        {
            // By its fence, so that it can never end anybody else's lease.
            let principal = acquire.principal.clone();
            Some(Release {
                holder: HolderRef::Fence(grant.fence),
                principal,
            })
        }
        _ => None,
    }
}

struct Untaken {
    inner: Weak<Inner>,
    name: Name,
    undo: Option<Release>,
}

impl Drop for Untaken {
    fn drop(&mut self) {
        if let (Some(undo), Some(inner)) = (self.undo.take(), self.inner.upgrade()) {
            let mut table = inner.table();
            table.enqueue_own(&self.name, Operation::Release(undo));
            inner.drive_from(table);
        }
    }
}
