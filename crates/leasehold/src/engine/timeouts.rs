//! Timeouts of callers, without a timer for each of them.
//!
//! Nearly all operations have the same timeout of a few seconds, and nearly none reaches it. So time advances in ticks
//! while there are callers. A caller is woken after a fixed number of ticks: never too early, and up to two ticks late.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::sync::Notify;

/// The number of ticks in a timeout.
const TICKS: u64 = 64;

/// The timeouts of callers that wait for an answer.
pub(super) struct Timeouts {
    state: Mutex<State>,
    /// Notified when there is a caller after there was none, and when the engine is dropped.
    wake: Notify,
    tick: Duration,
}

#[derive(Default)]
struct State {
    now: u64,
    /// Each caller with the tick of its timeout.
    callers: Slab<(u64, Waker)>,
    /// Whether the ticks have stopped because there are no callers.
    is_paused: bool,
    /// Whether the engine has been dropped.
    is_stopped: bool,
}

impl Timeouts {
    /// Starts a task that ticks.
    pub(super) fn start(timeout: Duration, runtime: &tokio::runtime::Handle) -> Arc<Self> {
        let timeouts = Arc::new(Self {
            state: Mutex::default(),
            wake: Notify::new(),
            tick: timeout / TICKS as u32,
        });
        runtime.spawn(Arc::clone(&timeouts).keep_ticking());
        timeouts
    }

    /// Stops the task. No caller is woken any more.
    pub(super) fn stop(&self) {
        self.state().is_stopped = true;
        self.wake.notify_one();
    }

    /// Returns a future that is ready when the timeout of an operation that starts now has passed.
    pub(super) fn wait(self: &Arc<Self>) -> Timeout {
        Timeout {
            timeouts: Arc::clone(self),
            key: None,
        }
    }

    async fn keep_ticking(self: Arc<Self>) {
        while let Some(is_paused) = self.pause_if_unused() {
            if is_paused {
                self.wake.notified().await;
            } else {
                tokio::time::sleep(self.tick).await;
                self.advance();
            }
        }
    }

    /// Returns whether the ticks pause because there are no callers, or `None` once the engine has been dropped.
    fn pause_if_unused(&self) -> Option<bool> {
        let mut state = self.state();
        state.is_paused = state.callers.is_empty();
        (!state.is_stopped).then_some(state.is_paused)
    }

    /// Advances by one tick, and wakes the callers whose timeout has passed.
    fn advance(&self) {
        let mut state = self.state();
        state.now += 1;
        let now = state.now;
        let due = state.callers.iter().filter(|(_, (at, _))| *at <= now);
        let due: Vec<_> = due.map(|(_, (_, waker))| waker.clone()).collect();
        drop(state);
        due.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ready when the timeout of one caller has passed.
pub(super) struct Timeout {
    timeouts: Arc<Timeouts>,
    key: Option<usize>,
}

impl Future for Timeout {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.timeouts.state();
        match self.key {
            Some(key) => {
                let now = state.now;
                let (at, waker) = &mut state.callers[key];
                if *at <= now {
                    return Poll::Ready(());
                }
                waker.clone_from(context.waker());
            }
            None => {
                // One more, because the next tick may be imminent.
                let at = state.now + TICKS + 1;
                let key = state.callers.insert((at, context.waker().clone()));
                let was_paused = std::mem::replace(&mut state.is_paused, false);
                drop(state);
                if was_paused {
                    self.timeouts.wake.notify_one();
                }
                self.key = Some(key);
            }
        }
        Poll::Pending
    }
}

impl Drop for Timeout {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.timeouts.state().callers.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn timeouts() -> Arc<Timeouts> {
        Timeouts::start(TIMEOUT, &tokio::runtime::Handle::current())
    }

    #[tokio::test(start_paused = true)]
    async fn timeouts_are_never_early_and_at_most_two_ticks_late() {
        let timeouts = timeouts();
        for pause in [0, 1, 77, 78, 79, 4_000] {
            // Another caller keeps the ticks running.
            let first = tokio::spawn(timeouts.wait());
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let started = Instant::now();
            timeouts.wait().await;
            let took = started.elapsed();
            assert!(took >= TIMEOUT, "{took:?}");
            assert!(took <= TIMEOUT + 2 * timeouts.tick, "{took:?}");
            first.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ticks_pause_without_callers() {
        let timeouts = timeouts();
        {
            let mut wait = std::pin::pin!(timeouts.wait());
            let soon = tokio::time::timeout(TIMEOUT / 2, wait.as_mut()).await;
            assert!(soon.is_err());
        }
        assert!(
            timeouts.state().callers.is_empty(),
            "dropping the future removes the caller"
        );
        tokio::time::sleep(TIMEOUT).await;
        let now = timeouts.state().now;
        tokio::time::sleep(10 * TIMEOUT).await;
        assert_eq!(timeouts.state().now, now);
    }
}
