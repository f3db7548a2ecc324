//! The lifetime of a token, a session or a certificate.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;

/// How often a waiting task reads the wall clock, which may be set meanwhile.
const RECHECK: Duration = Duration::from_secs(60);

/// Ends at a time, or earlier by [`end`](Self::end).
#[derive(Debug)]
pub(crate) struct Lifetime {
    until: Option<Timestamp>,
    is_ended: AtomicBool,
    ended: Notify,
}

impl Lifetime {
    /// Creates a lifetime that ends at `until`, if given.
    pub(crate) fn new(until: Option<Timestamp>) -> Self {
        Self {
            until,
            is_ended: AtomicBool::new(false),
            ended: Notify::new(),
        }
    }

    pub(crate) fn until(&self) -> Option<Timestamp> {
        self.until
    }

    pub(crate) fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        self.ended.notify_waiters();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire) || self.left().is_some_and(|left| left.is_zero())
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&self) {
        loop {
            // Created before the check, so that an end between the two is not missed.
            let ended = self.ended.notified();
            if self.has_ended() {
                return;
            }
            match self.left() {
                None => ended.await,
                Some(left) => {
                    let _ = tokio::time::timeout(left.min(RECHECK), ended).await;
                }
            }
        }
    }

    /// Returns the time until it expires, if it does.
    fn left(&self) -> Option<Duration> {
        let left = self.until?.duration_since(Timestamp::now());
        Some(Duration::try_from(left).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::SignedDuration;

    use super::*;

    #[tokio::test]
    async fn ending_wakes_all_waiting_tasks() {
        let lifetime = Arc::new(Lifetime::new(None));
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let lifetime = Arc::clone(&lifetime);
                tokio::spawn(async move { lifetime.ended().await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(!lifetime.has_ended() && waiting.iter().all(|task| !task.is_finished()));
        lifetime.end();
        for task in waiting {
            task.await.unwrap();
        }
        lifetime.ended().await;
        assert!(lifetime.has_ended());
    }

    #[tokio::test]
    async fn lifetime_ends_at_its_time() {
        let soon = Timestamp::now() + SignedDuration::from_millis(50);
        let lifetime = Lifetime::new(Some(soon));
        assert!(!lifetime.has_ended());
        lifetime.ended().await;
        assert!(Timestamp::now() >= soon && lifetime.has_ended());
    }
}
