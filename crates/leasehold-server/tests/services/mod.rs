//! Services on a shared database server: each such store has a test file that calls these.

use std::time::{Duration, Instant};

use leasehold_server::Config;
use leasehold_testbed::Server as Database;
use tokio::io::AsyncReadExt as _;

use crate::common::{Answer, Server};
use crate::subscriber::Subscriber;

// The library's tests have it, too.
#[path = "../../../leasehold/tests/outages/rarely_polled.rs"]
mod rarely_polled;

use rarely_polled::{POLL, RarelyPolled};

const HAND_OVERS: usize = 21;
/// Time enough for a waiter to have looked at the store for itself. If it has not, it is served all the same.
const LINED_UP: Duration = Duration::from_millis(20);
/// Within which callers are told that the database is away.
const TOLD: Duration = Duration::from_secs(8);
/// Within which work goes on once it is back.
const RESUMED: Duration = Duration::from_secs(5);

/// A waiter on one service is granted what is released through another, by hints or by polling.
///
/// On a quiet machine hints take some milliseconds. What is asserted holds on a busy one, too: most of those who would look by
/// themselves after a second at the earliest are served within half of one.
pub(crate) async fn hand_over(scheme: &str) {
    let database = Database::start(scheme).await.expect("installed");
    let url = database.url();
    let hinted = Pair {
        here: Server::start_with(RarelyPolled::engine(&url).await, Config::default()).await,
        there: Server::start_with(RarelyPolled::engine(&url).await, Config::default()).await,
    };
    let url = url + "?changes=off";
    let polled = Pair {
        here: Server::start_on(&url).await,
        there: Server::start_on(&url).await,
    };
    let (mut by_hint, mut by_poll) = (Vec::new(), Vec::new());
    for turn in 0..HAND_OVERS {
        by_hint.push(hinted.hand_over("hinted", turn).await);
        by_poll.push(polled.hand_over("polled", turn).await);
    }
    let (by_hint, by_poll) = (median(by_hint), median(by_poll));
    println!("{scheme}: handed over in {by_hint:?} by hints, {by_poll:?} by polling (medians)");
    assert!(by_hint < POLL / 4, "{by_hint:?} by hints");
}

/// Two services on one database.
struct Pair {
    here: Server,
    there: Server,
}

impl Pair {
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
    let shown = told(service.get("/locks/job")).await;
    shown.problem(503, "store-unavailable");
    // It may have been sent on a connection that was still thought to live, or be on its way when time is up.
    let asked = told(service.post("/locks/new?nonce=new&ttl=10m")).await;
    assert!(
        ["store-unavailable", "indeterminate"].contains(&asked.text("type")),
        "{asked:?}"
    );
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

/// Whoever subscribes to one service hears what happens through the other, in order, and once.
pub(crate) async fn events(scheme: &str) {
    let database = Database::start(scheme).await.expect("installed");
    let (here, there) = (
        Server::start_on(&database.url()).await,
        Server::start_on(&database.url()).await,
    );
    let mut subscriber = Subscriber::new(&here, "", None).await;
    // The other service has to hear that somebody watches: until then it only tells what others may wait for.
    let warm_up = async {
        for turn in 0.. {
            there.acquire(&format!("/locks/w{turn}?nonce=n")).await;
            tokio::time::sleep(LINED_UP).await;
        }
    };
    tokio::select! {
        first = subscriber.next() => assert_eq!(first.expect("an event").event, "granted"),
        () = warm_up => {}
    }
    let fence = there.acquire("/locks/job?nonce=n&ttl=1m&owner=web-1").await;
    let granted = loop {
        let next = subscriber.next().await.expect("an event");
        if next.data["name"] == "job" {
            break next;
        }
        assert_eq!(next.event, "granted", "of those before: {next:?}");
    };
    assert_eq!(
        (&*granted.event, &granted.data["fence"]),
        ("granted", &fence.into())
    );
    assert_eq!(granted.data["owner"], "web-1");
    there
        .post(&format!("/locks/job/{fence}/heartbeat"))
        .await
        .ok();
    subscriber.expect("renewed", "job").await;
    there.delete(&format!("/locks/job/{fence}")).await.ok();
    subscriber.expect("released", "job").await;
    // What it does itself is told once, though it may be hinted at too.
    here.acquire("/locks/own?nonce=n").await;
    there.acquire("/locks/last?nonce=n").await;
    subscriber.expect("granted", "own").await;
    subscriber.expect("granted", "last").await;
}
