//! The state of one lease, shared by its guard and its keeper.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use leasehold_core::{BootTime, Fence, GrantKind, LastHolder, Name, Text, Time};
use tokio::sync::{Notify, watch};

use crate::{Error, Hold};

/// A lease is given up this long before its deadline. Timers may fire late, and `lost()` must complete by the deadline.
const LEAD: Duration = Duration::from_millis(5);

/// One lease as this process sees it.
pub(super) struct LeaseState {
    pub(super) name: Name,
    pub(super) fence: Fence,
    pub(super) ttl: Duration,
    pub(super) granted: GrantKind,
    pub(super) acquired_at: Time,
    pub(super) last: Option<LastHolder>,
    data: Mutex<LeaseData>,
    deadline: watch::Sender<BootTime>,
    end: OnceLock<End>,
    changed: Notify,
}

/// The parts of a lease that change while it is held.
#[derive(Clone)]
pub(super) struct LeaseData {
    pub(super) body: Text,
    pub(super) state: Option<Text>,
    pub(super) expires_at: Time,
}

/// How a lease ended.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// It was lost for this reason.
    Lost(Error),
    /// It was released or completed.
    Released,
}

impl End {
    /// Returns the error for callers that still use the lease.
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Lost(reason) => reason,
            Self::Released => Error::Fenced,
        }
    }
}

impl LeaseState {
    pub(super) fn new(name: Name, hold: Hold) -> Self {
        let Hold { grant, deadline } = hold;
        Self {
            name,
            fence: grant.fence,
            ttl: grant.ttl,
            granted: grant.granted,
            acquired_at: grant.acquired_at,
            last: grant.last,
            data: Mutex::new(LeaseData {
                body: grant.body,
                state: grant.state.map(|state| state.label),
                expires_at: grant.expires_at,
            }),
            deadline: watch::Sender::new(deadline),
            end: OnceLock::new(),
            changed: Notify::new(),
        }
    }

    pub(super) fn data(&self) -> MutexGuard<'_, LeaseData> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn deadline(&self) -> BootTime {
        *self.deadline.borrow()
    }

    pub(super) fn watch_deadline(&self) -> watch::Receiver<BootTime> {
        self.deadline.subscribe()
    }

    /// Returns when the keeper gives up the lease unless it is renewed: shortly before the deadline.
    pub(super) fn gives_up_at(&self) -> BootTime {
        self.deadline() - LEAD.min(self.ttl / 10)
    }

    /// Extends the deadline. Never moves it back, because responses may arrive out of order.
    pub(super) fn extend(&self, deadline: BootTime, expires_at: Time) {
        self.deadline.send_if_modified(|current| {
            let is_later = deadline > *current;
            *current = deadline.max(*current);
            is_later
        });
        let mut data = self.data();
        data.expires_at = data.expires_at.max(expires_at);
    }

    /// Ends the lease. Only the first end counts.
    pub(super) fn set_end(&self, end: End) {
        if self.end.set(end.clone()).is_ok() {
            tracing::debug!(name = %self.name, fence = %self.fence, ?end, "the lease ended");
        }
        self.notify();
    }

    /// Returns how the lease ended, if it has ended.
    pub(super) fn end(&self) -> Option<End> {
        self.end.get().cloned()
    }

    /// Returns why the lease was lost; `None` if it is held or was released.
    pub(super) fn loss(&self) -> Option<Error> {
        match self.end.get()? {
            End::Lost(reason) => Some(reason.clone()),
            End::Released => None,
        }
    }

    /// Wakes all callers of [`wait_for`](Self::wait_for).
    pub(super) fn notify(&self) {
        self.changed.notify_waiters();
    }

    /// Waits until a condition returns a value. It is checked after each change.
    pub(super) async fn wait_for<T>(&self, condition: impl Fn() -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registers before the check, so that no change between the two is missed.
            changed.as_mut().enable();
            if let Some(value) = condition() {
                return value;
            }
            changed.await;
        }
    }
}
