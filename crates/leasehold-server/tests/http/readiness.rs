//! `/readyz`: whether a change can be made.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use leasehold::core::Name;
use leasehold::engine::Engine;
use leasehold::store::memory::Memory;
use leasehold::store::{Answer, Facts, Page, Query, Store, Stored, Swapped, Write};
use leasehold::{Error, Result};
use leasehold_server::Config;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::common::{Server, TIMEOUT};

/// A store that counts calls, and can delay or refuse writes.
struct CountingStore {
    memory: Memory,
    calls: AtomicU64,
    writes: watch::Sender<Writes>,
}

#[derive(Clone, Copy, PartialEq)]
enum Writes {
    Work,
    Hang,
    Fail,
}

impl CountingStore {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            memory: Memory::new(),
            calls: AtomicU64::new(0),
            writes: watch::Sender::new(Writes::Work),
        })
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Store for CountingStore {
    fn facts(&self) -> Facts {
        self.memory.facts()
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.memory.load(names).await
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let mut state = self.writes.subscribe();
        let state = *state
            .wait_for(|state| *state != Writes::Hang)
            .await
            .unwrap();
        if state == Writes::Fail {
            return Err(Error::Unavailable("read-only".into()));
        }
        self.memory.swap(writes).await
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.memory.find(query).await
    }
}

async fn start(store: Arc<CountingStore>) -> Server {
    let engine = Engine::start(store).await.unwrap();
    Server::start_with(engine, Config::default()).await
}

async fn wait_for_readiness(server: &Server, status: u16) {
    let asking = async {
        while server.get("/readyz").await.status != status {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(TIMEOUT, asking).await;
    waited.unwrap_or_else(|_| panic!("/readyz does not become {status}"));
}

async fn is_up(server: &Server) -> bool {
    let page = server.get("/metrics").await.body;
    page.lines().any(|line| line == "leasehold_store_up 1")
}

#[tokio::test]
async fn store_that_answers_only_reads_is_not_ready() {
    let store = CountingStore::new();
    let server = start(store.clone()).await;
    server.get("/readyz").await.ok();
    store.writes.send_replace(Writes::Fail);
    wait_for_readiness(&server, 503).await;
    server.get("/locks").await.ok();
    store.writes.send_replace(Writes::Work);
    wait_for_readiness(&server, 200).await;
    let locks = server.get("/locks").await.ok();
    assert_eq!(locks.json["locks"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn concurrent_probes_share_one_check_per_second() {
    let store = CountingStore::new();
    let server = start(store.clone()).await;
    let before = store.calls();
    store.writes.send_replace(Writes::Hang);
    let probes = (0..20).map(|_| server.get("/readyz"));
    let probes = leasehold::join_all(probes);
    let released = async {
        while store.calls() == before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        store.writes.send_replace(Writes::Work);
    };
    let (answers, ()) = tokio::join!(probes, released);
    for answer in answers {
        answer.ok();
    }
    let started = Instant::now();
    for _ in 0..50 {
        server.get("/readyz").await.ok();
    }
    // Each check writes twice: one before the fifty probes, one that was due, and one per second.
    let checks = (store.calls() - before) / 2;
    let most = 3 + started.elapsed().as_secs();
    assert!(checks <= most, "{checks} checks, {most} at most");
}

#[tokio::test]
async fn disconnected_probes_cause_no_further_checks() {
    let store = CountingStore::new();
    let server = start(store.clone()).await;
    let before = store.calls();
    store.writes.send_replace(Writes::Hang);
    let first = server.begin("GET", "/readyz", "", b"").await;
    let begun = async {
        while store.calls() == before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, begun).await.expect("a check");
    drop(first);
    for _ in 0..20 {
        drop(server.begin("GET", "/readyz", "", b"").await);
        server.get("/healthz").await.ok();
    }
    assert_eq!(store.calls() - before, 1);
    store.writes.send_replace(Writes::Work);
    server.get("/readyz").await.ok();
}

#[tokio::test]
async fn failure_of_another_call_invalidates_the_cached_result() {
    let store = CountingStore::new();
    let server = start(store.clone()).await;
    server.get("/readyz").await.ok();
    store.writes.send_replace(Writes::Fail);
    server.engine.probe().await.unwrap_err();
    // The cached result is less than a second old.
    server
        .get("/readyz")
        .await
        .problem(503, "store-unavailable");
    assert!(!is_up(&server).await);
}

/// Starts a service on a SQLite file, and checks that it notices the loss of the file.
async fn lose(path: &Path, lose: impl FnOnce()) -> Server {
    let server = Server::start_on(&format!("sqlite:{}", path.display())).await;
    let fence = server.acquire("/locks/a?nonce=n").await;
    server.get("/readyz").await.ok();
    assert!(is_up(&server).await);
    lose();
    wait_for_readiness(&server, 503).await;
    assert!(!is_up(&server).await);
    for refused in [
        server.post(&format!("/locks/a/{fence}/heartbeat")).await,
        server.get("/locks/a").await,
        server.get("/locks").await,
    ] {
        let refused = refused.problem(503, "store-unavailable");
        assert!(refused.text("detail").contains("deleted"), "{refused:?}");
    }
    server.get("/healthz").await.ok();
    server
}

#[tokio::test]
async fn deleted_database_is_not_ready() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("leases.db");
    lose(&path, || std::fs::remove_file(&path).unwrap()).await;
}

#[tokio::test]
async fn replaced_database_is_not_ready_until_it_is_restored() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("leases.db");
    let (beside, other) = (folder.path().join("aside"), folder.path().join("other"));
    let server = lose(&path, || {
        std::fs::write(&other, "").unwrap();
        std::fs::rename(&path, &beside).unwrap();
        std::fs::rename(&other, &path).unwrap();
    })
    .await;
    std::fs::rename(&beside, &path).unwrap();
    wait_for_readiness(&server, 200).await;
    server.post("/locks/b?nonce=n").await.ok();
    let up = async {
        while !is_up(&server).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, up).await.expect("up again");
}

#[tokio::test]
async fn invalid_request_is_not_a_failure_of_the_store() {
    let server = Server::start_on_sqlite().await;
    server
        .get("/locks?state=NEW&cursor=nonsense")
        .await
        .problem(400, "bad-request");
    assert!(is_up(&server).await);
}
