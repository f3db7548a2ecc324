//! Waiters on one engine, releases through another.

use std::time::{Duration, Instant};

use leasehold::AcquireOutcome;
use leasehold::core::{Fence, Name};
use leasehold::engine::Engine;
use leasehold_testbed::Server;

use super::rarely_polled::{POLL, RarelyPolledStore};
use super::{engine, release, try_acquire};

const HAND_OFFS: usize = 21;
const WAIT_LIMIT: Duration = Duration::from_secs(30);
/// Enough time for a waiter to read the store itself. It is served even if it has not.
const WAITER_SETTLES: Duration = Duration::from_millis(20);

/// Checks that a waiter is served by a release through another engine, by notifications and by polling.
///
/// On a quiet machine a notification takes some milliseconds. The assertion also holds on a busy one: most waiters,
/// which would poll after a second at the earliest, are served within half a second.
pub(crate) async fn check_hand_off_between_engines(server: Server) {
    let url = server.url();
    let notified = [
        RarelyPolledStore::engine(&url).await,
        RarelyPolledStore::engine(&url).await,
    ];
    let notified = Pair::of(notified, "notified");
    let separator = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{separator}changes=off");
    let polled = Pair::of([engine(&url).await, engine(&url).await], "polled");
    let (mut by_notification, mut by_poll) = (Vec::new(), Vec::new());
    for _ in 0..HAND_OFFS {
        by_notification.push(notified.hand_off().await);
        by_poll.push(polled.hand_off().await);
    }
    let (by_notification, by_poll) = (median(by_notification), median(by_poll));
    println!(
        "{url}: hand-off took {by_notification:?} by notification, {by_poll:?} by polling (medians)"
    );
    assert!(
        by_notification < POLL / 4,
        "{by_notification:?} by notification"
    );
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

    /// Returns how long it takes from the release by one engine to the grant by the other.
    async fn hand_off(&self) -> Duration {
        let fence = acquire(&self.here, &self.name).await;
        let waiting = tokio::spawn({
            let (there, name) = (self.there.clone(), self.name.clone());
            async move { (acquire(&there, &name).await, Instant::now()) }
        });
        while self.there.waiters(&self.name) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(WAITER_SETTLES).await;
        let released = Instant::now();
        release(&self.here, &self.name, fence).await;
        let (next, granted) = waiting.await.expect("no panic");
        assert!(next > fence, "{next} after {fence}");
        release(&self.there, &self.name, next).await;
        granted.saturating_duration_since(released)
    }
}

async fn acquire(engine: &Engine, name: &Name) -> Fence {
    let answer = try_acquire(engine, name, Duration::from_secs(60), WAIT_LIMIT).await;
    match answer.expect("the store answers") {
        AcquireOutcome::Granted(hold) => hold.grant.fence,
        AcquireOutcome::Held(held) => panic!("`{name}` was never handed off: {held:?}"),
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
