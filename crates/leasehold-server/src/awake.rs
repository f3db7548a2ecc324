//! Keeps the thread awake while the next request is likely to be here soon.
//!
//! A thread that sleeps takes as long to wake as a request takes to be answered, on a virtual machine several times as
//! long. So after an answer it looks for more for a moment before it sleeps, as long as that turns out to be worth it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::awake::{Worth, may_look};
use tokio::sync::Notify;

/// How long to look for another request.
const LOOK: Duration = Duration::from_micros(100);

/// When to stay awake.
#[derive(Default)]
pub(crate) struct Awake {
    requests: AtomicU64,
    /// Nobody looks for requests but the system.
    asleep: AtomicBool,
    worth: Worth,
    look: Notify,
}

impl Awake {
    /// A request is here.
    pub(crate) fn asked(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// It is answered.
    pub(crate) fn answered(&self) {
        if self.asleep.load(Ordering::Relaxed)
            && self.worth.a_try()
            && self.asleep.swap(false, Ordering::Relaxed)
        {
            self.look.notify_one();
        }
    }

    /// Stays awake as long as it is worth it, for as long as it is polled, unless somebody needs the processor more. On a
    /// runtime with more than one thread another one may sleep in its place, so there it does nothing.
    pub(crate) async fn keep(self: Arc<Self>, is_needed: impl Fn() -> bool) {
        while may_look() {
            self.asleep.store(true, Ordering::Relaxed);
            self.look.notified().await;
            let found = self.look(&is_needed).await;
            self.worth.turned_out(found);
        }
    }

    /// Looks until nothing has come for a while, or somebody else needs the processor; whether anything came at all.
    async fn look(&self, is_needed: impl Fn() -> bool) -> bool {
        let (before, mut since) = (self.requests.load(Ordering::Relaxed), Instant::now());
        let mut seen = before;
        while since.elapsed() < LOOK && !is_needed() {
            tokio::task::yield_now().await;
            let requests = self.requests.load(Ordering::Relaxed);
            if requests != seen {
                (seen, since) = (requests, Instant::now());
            }
        }
        self.requests.load(Ordering::Relaxed) != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever keeps it awake, once it is asleep for the first time.
    async fn asleep() -> Arc<Awake> {
        let awake: Arc<Awake> = Arc::default();
        tokio::spawn(awake.clone().keep(|| false));
        sleeps(&awake).await;
        awake
    }

    async fn sleeps(awake: &Awake) {
        while !awake.asleep.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
    }

    /// How many answers pass before it looks for more.
    async fn passing(awake: &Awake) -> u32 {
        let mut answers = 0;
        while awake.asleep.load(Ordering::Relaxed) {
            awake.answered();
            answers += 1;
        }
        answers - 1
    }

    #[tokio::test]
    async fn who_looks_in_vain_looks_more_and_more_rarely() {
        let awake = asleep().await;
        for passed in [0, 1, 3, 7, 15, 31, 63, 127, 255, 256, 256] {
            assert_eq!(passing(&awake).await, passed);
            sleeps(&awake).await;
        }
    }

    #[tokio::test]
    async fn whose_processor_is_needed_sleeps_at_once() {
        let (awake, needed): (Arc<Awake>, Arc<AtomicBool>) = Default::default();
        let is_needed = needed.clone();
        tokio::spawn(
            awake
                .clone()
                .keep(move || is_needed.load(Ordering::Relaxed)),
        );
        sleeps(&awake).await;
        passing(&awake).await;
        needed.store(true, Ordering::Relaxed);
        // However often something comes.
        while !awake.asleep.load(Ordering::Relaxed) {
            awake.asked();
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn who_finds_something_looks_after_the_next_answer_again() {
        let awake = asleep().await;
        for _ in 0..3 {
            passing(&awake).await;
            sleeps(&awake).await;
        }
        passing(&awake).await;
        for _ in 0..100 {
            awake.asked();
            tokio::task::yield_now().await;
        }
        sleeps(&awake).await;
        assert_eq!(passing(&awake).await, 0);
    }
}
