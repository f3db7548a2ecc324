//! `GET /metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::core::Name;
use leasehold::engine::Engine;
use leasehold::store::memory::Memory;
use leasehold::store::{Answer, Facts, Page, Query, Store, Stored, Swapped, Write};
use leasehold::{Client, Error, Result};
use leasehold_server::{Audit, AuditOptions, Config, OnFailure};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpSocket, TcpStream};

use crate::common::{Server, TIMEOUT};
use crate::subscriber::Subscriber;

/// A store that can fail, wait, and report a later time.
#[derive(Default)]
struct FaultyStore {
    memory: Memory,
    fails: AtomicBool,
    waits: AtomicBool,
    late: AtomicBool,
}

impl FaultyStore {
    fn with_faults<T>(&self, answer: Result<Answer<T>>) -> Result<Answer<T>> {
        let mut answer = answer?;
        if self.fails.load(Ordering::SeqCst) {
            return Err(Error::Unavailable("faulty".into()));
        }
        if self.late.load(Ordering::SeqCst) {
            answer.stamp.time = answer.stamp.time + Duration::from_secs(3_600);
        }
        Ok(answer)
    }
}

#[async_trait]
impl Store for FaultyStore {
    fn facts(&self) -> Facts {
        self.memory.facts()
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        self.with_faults(self.memory.load(names).await)
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        while self.waits.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.with_faults(self.memory.swap(writes).await)
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        self.with_faults(self.memory.find(query).await)
    }
}

/// A page of metrics: all values by line, and the names of all metrics.
struct Scraped {
    values: BTreeMap<String, f64>,
    metrics: BTreeSet<String>,
}

impl Scraped {
    async fn from(server: &Server) -> Self {
        let mut stream = server.begin("GET", "/metrics", "", b"").await;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(
            head.contains("content-type: text/plain; version=0.0.4"),
            "{head}"
        );
        let mut scraped = Self {
            values: BTreeMap::new(),
            metrics: BTreeSet::new(),
        };
        for line in body.lines() {
            if let Some(about) = line.strip_prefix("# TYPE ") {
                let (name, _) = about.split_once(' ').unwrap();
                assert!(scraped.metrics.insert(name.into()), "twice: {line}");
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').unwrap();
                let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
                assert!(
                    scraped.values.insert(name.into(), value).is_none(),
                    "twice: {line}"
                );
            }
        }
        scraped
    }

    /// Returns the metrics with a value that differs from before.
    fn changed_since(&self, before: &Self) -> BTreeSet<String> {
        let differs = |(line, value): &(&String, &f64)| before.values.get(*line) != Some(*value);
        let changed = self.values.iter().filter(differs).map(|(line, _)| {
            let name = line.split('{').next().unwrap();
            let suffixes = ["_bucket", "_sum", "_count"].iter();
            let mut bare = suffixes.filter_map(|suffix| name.strip_suffix(suffix));
            bare.find(|bare| self.metrics.contains(*bare))
                .unwrap_or(name)
                .to_owned()
        });
        changed.collect()
    }

    #[track_caller]
    fn value(&self, line: &str) -> f64 {
        *self.values.get(line).unwrap_or_else(|| panic!("no {line}"))
    }
}

/// Waits until some value is at least this.
async fn wait_for(server: &Server, line: &str, least: f64) -> Scraped {
    let scraping = async {
        loop {
            let scraped = Scraped::from(server).await;
            if scraped.value(line) >= least {
                return scraped;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(TIMEOUT, scraping).await;
    waited.unwrap_or_else(|_| panic!("{line} does not get to {least}"))
}

/// Subscribes, reads nothing, and waits for the disconnection.
async fn stall(server: &Server) -> Scraped {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    let head = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut stream, head)
        .await
        .unwrap();
    let subscribed = wait_for(server, "leasehold_event_subscribers", 2.0).await;
    let engine = server.engine.clone();
    let flood = tokio::spawn(async move {
        let client = Client::new(Arc::new(engine));
        loop {
            let lease = client.lease("flood").owner("x".repeat(128)).acquire();
            lease.await.unwrap().release().await.unwrap();
            // A store in memory answers at once: yield to other tasks.
            tokio::task::yield_now().await;
        }
    });
    let closed = wait_for(server, "leasehold_stalled_connections_total", 1.0).await;
    flood.abort();
    assert!(
        subscribed.value("leasehold_event_subscribers")
            > closed.value("leasehold_event_subscribers")
    );
    closed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_is_documented_and_changes() {
    let store = Arc::new(FaultyStore::default());
    let mut config = Config::default();
    config.write_timeout = Duration::from_millis(100);
    config.max_connections = 20;
    let mut options = AuditOptions::default();
    options.on_failure = OnFailure::Continue;
    let audit = Audit::open_with("/dev/full".as_ref(), options);
    config.audit = Some(audit.unwrap());
    let engine = Engine::start(store.clone()).await.unwrap();
    let server = Server::start_with(engine, config).await;
    let before = Scraped::from(&server).await;
    let mut changed = BTreeSet::new();

    let fence = server.acquire("/locks/job?nonce=a&ttl=1m").await;
    server
        .post("/locks/job?nonce=b&wait=10ms")
        .await
        .problem(409, "held");
    let held = Scraped::from(&server).await;
    assert_eq!(held.value("leasehold_held_leases"), 1.0);
    let refused = "leasehold_requests_total{operation=\"acquire\",outcome=\"held\"}";
    assert_eq!(held.value(refused), 1.0);
    assert_eq!(held.value("leasehold_wait_duration_seconds_count"), 1.0);

    // A caller waits, and operations queue behind a slow store.
    let _waiting = server
        .begin("POST", "/locks/job?nonce=c&wait=1m", "", b"")
        .await;
    changed.extend(
        wait_for(&server, "leasehold_waiters", 1.0)
            .await
            .changed_since(&before),
    );
    store.waits.store(true, Ordering::SeqCst);
    let _first = server.begin("POST", "/locks/slow?nonce=a", "", b"").await;
    let _second = server.begin("POST", "/locks/slow?nonce=b", "", b"").await;
    changed.extend(
        wait_for(&server, "leasehold_queued_operations", 1.0)
            .await
            .changed_since(&before),
    );
    store.waits.store(false, Ordering::SeqCst);

    // One that expires, one that is broken.
    server.acquire("/locks/brief?nonce=a&ttl=20ms").await;
    server.acquire("/locks/brief?nonce=b&wait=1m").await;
    server
        .post("/locks/brief/break?force=true&now=true&reason=test")
        .await
        .ok();
    server.delete(&format!("/locks/job/{fence}")).await.ok();
    // A conflict: another engine writes what this one has in its cache.
    let other = Engine::start(store.clone()).await.unwrap();
    let lease = Client::new(Arc::new(other)).lease("brief").acquire();
    lease.await.unwrap().release().await.unwrap();
    server.acquire("/locks/brief?nonce=c").await;
    server.get("/locks").await.ok();
    // A failure, and a step of the clock.
    store.fails.store(true, Ordering::SeqCst);
    server
        .get("/locks/job")
        .await
        .problem(503, "store-unavailable");
    store.fails.store(false, Ordering::SeqCst);
    let failed = Scraped::from(&server).await;
    assert_eq!(failed.value("leasehold_store_up"), 0.0);
    changed.extend(failed.changed_since(&before));
    store.late.store(true, Ordering::SeqCst);
    server.acquire("/locks/later?nonce=a").await;

    // More refusals of unknown callers than the audit log records.
    for _ in 0..20 {
        let foreign = "Origin: https://evil.example\r\n";
        let refused = server.send_with("POST", "/locks/a?nonce=n", foreign, b"");
        refused.await.problem(403, "denied");
    }
    let mut missing = Subscriber::new(&server, "", Some("nonsense")).await;
    assert_eq!(missing.next().await.unwrap().event, "missed");
    // Scraped while it is subscribed: the flood may close this stream too, which is not read either.
    let subscribed = wait_for(&server, "leasehold_event_subscribers", 1.0).await;
    changed.extend(subscribed.changed_since(&before));
    changed.extend(stall(&server).await.changed_since(&before));
    // Large answers that their client does not read.
    for number in 0..20 {
        let target = format!("/items/{number}?state=NEW");
        let put = server.send("PUT", &target, &[b'x'; 64 * 1024]);
        put.await.ok();
    }
    let list = "GET /locks?bodies=full HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(20);
    let _unread = server.send_narrow(&list).await;
    let unread = wait_for(&server, "leasehold_answer_bytes", 1.0).await;
    changed.extend(unread.changed_since(&before));
    // More silent connections than allowed, including the reserve for probes. They keep coming, because earlier requests may
    // release their slots late.
    let mut silent = Vec::new();
    let crowd = async {
        loop {
            silent.push(TcpStream::connect(server.address).await.unwrap());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let crowded = async {
        wait_for(&server, "leasehold_refused_connections_total", 1.0).await;
        wait_for(&server, "leasehold_displaced_connections_total", 1.0).await;
    };
    tokio::select! {
        () = crowd => {}
        () = crowded => {}
    }

    let now = Scraped::from(&server).await;
    changed.extend(now.changed_since(&before));
    for how in ["expired", "broken"] {
        let lost = format!("leasehold_lost_leases_total{{how=\"{how}\"}}");
        assert_eq!(now.value(&lost), 1.0, "{lost}");
    }
    assert!(now.value("leasehold_conflicts_total") >= 1.0);
    assert!(now.value("leasehold_clock_steps_total") >= 1.0);
    assert!(now.value("leasehold_clock_offset_seconds") > 3_000.0);
    let always = String::from("leasehold_info");
    let unchanged: Vec<_> = now
        .metrics
        .iter()
        .filter(|name| !changed.contains(*name))
        .collect();
    assert_eq!(unchanged, [&always], "these did not change");
    assert_eq!(documented_metrics(), now.metrics);
}

/// Returns the metrics of the reference page.
fn documented_metrics() -> BTreeSet<String> {
    let page = include_str!("../../../../docs/reference/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned()))
        .collect()
}
