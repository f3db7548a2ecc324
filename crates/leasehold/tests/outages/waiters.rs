//! Waiters on one engine, releases through another.

use std::time::{Duration, Instant};

use leasehold::Acquired;
use leasehold::core::{Fence, Name};
use leasehold::engine::Engine;
use leasehold_testbed::Server;

use super::{ask, release};

const HAND_OVERS: usize = 21;
const PATIENCE: Duration = Duration::from_secs(30);
/// Time enough for a waiter to have looked at the store for itself. If it has not, it is served all the same.
const LINED_UP: Duration = Duration::from_millis(20);

/// A waiter is served by a release through another engine, by hints or by polling; by hints much sooner.
///
/// Both are measured in turns, so that a busy machine slows both: what it adds is on both sides. One that polls every
/// 100 ms, give or take a half, looks again 50 ms after it lined up, at the earliest; hints must save half of that at least.
pub(crate) async fn waiters_elsewhere(server: Server) {
    let url = server.url();
    let joint = if url.contains('?') { '&' } else { '?' };
    let hinted = Pair::on(&url, "hinted").await;
    let polled = Pair::on(&format!("{url}{joint}changes=off"), "polled").await;
    let (mut by_hint, mut by_poll) = (Vec::new(), Vec::new());
    for _ in 0..HAND_OVERS {
        by_hint.push(hinted.hand_over().await);
        by_poll.push(polled.hand_over().await);
    }
    let (by_hint, by_poll) = (median(by_hint), median(by_poll));
    println!("{url}: handed over in {by_hint:?} by hints, {by_poll:?} by polling (medians)");
    assert!(
        by_hint + Duration::from_millis(25) < by_poll,
        "{by_hint:?} by hints, {by_poll:?} by polling"
    );
}

/// Two engines that share a store, and a name.
struct Pair {
    here: Engine,
    there: Engine,
    name: Name,
}

impl Pair {
    async fn on(url: &str, name: &str) -> Self {
        Self {
            here: super::engine(url).await,
            there: super::engine(url).await,
            name: super::name(name),
        }
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
