//! An operation on its way to an answer.

use std::time::Duration;

use leasehold_core::{BootTime, Fence, Operation, Outcome, Reserve};
use tokio::sync::oneshot;

use super::Reply;
use crate::store::WriteId;
use crate::{Error, Result};

/// An operation that has not been answered yet. Large, and handed on often: so it stays on the heap.
pub(super) struct Pending {
    pub(super) id: u64,
    pub(super) operation: Operation,
    /// Waits in line until then.
    pub(super) wait_until: Option<BootTime>,
    /// Writes that carried it and were never answered.
    pub(super) tries: Vec<Try>,
    /// Set while it is first in line.
    pub(super) head: Option<Head>,
    /// `None`: the engine's own.
    pub(super) reply: Option<oneshot::Sender<Result<Reply>>>,
}

/// A write that was never answered.
pub(super) struct Try {
    pub(super) write: WriteId,
    pub(super) base: Option<WriteId>,
    pub(super) outcome: Outcome,
    pub(super) sent: BootTime,
    /// The record has moved on since, so that it can no longer be told whether this write landed.
    pub(super) untold: bool,
}

/// What the first in line remembers.
pub(super) struct Head {
    pub(super) since: BootTime,
    /// The highest fence when it got there: a higher one means that it was passed over.
    pub(super) fence: Fence,
    /// When to refresh its reservation.
    pub(super) refresh_at: Option<BootTime>,
}

impl Pending {
    pub(super) fn new(
        id: u64,
        operation: Operation,
        wait_until: Option<BootTime>,
        reply: Option<oneshot::Sender<Result<Reply>>>,
    ) -> Box<Self> {
        Box::new(Self {
            id,
            operation,
            wait_until,
            tries: Vec::new(),
            head: None,
            reply,
        })
    }

    /// Whether its caller has gone away.
    pub(super) fn is_gone(&self) -> bool {
        self.reply.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    pub(super) fn refuse(self, error: Error) {
        if let Some(reply) = self.reply {
            let _ = reply.send(Err(error));
        }
    }

    /// What withdraws the reservation that it made while first in line.
    pub(super) fn withdrawal(&self) -> Option<Operation> {
        self.head.as_ref()?.refresh_at?;
        match &self.operation {
            Operation::Acquire(acquire) => {
                let (nonce, mode) = (acquire.nonce, acquire.mode);
                Some(Operation::Reserve(Reserve {
                    nonce,
                    mode,
                    span: Duration::ZERO,
                }))
            }
            _ => None,
        }
    }

    /// What to tell a caller for whom a write was never answered, when running the operation again came to this.
    pub(super) fn honest(&self, outcome: Outcome) -> Result<Outcome, Error> {
        let refused = matches!(
            outcome,
            Outcome::Fenced | Outcome::Expired | Outcome::NotHeld | Outcome::Denied
        );
        if refused && !self.tries.is_empty() {
            return Err(Error::Indeterminate(
                "an answer of the store was lost, and the lease has changed since: look before you try again".into(),
            ));
        }
        Ok(outcome)
    }

    /// What to tell a caller whose operation failed. After an unanswered write, no failure says that nothing happened.
    pub(super) fn failed(&self, failure: Error) -> Error {
        match failure {
            failure @ Error::Indeterminate(_) => failure,
            failure if self.tries.is_empty() => failure,
            failure => Error::Indeterminate(format!(
                "{failure}; an answer of the store was lost before: look before you try again"
            )),
        }
    }

    /// Whether running it again is safe although an earlier run may have landed.
    pub(super) fn is_repeatable(&self) -> bool {
        match &self.operation {
            Operation::Put(put) => put.nonce.is_some(),
            Operation::Remove | Operation::Break(_) => false,
            _ => true,
        }
    }
}
