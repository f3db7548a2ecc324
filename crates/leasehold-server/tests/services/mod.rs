//! Tests of several services on one database server. Each such store has a test file that calls them.

use std::time::{Duration, Instant};

use leasehold_server::Config;
use leasehold_testbed::Server as Database;
use tokio::io::AsyncReadExt as _;

use crate::common::{Answer, Server};
use crate::subscriber::Subscriber;

// Shared with the tests of the library.
#[path = "../../../leasehold/tests/outages/rarely_polled.rs"]
mod rarely_polled;

use rarely_polled::{POLL, RarelyPolledStore};

const HAND_OFFS: usize = 21;
/// Enough time for a waiter to read the store once. If it has not, it is served all the same.
const QUEUED: Duration = Duration::from_millis(20);
/// The time within which callers learn that the database is down.
const REPORTED: Duration = Duration::from_secs(8);
/// The time within which work continues once the database is back.
const RECOVERED: Duration = Duration::from_secs(5);

/// Checks that a waiter on one service is granted what is released through another, by hints or by polling.
///
/// On an idle machine hints take some milliseconds. The assertion holds on a busy one as well: the median is far below the
/// interval of polling.
pub(crate) async fn hand_off(scheme: &str) {
    let database = Database::start(scheme).await.expect("installed");
    let url = database.url();
    let hinted = Pair {
        here: Server::start_with(RarelyPolledStore::engine(&url).await, Config::default()).await,
        there: Server::start_with(RarelyPolledStore::engine(&url).await, Config::default()).await,
    };
    let url = url + "?changes=off";
    let polled = Pair {
        here: Server::start_on(&url).await,
        there: Server::start_on(&url).await,
    };
    let (mut by_hint, mut by_poll) = (Vec::new(), Vec::new());
    for turn in 0..HAND_OFFS {
        by_hint.push(hinted.hand_off("hinted", turn).await);
        by_poll.push(polled.hand_off("polled", turn).await);
    }
    let (by_hint, by_poll) = (median(by_hint), median(by_poll));
    println!("{scheme}: handed off in {by_hint:?} by hints, {by_poll:?} by polling (medians)");
    assert!(by_hint < POLL / 4, "{by_hint:?} by hints");
}

/// Two services on one database.
struct Pair {
    here: Server,
    there: Server,
}

impl Pair {
    /// Returns the time from the release through one service to the answer of the other.
    async fn hand_off(&self, name: &str, turn: usize) -> Duration {
        let target = |nonce: &str| format!("/locks/{name}?nonce={nonce}{turn}&ttl=1m&wait=30s");
        let fence = self.here.acquire(&target("here")).await;
        let mut waiting = self.there.begin("POST", &target("there"), "", b"").await;
        self.there.wait_for_waiters(name, 1).await;
        let granted = tokio::spawn(async move {
            let mut bytes = Vec::new();
            waiting.read_to_end(&mut bytes).await.expect("an answer");
            (Instant::now(), Answer::parse(&bytes))
        });
        tokio::time::sleep(QUEUED).await;
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

/// Checks that an outage of the database is reported in time, as ambiguous where a write may have landed, and that work
/// continues after it.
pub(crate) async fn outage(scheme: &str) {
    let database = Database::start(scheme).await.expect("installed");
    let service = Server::start_on(&database.url()).await;
    let fence = service.acquire("/locks/job?nonce=job&ttl=10m").await;

    database.kill().await;
    let shown = expect_503(service.get("/locks/job")).await;
    shown.problem(503, "store-unavailable");
    // It may have been sent on a connection that seemed to be open, or be in progress at the timeout.
    let acquired = expect_503(service.post("/locks/new?nonce=new&ttl=10m")).await;
    assert!(
        ["store-unavailable", "indeterminate"].contains(&acquired.text("type")),
        "{acquired:?}"
    );
    database.restart().await;
    let back = Instant::now();
    service
        .post(&format!("/locks/job/{fence}/heartbeat"))
        .await
        .ok();
    assert!(back.elapsed() < RECOVERED, "{:?}", back.elapsed());

    // Connections stay open, and nothing is answered: a write may have landed.
    database.pause().await;
    let ambiguous = expect_503(service.post("/locks/sent?nonce=mine&ttl=10m")).await;
    ambiguous.problem(503, "indeterminate");
    database.resume().await;
    let back = Instant::now();
    // The same nonce holds the lease, whether or not the write had landed.
    service.post("/locks/sent?nonce=mine&ttl=10m").await.ok();
    assert!(back.elapsed() < RECOVERED, "{:?}", back.elapsed());
}

/// Checks that the service answers in time with 503.
async fn expect_503(asking: impl Future<Output = Answer>) -> Answer {
    let asked = Instant::now();
    let answer = asking.await;
    assert!(asked.elapsed() < REPORTED, "{:?}", asked.elapsed());
    assert_eq!(answer.status, 503, "{answer:?}");
    answer
}

/// Checks that a subscriber of one service receives the events of the other, in order and once.
pub(crate) async fn events(scheme: &str) {
    let database = Database::start(scheme).await.expect("installed");
    let (here, there) = (
        Server::start_on(&database.url()).await,
        Server::start_on(&database.url()).await,
    );
    let mut subscriber = Subscriber::new(&here, "", None).await;
    // Until the other service knows of the subscriber, it publishes only what waiters need.
    let warm_up = async {
        for turn in 0.. {
            there.acquire(&format!("/locks/w{turn}?nonce=n")).await;
            tokio::time::sleep(QUEUED).await;
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
        assert_eq!(next.event, "granted", "of the warm-up: {next:?}");
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
    // Its own changes are published once, although hints of them arrive too.
    here.acquire("/locks/own?nonce=n").await;
    there.acquire("/locks/last?nonce=n").await;
    subscriber.expect("granted", "own").await;
    subscriber.expect("granted", "last").await;
}
