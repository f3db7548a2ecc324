//! Services on a shared database server: each such store has a test file that calls these.

use std::time::{Duration, Instant};

use leasehold_testbed::Server as Database;
use tokio::io::AsyncReadExt as _;

use crate::common::{Answer, Server};

const HAND_OVERS: usize = 21;
/// Time enough for a waiter to have looked at the store for itself. If it has not, it is served all the same.
const LINED_UP: Duration = Duration::from_millis(20);
/// Within which callers are told that the database is away.
const TOLD: Duration = Duration::from_secs(8);
/// Within which work goes on once it is back.
const RESUMED: Duration = Duration::from_secs(5);

/// A waiter on one service is granted what is released through another, by hints or by polling; by hints much sooner.
///
/// Both are measured in turns, so that a busy machine slows both: what it adds is on both sides. One that polls every
/// 100 ms, give or take a half, looks again 50 ms after it lined up, at the earliest; hints must save half of that at least.
pub(crate) async fn hand_over(scheme: &str) {
    let database = Database::start(scheme).await.expect("installed");
    let hinted = Pair::on(&database.url()).await;
    let polled = Pair::on(&(database.url() + "?changes=off")).await;
    let (mut by_hint, mut by_poll) = (Vec::new(), Vec::new());
    for turn in 0..HAND_OVERS {
        by_hint.push(hinted.hand_over("hinted", turn).await);
        by_poll.push(polled.hand_over("polled", turn).await);
    }
    let (by_hint, by_poll) = (median(by_hint), median(by_poll));
    println!("{scheme}: handed over in {by_hint:?} by hints, {by_poll:?} by polling (medians)");
    assert!(
        by_hint + Duration::from_millis(25) < by_poll,
        "{by_hint:?} by hints, {by_poll:?} by polling"
    );
}

/// Two services on one database.
struct Pair {
    here: Server,
    there: Server,
}

impl Pair {
    async fn on(url: &str) -> Self {
        Self {
            here: Server::start_on(url).await,
            there: Server::start_on(url).await,
        }
    }

    /// How long it takes from the release through one to the answer of the other.
    async fn hand_over(&self, name: &str, turn: usize) -> Duration {
        let target = |who: &str| format!("/locks/{name}?nonce={who}{turn}&ttl=1m&wait=30s");
        let fence = self.here.acquire(&target("here")).await;
        let mut waiting = self.there.begin("POST", &target("there"), "", b"").await;
        self.there.wait_for_waiters(name, 1).await;
        let granted = tokio::spawn(async move {
            let mut bytes = Vec::new();
            waiting.read_to_end(&mut bytes).await.expect("an answer");
            (Instant::now(), Answer::parse(&bytes))
        });
        tokio::time::sleep(LINED_UP).await;
        let released = Instant::now();
        self.here
            .delete(&format!("/locks/{name}/{fence}"))
            .await
            .ok();
        let (at, answer) = granted.await.expect("no panic");
        let next = answer.ok().fence();
        assert!(next > fence, "{next} after {fence}");
        self.there
            .delete(&format!("/locks/{name}/{next}"))
            .await
            .ok();
        at.saturating_duration_since(released)
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// While the database is away callers are told so in time, and whether something may have happened; then work goes on.
pub(crate) async fn away(scheme: &str) {
    let database = Database::start(scheme).await.expect("installed");
    let service = Server::start_on(&database.url()).await;
    let fence = service.acquire("/locks/job?nonce=job&ttl=10m").await;

    database.kill().await;
    // The first may have been sent on a connection that was still thought to live; after it there is none.
    let first = told(service.post(&format!("/locks/job/{fence}/heartbeat"))).await;
    assert!(
        ["store-unavailable", "indeterminate"].contains(&first.text("type")),
        "{first:?}"
    );
    let (new, shown) = tokio::join!(
        told(service.post("/locks/new?nonce=new&ttl=10m")),
        told(service.get("/locks/job"))
    );
    new.problem(503, "store-unavailable");
    shown.problem(503, "store-unavailable");
    database.restart().await;
    let back = Instant::now();
    service
        .post(&format!("/locks/job/{fence}/heartbeat"))
        .await
        .ok();
    assert!(back.elapsed() < RESUMED, "{:?}", back.elapsed());

    // Connections stay open, nothing is answered: what was sent may have happened.
    database.pause().await;
    let unsure = told(service.post("/locks/sent?nonce=mine&ttl=10m")).await;
    unsure.problem(503, "indeterminate");
    database.resume().await;
    let back = Instant::now();
    // Whoever looks by the same nonce has the lease, whether or not it had happened.
    service.post("/locks/sent?nonce=mine&ttl=10m").await.ok();
    assert!(back.elapsed() < RESUMED, "{:?}", back.elapsed());
}

/// An answer that says in time that the store does not.
async fn told(asking: impl Future<Output = Answer>) -> Answer {
    let asked = Instant::now();
    let answer = asking.await;
    assert!(asked.elapsed() < TOLD, "{:?}", asked.elapsed());
    assert_eq!(answer.status, 503, "{answer:?}");
    answer
}
