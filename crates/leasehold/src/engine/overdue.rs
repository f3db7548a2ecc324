//! Tells callers that their time is up, without a timer for each of them.
//!
//! Nearly all operations have the same few seconds, and nearly none needs them. So time passes in ticks, for as long as
//! anybody waits, and each caller is told once so many of them are over: never too early, and a tick or two late.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::sync::Notify;

/// How many ticks the time of an operation has.
const TICKS: u64 = 64;

/// Those who wait for an answer.
pub(super) struct Overdue {
    waiting: Mutex<Waiting>,
    /// Told when somebody waits after nobody did, and when the engine goes.
    wake: Notify,
    tick: Duration,
}

#[derive(Default)]
struct Waiting {
    now: u64,
    /// Each with the tick at which its time is up.
    callers: Slab<(u64, Waker)>,
    /// Whether time stands still.
    rests: bool,
    /// The engine is gone.
    over: bool,
}

impl Overdue {
    /// For operations that may take so long.
    pub(super) fn start(timeout: Duration, runtime: &tokio::runtime::Handle) -> Arc<Self> {
        let overdue = Arc::new(Self {
            waiting: Mutex::default(),
            wake: Notify::new(),
            tick: timeout / TICKS as u32,
        });
        runtime.spawn(Arc::clone(&overdue).keep_ticking());
        overdue
    }

    /// Ends it: nobody is told anything any more.
    pub(super) fn stop(&self) {
        self.waiting().over = true;
        self.wake.notify_one();
    }

    /// Ready when the time of an operation that begins now is over.
    pub(super) fn wait(self: &Arc<Self>) -> TimeUp {
        TimeUp {
            overdue: Arc::clone(self),
            place: None,
        }
    }

    async fn keep_ticking(self: Arc<Self>) {
        while let Some(rests) = self.look_round() {
            if rests {
                self.wake.notified().await;
            } else {
                tokio::time::sleep(self.tick).await;
                self.pass();
            }
        }
    }

    /// Whether time may stand still, because nobody waits; `None` once the engine is gone.
    fn look_round(&self) -> Option<bool> {
        let mut waiting = self.waiting();
        waiting.rests = waiting.callers.is_empty();
        (!waiting.over).then_some(waiting.rests)
    }

    /// A tick is over.
    fn pass(&self) {
        let mut waiting = self.waiting();
        waiting.now += 1;
        let now = waiting.now;
        let due = waiting.callers.iter().filter(|(_, (at, _))| *at <= now);
        let due: Vec<_> = due.map(|(_, (_, waker))| waker.clone()).collect();
        drop(waiting);
        due.into_iter().for_each(Waker::wake);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ready when somebody's time is up.
pub(super) struct TimeUp {
    overdue: Arc<Overdue>,
    place: Option<usize>,
}

impl Future for TimeUp {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.overdue.waiting();
        match self.place {
            Some(place) => {
                let now = waiting.now;
                let (at, waker) = &mut waiting.callers[place];
                if *at <= now {
                    return Poll::Ready(());
                }
                waker.clone_from(context.waker());
            }
            None => {
                // The first tick may be nearly over.
                let at = waiting.now + TICKS + 1;
                let place = waiting.callers.insert((at, context.waker().clone()));
                let rests = std::mem::replace(&mut waiting.rests, false);
                drop(waiting);
                if rests {
                    self.overdue.wake.notify_one();
                }
                self.place = Some(place);
            }
        }
        Poll::Pending
    }
}

impl Drop for TimeUp {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.overdue.waiting().callers.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn overdue() -> Arc<Overdue> {
        Overdue::start(TIMEOUT, &tokio::runtime::Handle::current())
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_told_too_early_or_much_too_late() {
        let overdue = overdue();
        for pause in [0, 1, 77, 78, 79, 4_000] {
            // Whoever came first has long begun.
            let first = tokio::spawn(overdue.wait());
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let begun = Instant::now();
            overdue.wait().await;
            let took = begun.elapsed();
            assert!(took >= TIMEOUT, "{took:?}");
            assert!(took <= TIMEOUT + 2 * overdue.tick, "{took:?}");
            first.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_stands_still_while_nobody_waits() {
        let overdue = overdue();
        {
            let mut waits = std::pin::pin!(overdue.wait());
            let soon = tokio::time::timeout(TIMEOUT / 2, waits.as_mut()).await;
            assert!(soon.is_err());
        }
        assert!(overdue.waiting().callers.is_empty(), "it leaves nothing");
        tokio::time::sleep(TIMEOUT).await;
        let now = overdue.waiting().now;
        tokio::time::sleep(10 * TIMEOUT).await;
        assert_eq!(overdue.waiting().now, now);
    }
}
