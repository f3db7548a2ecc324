//! Busy polling for the next request.
//!
//! Waking a sleeping thread takes as long as answering a request, and several times as long on a virtual machine. So after an
//! answer, the thread polls for a moment before it sleeps, as long as polling finds requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::spin::{AdaptiveSpin, can_spin};
use tokio::sync::Notify;

/// How long to poll for another request.
const POLL_TIME: Duration = Duration::from_micros(100);

/// Polls adaptively: more and more rarely while it finds nothing.
#[derive(Default)]
pub(crate) struct BusyPoll {
    requests: AtomicU64,
    is_sleeping: AtomicBool,
    adaptive: AdaptiveSpin,
    wake: Notify,
}

impl BusyPoll {
    /// Counts a request that has arrived.
    pub(crate) fn request_arrived(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Starts polling after an answer, unless polling has found nothing recently.
    pub(crate) fn request_answered(&self) {
        if self.is_sleeping.load(Ordering::Relaxed)
            && self.adaptive.should_spin()
            && self.is_sleeping.swap(false, Ordering::Relaxed)
        {
            self.wake.notify_one();
        }
    }

    /// Polls after answers while this future runs, unless `is_processor_needed` for other work. Does nothing on a runtime with
    /// several threads, where another thread may sleep instead.
    pub(crate) async fn run(self: Arc<Self>, is_processor_needed: impl Fn() -> bool) {
        while can_spin() {
            self.is_sleeping.store(true, Ordering::Relaxed);
            self.wake.notified().await;
            let found = self.poll(&is_processor_needed).await;
            self.adaptive.record(found);
        }
    }

    /// Polls until no request has arrived for [`POLL_TIME`] or the processor is needed. Returns whether any has arrived.
    async fn poll(&self, is_processor_needed: impl Fn() -> bool) -> bool {
        let (before, mut since) = (self.requests.load(Ordering::Relaxed), Instant::now());
        let mut last = before;
        while since.elapsed() < POLL_TIME && !is_processor_needed() {
            tokio::task::yield_now().await;
            let requests = self.requests.load(Ordering::Relaxed);
            if requests != last {
                (last, since) = (requests, Instant::now());
            }
        }
        self.requests.load(Ordering::Relaxed) != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a poller that runs and sleeps.
    async fn sleeping() -> Arc<BusyPoll> {
        let busy_poll: Arc<BusyPoll> = Arc::default();
        tokio::spawn(busy_poll.clone().run(|| false));
        until_sleeping(&busy_poll).await;
        busy_poll
    }

    async fn until_sleeping(busy_poll: &BusyPoll) {
        while !busy_poll.is_sleeping.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
    }

    /// Returns how many answers do not start polling before one does.
    async fn answers_without_polling(busy_poll: &BusyPoll) -> u32 {
        let mut answers = 0;
        while busy_poll.is_sleeping.load(Ordering::Relaxed) {
            busy_poll.request_answered();
            answers += 1;
        }
        answers - 1
    }

    #[tokio::test]
    async fn polling_becomes_rarer_while_it_finds_nothing() {
        let busy_poll = sleeping().await;
        for answers in [0, 1, 3, 7, 15, 31, 63, 127, 255, 256, 256] {
            assert_eq!(answers_without_polling(&busy_poll).await, answers);
            until_sleeping(&busy_poll).await;
        }
    }

    #[tokio::test]
    async fn polling_stops_at_once_when_the_processor_is_needed() {
        let (busy_poll, needed): (Arc<BusyPoll>, Arc<AtomicBool>) = Default::default();
        let is_needed = needed.clone();
        tokio::spawn(
            busy_poll
                .clone()
                .run(move || is_needed.load(Ordering::Relaxed)),
        );
        until_sleeping(&busy_poll).await;
        answers_without_polling(&busy_poll).await;
        needed.store(true, Ordering::Relaxed);
        // Even while requests arrive all the time.
        while !busy_poll.is_sleeping.load(Ordering::Relaxed) {
            busy_poll.request_arrived();
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn polling_that_finds_a_request_is_repeated_after_the_next_answer() {
        let busy_poll = sleeping().await;
        for _ in 0..3 {
            answers_without_polling(&busy_poll).await;
            until_sleeping(&busy_poll).await;
        }
        answers_without_polling(&busy_poll).await;
        for _ in 0..100 {
            busy_poll.request_arrived();
            tokio::task::yield_now().await;
        }
        until_sleeping(&busy_poll).await;
        assert_eq!(answers_without_polling(&busy_poll).await, 0);
    }
}
