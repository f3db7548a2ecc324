//! An operation that has not been answered.

use std::time::Duration;

use leasehold_core::{BootTime, Fence, Operation, Reserve};
use tokio::sync::oneshot;

use super::Reply;
use super::ambiguous::Attempt;
use crate::Result;

/// An operation that has not been answered. Boxed, because it is large and often moved.
pub(super) struct PendingOperation {
    pub(super) id: u64,
    pub(super) operation: Operation,
    /// When its time in the wait queue ends.
    pub(super) wait_until: Option<BootTime>,
    /// Its unanswered writes.
    pub(super) attempts: Vec<Attempt>,
    /// Set while it is the first waiter.
    pub(super) head: Option<QueueHead>,
    /// The channel to the caller; `None` for an internal operation.
    pub(super) reply: Option<oneshot::Sender<Result<Reply>>>,
}

/// The state of the first waiter in a queue.
pub(super) struct QueueHead {
    pub(super) since: BootTime,
    /// The record's fence when it became first. A higher one means that another caller was granted before it.
    pub(super) fence: Fence,
    /// When to refresh its reservation.
    pub(super) refresh_at: Option<BootTime>,
}

impl PendingOperation {
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
            attempts: Vec::new(),
            head: None,
            reply,
        })
    }

    /// Marks it as abandoned, so that a grant is undone. Returns the channel to the caller.
    pub(super) fn abandon(&mut self) -> Option<oneshot::Sender<Result<Reply>>> {
        let (closed, _) = oneshot::channel();
        Some(std::mem::replace(self.reply.as_mut()?, closed))
    }

    /// Whether its caller has gone away.
    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// Whether its time in the wait queue has not ended.
    pub(super) fn is_waiting(&self, boot: BootTime) -> bool {
        self.wait_until.is_some_and(|until| boot < until)
    }

    /// Returns the operation that withdraws the reservation it made as the first waiter.
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
