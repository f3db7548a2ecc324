//! Whether a process has recently asked for change notifications.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a request for notifications counts.
const LIFETIME: Duration = Duration::from_secs(60);

/// Whether notifications were requested recently. Clones share the state.
#[derive(Clone, Default)]
pub(super) struct NotificationRequest {
    since: Arc<Mutex<Option<Instant>>>,
}

impl NotificationRequest {
    /// Notes a request.
    pub(super) fn renew(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Returns whether a request is recent enough to count.
    pub(super) fn is_active(&self) -> bool {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() < LIFETIME)
    }
}
