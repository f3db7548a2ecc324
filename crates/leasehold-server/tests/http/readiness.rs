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

use crate::common::{PATIENCE, Server};

/// A store that counts calls, and holds writes back or refuses them.
struct Guarded {
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

impl Guarded {
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
impl Store for Guarded {
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

async fn start(store: Arc<Guarded>) -> Server {
    let engine = Engine::start(store).await.unwrap();
    Server::start_with(engine, Config::default()).await
}

async fn until_ready_is(server: &Server, status: u16) {
    let asking = async {
        while server.get("/readyz").await.status != status {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let asked = tokio::time::timeout(PATIENCE, asking).await;
    asked.unwrap_or_else(|_| panic!("/readyz does not become {status}"));
}

async fn is_up(server: &Server) -> bool {
    let page = server.get("/metrics").await.body;
    page.lines().any(|line| line == "leasehold_store_up 1")
}

#[tokio::test]
async fn a_store_that_answers_reads_only_is_not_ready() {
    let store = Guarded::new();
    let server = start(store.clone()).await;
    server.get("/readyz").await.ok();
    store.writes.send_replace(Writes::Fail);
    until_ready_is(&server, 503).await;
    server.get("/locks").await.ok();
    store.writes.send_replace(Writes::Work);
    until_ready_is(&server, 200).await;
    let locks = server.get("/locks").await.ok();
    assert_eq!(locks.json["locks"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn many_who_ask_cost_one_check_a_second() {
    let store = Guarded::new();
    let server = start(store.clone()).await;
    let before = store.calls();
    store.writes.send_replace(Writes::Hang);
    let asked = (0..20).map(|_| server.get("/readyz"));
    let asked = leasehold::side_by_side(asked);
    let released = async {
        while store.calls() == before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        store.writes.send_replace(Writes::Work);
    };
    let (answers, ()) = tokio::join!(asked, released);
    for answer in answers {
        answer.ok();
    }
    let started = Instant::now();
    for _ in 0..50 {
        server.get("/readyz").await.ok();
    }
    // Each check writes twice; one before those fifty, one that was due by then, and one a second.
    let checks = (store.calls() - before) / 2;
    let most = 3 + started.elapsed().as_secs();
    assert!(checks <= most, "{checks} checks, {most} at most");
}

#[tokio::test]
async fn those_who_leave_do_not_cause_more_checks() {
    let store = Guarded::new();
    let server = start(store.clone()).await;
    let before = store.calls();
    store.writes.send_replace(Writes::Hang);
    let first = server.begin("GET", "/readyz", "", b"").await;
    let begun = async {
        while store.calls() == before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, begun)
        .await
        .expect("a check");
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
async fn a_failure_that_another_call_meets_ends_a_cached_result() {
    let store = Guarded::new();
    let server = start(store.clone()).await;
    server.get("/readyz").await.ok();
    store.writes.send_replace(Writes::Fail);
    server.engine.probe().await.unwrap_err();
    // Nobody waits for the second to pass.
    server
        .get("/readyz")
        .await
        .problem(503, "store-unavailable");
    assert!(!is_up(&server).await);
}

/// Whether a service on a SQLite file notices what happens to the file.
async fn lose(path: &Path, lose: impl FnOnce()) -> Server {
    let server = Server::start_on(&format!("sqlite:{}", path.display())).await;
    let fence = server.acquire("/locks/a?nonce=n").await;
    server.get("/readyz").await.ok();
    assert!(is_up(&server).await);
    lose();
    until_ready_is(&server, 503).await;
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
async fn a_database_that_was_deleted_is_not_ready() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("leases.db");
    lose(&path, || std::fs::remove_file(&path).unwrap()).await;
}

#[tokio::test]
async fn a_database_that_was_replaced_is_not_ready_until_it_is_back() {
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
    until_ready_is(&server, 200).await;
    server.post("/locks/b?nonce=n").await.ok();
    let up = async {
        while !is_up(&server).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, up).await.expect("up again");
}

#[tokio::test]
async fn what_a_caller_got_wrong_is_no_failure_of_the_store() {
    let server = Server::start_on_sqlite().await;
    server
        .get("/locks?state=NEW&cursor=nonsense")
        .await
        .problem(400, "bad-request");
    assert!(is_up(&server).await);
}
