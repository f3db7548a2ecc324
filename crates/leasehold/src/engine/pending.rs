//! An operation on its way to an answer.

use std::time::Duration;

use leasehold_core::{BootTime, Fence, Operation, Reserve};
use tokio::sync::oneshot;

use super::Reply;
use super::ambiguous::Try;
use crate::Result;

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

    /// Its caller will not have the answer: from now on it counts as gone. Gives what reaches the caller.
    pub(super) fn abandon(&mut self) -> Option<oneshot::Sender<Result<Reply>>> {
        let (gone, _) = oneshot::channel();
        Some(std::mem::replace(self.reply.as_mut()?, gone))
    }

    /// Whether its caller has gone away.
    pub(super) fn is_gone(&self) -> bool {
        self.reply.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// Whether it still waits in line.
    pub(super) fn waits(&self, boot: BootTime) -> bool {
        self.wait_until.is_some_and(|until| boot < until)
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
}
