//! How one lease stands: what its guard and its keeper share.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use leasehold_core::{BootTime, Fence, GrantKind, LastHolder, Name, Text, Time};
use tokio::sync::{Notify, watch};

use crate::{Error, Hold};

/// Timers are late, never early. A lease is given up this much before its deadline, so that `lost()` has fired by
/// then.
const LEAD: Duration = Duration::from_millis(5);

/// One lease, as far as this process knows.
pub(super) struct Standing {
    pub(super) name: Name,
    pub(super) fence: Fence,
    pub(super) ttl: Duration,
    pub(super) granted: GrantKind,
    pub(super) acquired_at: Time,
    pub(super) last: Option<LastHolder>,
    known: Mutex<Known>,
    deadline: watch::Sender<BootTime>,
    over: OnceLock<Over>,
    changed: Notify,
}

/// What changes while it is held.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) body: Text,
    pub(super) state: Option<Text>,
    pub(super) expires_at: Time,
}

/// How it ended.
#[derive(Clone, Debug)]
pub(super) enum Over {
    /// Against the holder's will, for this reason.
    Lost(Error),
    /// It was released or completed.
    LetGo,
}

impl Over {
    /// What whoever still acts under the lease is told.
    pub(super) fn reason(self) -> Error {
        match self {
            Self::Lost(reason) => reason,
            Self::LetGo => Error::Fenced,
        }
    }
}

impl Standing {
    pub(super) fn new(name: Name, hold: Hold) -> Self {
        let Hold { grant, deadline } = hold;
        Self {
            name,
            fence: grant.fence,
            ttl: grant.ttl,
            granted: grant.granted,
            acquired_at: grant.acquired_at,
            last: grant.last,
            known: Mutex::new(Known {
                body: grant.body,
                state: grant.state.map(|state| state.label),
                expires_at: grant.expires_at,
            }),
            deadline: watch::Sender::new(deadline),
            over: OnceLock::new(),
            changed: Notify::new(),
        }
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn deadline(&self) -> BootTime {
        *self.deadline.borrow()
    }

    pub(super) fn watch_deadline(&self) -> watch::Receiver<BootTime> {
        self.deadline.subscribe()
    }

    /// When the keeper gives it up unless it is renewed.
    pub(super) fn ends(&self) -> BootTime {
        self.deadline() - LEAD.min(self.ttl / 10)
    }

    /// Moves the deadline ahead, never back: answers may overtake each other.
    pub(super) fn extend(&self, deadline: BootTime, expires_at: Time) {
        self.deadline.send_if_modified(|current| {
            let later = deadline > *current;
            *current = deadline.max(*current);
            later
        });
        let mut known = self.known();
        known.expires_at = known.expires_at.max(expires_at);
    }

    /// It is over, like this unless it was before. Once over, always over.
    pub(super) fn end(&self, over: Over) {
        if self.over.set(over.clone()).is_ok() {
            tracing::debug!(name = %self.name, fence = %self.fence, ?over, "over");
        }
        self.announce();
    }

    /// How it ended, if it did.
    pub(super) fn over(&self) -> Option<Over> {
        self.over.get().cloned()
    }

    /// Why it was lost, if it was: not when it was let go.
    pub(super) fn lost(&self) -> Option<Error> {
        match self.over.get()? {
            Over::Lost(reason) => Some(reason.clone()),
            Over::LetGo => None,
        }
    }

    /// Lets everybody who waits for a change look again.
    pub(super) fn announce(&self) {
        self.changed.notify_waiters();
    }

    /// Waits until `look` sees what it looks for.
    pub(super) async fn wait_for<T>(&self, look: impl Fn() -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // In line before looking, so that no change falls between the two.
            changed.as_mut().enable();
            if let Some(seen) = look() {
                return seen;
            }
            changed.await;
        }
    }
}
