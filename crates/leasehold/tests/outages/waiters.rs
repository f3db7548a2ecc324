//! Waiters on one engine, releases through another.

use std::time::{Duration, Instant};

use leasehold::Acquired;
use leasehold::core::{Fence, Name};
use leasehold::engine::Engine;
use leasehold_testbed::Server;

use super::patient::{POLL, Patient};
use super::{ask, engine, release};

const HAND_OVERS: usize = 21;
const PATIENCE: Duration = Duration::from_secs(30);
/// Time enough for a waiter to have looked at the store for itself. If it has not, it is served all the same.
const LINED_UP: Duration = Duration::from_millis(20);

/// A waiter is served by a release through another engine, by hints or by polling.
///
/// On a quiet machine hints take some milliseconds. What is asserted holds on a busy one, too: most of those who would look by
/// themselves after a second at the earliest are served within half of one.
pub(crate) async fn waiters_elsewhere(server: Server) {
    let url = server.url();
    let patient = [Patient::engine(&url).await, Patient::engine(&url).await];
    let hinted = Pair::of(patient, "hinted");
    let joint = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{joint}changes=off");
    let polled = Pair::of([engine(&url).await, engine(&url).await], "polled");
    let (mut by_hint, mut by_poll) = (Vec::new(), Vec::new());
    for _ in 0..HAND_OVERS {
        by_hint.push(hinted.hand_over().await);
        by_poll.push(polled.hand_over().await);
    }
    let (by_hint, by_poll) = (median(by_hint), median(by_poll));
    println!("{url}: handed over in {by_hint:?} by hints, {by_poll:?} by polling (medians)");
    assert!(by_hint < POLL / 4, "{by_hint:?} by hints");
}

/// Two engines that share a store, and a name.
struct Pair {
    here: Engine,
    there: Engine,
    name: Name,
}

impl Pair {
    fn of([here, there]: [Engine; 2], name: &str) -> Self {
        let name = super::name(name);
        Self { here, there, name }
    }

    /// How long it takes from the release by one to the grant by the other.
    async fn hand_over(&self) -> Duration {
        let fence = take(&self.here, &self.name).await;
        let waiting = tokio::spawn({
            let (there, name) = (self.there.clone(), self.name.clone());
            async move { (take(&there, &name).await, Instant::now()) }
        });
        while self.there.waiters(&self.name) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(LINED_UP).await;
        let released = Instant::now();
        release(&self.here, &self.name, fence).await;
        let (next, granted) = waiting.await.expect("no panic");
        assert!(next > fence, "{next} after {fence}");
        release(&self.there, &self.name, next).await;
        granted.saturating_duration_since(released)
    }
}

async fn take(engine: &Engine, name: &Name) -> Fence {
    let answer = ask(engine, name, Duration::from_secs(60), PATIENCE).await;
    match answer.expect("the store answers") {
        Acquired::Granted(hold) => hold.grant.fence,
        Acquired::Held(held) => panic!("`{name}` was never handed over: {held:?}"),
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
