//! Whether somebody watches all names, or listens at all.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For how long somebody is taken to do so who said it.
const WATCHED: Duration = Duration::from_secs(60);

/// Whether somebody has said lately that it watches, or listens. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Watched {
    since: Arc<Mutex<Option<Instant>>>,
}

impl Watched {
    /// Somebody does.
    pub(super) fn note(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether somebody does.
    pub(super) fn is_true(&self) -> bool {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() < WATCHED)
    }
}
