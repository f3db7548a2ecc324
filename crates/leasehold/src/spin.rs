//! Adaptive spin: polls for a moment before a thread sleeps.
//!
//! Waking a thread takes as long as the response of a nearby database, and several times as long on a virtual machine. A
//! caller that awaits a single response therefore polls for a moment before it sleeps, as long as that is effective.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of polls before sleeping: a few hundred microseconds on an idle runtime, and longer on a busy one, which does
/// not lose by it. Counted instead of timed, because reading a clock would make simulations differ.
const POLLS: u32 = 512;
/// The maximum number of calls without a spin between two spins.
const MAX_SKIPPED: u32 = 256;

/// Decides whether to spin: at each call while it is effective, and otherwise at exponentially growing intervals.
#[derive(Debug, Default)]
pub struct AdaptiveSpin {
    /// The number of calls to skip before the next spin.
    left_to_skip: AtomicU32,
    /// The number of calls that were skipped before the last spin.
    last_skipped: AtomicU32,
}

impl AdaptiveSpin {
    /// Returns whether to spin now.
    pub fn should_spin(&self) -> bool {
        let left = self.left_to_skip.load(Ordering::Relaxed);
        if left > 0 {
            self.left_to_skip.store(left - 1, Ordering::Relaxed);
        }
        left == 0
    }

    /// Records whether a spin was effective.
    pub fn record(&self, was_effective: bool) {
        let skipped = self.last_skipped.load(Ordering::Relaxed);
        let skip = match was_effective {
            true => 0,
            false => (2 * skipped + 1).min(MAX_SKIPPED),
        };
        self.last_skipped.store(skip, Ordering::Relaxed);
        self.left_to_skip.store(skip, Ordering::Relaxed);
    }

    /// Awaits a response, and spins before it sleeps if that has been effective. It never spins on a runtime with several
    /// worker threads, where another thread may sleep instead.
    pub(crate) async fn wait_for<T>(&self, response: impl Future<Output = T>) -> T {
        if !can_spin() || !self.should_spin() {
            return response.await;
        }
        let mut response = pin!(response);
        for _ in 0..POLLS {
            tokio::select! {
                biased;
                response = &mut response => {
                    self.record(true);
                    return response;
                }
                // Other ready tasks run first.
                () = tokio::task::yield_now() => {}
            }
        }
        self.record(false);
        response.await
    }
}

/// Returns whether the runtime has a single worker thread, so that the thread that spins is the one that would sleep.
pub fn can_spin() -> bool {
    tokio::runtime::Handle::current().metrics().num_workers() == 1
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn, ready};
    use std::task::Poll;
    use std::time::Duration;

    use super::*;

    /// Returns the number of calls that are skipped before the next spin.
    fn skipped(spin: &AdaptiveSpin) -> usize {
        (0..).take_while(|_| !spin.should_spin()).count()
    }

    #[test]
    fn ineffective_spins_become_exponentially_rarer() {
        let spin = AdaptiveSpin::default();
        for expected in [0, 1, 3, 7, 15, 31, 63, 127, 255, 256, 256] {
            assert_eq!(skipped(&spin), expected);
            spin.record(false);
        }
        skipped(&spin);
        spin.record(true);
        assert_eq!(skipped(&spin), 0);
        spin.record(false);
        assert_eq!(skipped(&spin), 1);
    }

    /// Completes at the third poll, but never wakes its task: only polling completes it.
    async fn response_without_wake_up() {
        let mut polls = 0;
        poll_fn(|_| {
            polls += 1;
            match polls {
                3 => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
        .await;
    }

    #[tokio::test]
    async fn response_is_polled_for_before_sleeping() {
        let spin = AdaptiveSpin::default();
        for _ in 0..3 {
            spin.wait_for(response_without_wake_up()).await;
        }
    }

    #[tokio::test]
    async fn late_response_is_awaited_after_the_spin() {
        let spin = AdaptiveSpin::default();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let response = spin.wait_for(receiver);
        let respond = async {
            while spin.last_skipped.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            sender.send(()).unwrap();
        };
        let (response, ()) = tokio::join!(response, respond);
        assert!(response.is_ok());
        assert_eq!(skipped(&spin), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn runtime_with_several_workers_never_spins() {
        let spin = AdaptiveSpin::default();
        let sleeping = spin.wait_for(pending::<()>());
        let slept = tokio::time::timeout(Duration::from_millis(10), sleeping).await;
        assert!(slept.is_err());
        assert_eq!(spin.last_skipped.load(Ordering::Relaxed), 0);
        spin.wait_for(ready(())).await;
    }
}
