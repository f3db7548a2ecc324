//! The wait queue over HTTP: hand-off, callers that disconnect, shutdown, and slow connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Server, TIMEOUT, read_answer};
use async_trait::async_trait;
use leasehold::Result;
use leasehold::core::{Fence, HolderRef, Name, Operation, Release};
use leasehold::engine::{self, Engine, WaitLimit};
use leasehold::host::Machine;
use leasehold::store::memory::Memory;
use leasehold::store::{
    self, Answer as StoreAnswer, Facts, Page, Query, Store, Stored, Swapped, Write,
};
use leasehold_server::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test]
async fn release_hands_off_in_arrival_order() {
    let server = Server::start_on_sqlite().await;
    let mut fence = server.acquire("/locks/job?nonce=first&ttl=1h").await;
    let mut waiting = Vec::new();
    for number in 0..5 {
        let target = format!("/locks/job?nonce=n{number}&owner=o{number}&wait=5m&ttl=1h");
        waiting.push(server.begin("POST", &target, "", b"").await);
        server.wait_for_waiters("job", number + 1).await;
    }
    for (number, stream) in waiting.into_iter().enumerate() {
        server.delete(&format!("/locks/job/{fence}")).await.ok();
        let granted = read_answer(stream).await.ok();
        assert_eq!(granted.fence(), fence + 1);
        assert_eq!(granted.json["last"]["how"], "released");
        fence = granted.fence();
        let shown = server.get("/locks/job").await.ok();
        assert_eq!(shown.json["holders"][0]["owner"], format!("o{number}"));
    }
}

#[tokio::test]
async fn timed_out_wait_is_refused_as_held() {
    let server = Server::start().await;
    server
        .acquire("/locks/job?nonce=first&ttl=1h&owner=first")
        .await;
    let started = Instant::now();
    let refused = server.post("/locks/job?nonce=second&wait=100ms").await;
    assert_eq!(refused.problem(409, "held").text("owner"), "first");
    assert!(started.elapsed() >= Duration::from_millis(100));
}

#[tokio::test]
async fn valid_for_counts_from_arrival_and_includes_the_wait() {
    let server = Server::start().await;
    let fence = server.acquire("/locks/job?nonce=first&ttl=1h").await;
    let sent = Instant::now();
    let waiting = server
        .begin("POST", "/locks/job?nonce=second&ttl=10s&wait=5m", "", b"")
        .await;
    server.wait_for_waiters("job", 1).await;
    let arrived = Instant::now();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let waited_at_least = arrived.elapsed();
    server.delete(&format!("/locks/job/{fence}")).await.ok();
    let granted = read_answer(waiting).await.ok();
    let waited_at_most = sent.elapsed();
    let valid_for = Duration::from_millis(granted.json["validFor"].as_u64().unwrap());
    let (ttl, margin) = (Duration::from_secs(10), Duration::from_millis(15));
    assert!(valid_for >= waited_at_least + ttl - margin, "{valid_for:?}");
    assert!(valid_for <= waited_at_most + ttl, "{valid_for:?}");
}

#[tokio::test]
async fn disconnected_waiter_leaves_the_queue() {
    let server = Server::start_on_sqlite().await;
    let fence = server.acquire("/locks/job?nonce=first&ttl=1h").await;
    for body in [vec![], vec![b'x'; 60 * 1024]] {
        let target = "/locks/job?nonce=gone&wait=5m";
        let waiting = server.begin("POST", target, "", &body).await;
        server.wait_for_waiters("job", 1).await;
        drop(waiting);
        server.wait_for_waiters("job", 0).await;
    }
    server.delete(&format!("/locks/job/{fence}")).await.ok();
    let next = server.post("/locks/job?nonce=next").await.ok();
    assert_eq!(next.fence(), fence + 1, "no grant in between");
}

#[tokio::test]
async fn waiter_that_disconnects_before_its_answer_is_skipped() {
    let engine = Engine::start(Arc::new(Hanging::default())).await.unwrap();
    let server = Server::start_with(engine, Config::default()).await;
    let fence = server.acquire("/locks/job?nonce=first&ttl=1h").await;
    let target = "/locks/job?nonce=gone&ttl=1h&wait=5m";
    let waiting = server.begin("POST", target, "", b"").await;
    server.wait_for_waiters("job", 1).await;
    // The service shares this thread, and this store answers at once: the waiter is granted, and disconnects before its answer.
    let (job, fence) = (Name::lock("job").unwrap(), Fence::new(fence).unwrap());
    let release = Operation::Release(Release {
        holder: HolderRef::Fence(fence),
        principal: None,
    });
    let released = server.engine.perform(&job, release, WaitLimit::NONE).await;
    assert_eq!(server.engine.waiters(&job), 0);
    drop(waiting);
    released.unwrap().take();
    server.post("/locks/job?nonce=next&wait=10s").await.ok();
}

#[tokio::test]
async fn shutdown_answers_waiters() {
    let mut server = Server::start_on_sqlite().await;
    server.acquire("/locks/job?nonce=first&ttl=1h").await;
    let mut waiting = Vec::new();
    for number in 0..3 {
        let target = format!("/locks/job?nonce=n{number}&wait=5m");
        waiting.push(server.begin("POST", &target, "", b"").await);
    }
    server.wait_for_waiters("job", 3).await;
    let idle = TcpStream::connect(server.address).await.unwrap();
    server.stop().await;
    for stream in waiting {
        let refused = read_answer(stream).await.problem(503, "store-unavailable");
        assert!(refused.header("retry-after").is_some());
    }
    drop(idle);
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn connections_are_bounded_and_more_wait_for_room() {
    let mut config = Config::default();
    config.max_connections = 2;
    config.max_connections_per_address = Some(2);
    let engine = Engine::start(store::open("memory:").await.unwrap());
    let server = Server::start_with(engine.await.unwrap(), config).await;
    let ask = b"GET /locks HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(ask).await.unwrap();
        stream.read_exact(&mut [0; 12]).await.unwrap();
        kept.push(stream);
    }
    let mut third = TcpStream::connect(server.address).await.unwrap();
    third.write_all(ask).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(100), third.read_u8()).await;
    assert!(early.is_err(), "there is no room yet");
    kept.pop();
    let late = tokio::time::timeout(TIMEOUT, third.read_u8()).await;
    assert_eq!(late.unwrap().unwrap(), b'H');
}

#[tokio::test]
async fn slow_heads_and_bodies_end_the_connection() {
    let mut config = Config::default();
    config.head_timeout = Duration::from_millis(100);
    config.body_timeout = Duration::from_millis(100);
    let engine = Engine::start(store::open("memory:").await.unwrap());
    let server = Server::start_with(engine.await.unwrap(), config).await;
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET /healthz HT").await.unwrap();
    let mut rest = Vec::new();
    let cut = tokio::time::timeout(TIMEOUT, slow.read_to_end(&mut rest)).await;
    assert!(cut.is_ok(), "disconnected");
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    let head = b"POST /locks/a/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf";
    slow.write_all(head).await.unwrap();
    read_answer(slow).await.problem(408, "request-timeout");
    server.get("/healthz").await.ok();
}

/// A store that can stop answering.
#[derive(Default)]
pub(crate) struct Hanging {
    memory: Memory,
    pub(crate) hangs: AtomicBool,
}

impl Hanging {
    async fn hang_if_set(&self) {
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending().await
        }
    }
}

#[async_trait]
impl Store for Hanging {
    fn facts(&self) -> Facts {
        self.memory.facts()
    }

    async fn load(&self, names: &[Name]) -> Result<StoreAnswer<Vec<Option<Stored>>>> {
        self.hang_if_set().await;
        self.memory.load(names).await
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<StoreAnswer<Vec<Swapped>>> {
        self.hang_if_set().await;
        self.memory.swap(writes).await
    }

    async fn find(&self, query: &Query) -> Result<StoreAnswer<Page>> {
        self.hang_if_set().await;
        self.memory.find(query).await
    }
}

#[tokio::test]
async fn hanging_store_is_reported_in_bounded_time() {
    let store = Arc::new(Hanging::default());
    let mut limits = engine::Config::default();
    limits.timeout = Duration::from_millis(200);
    let engine = Engine::start_with(store.clone(), Machine::shared(), limits).await;
    let mut config = Config::default();
    config.ready_timeout = Duration::from_millis(200);
    let mut server = Server::start_with(engine.unwrap(), config).await;
    let fence = server.acquire("/locks/job?nonce=n").await;
    store.hangs.store(true, Ordering::SeqCst);
    server.get("/healthz").await.ok();
    server
        .get("/readyz")
        .await
        .problem(503, "store-unavailable");
    server.get("/locks").await.problem(503, "store-unavailable");
    server
        .get("/locks/job")
        .await
        .problem(503, "store-unavailable");
    let heartbeat = server.post(&format!("/locks/job/{fence}/heartbeat")).await;
    assert_eq!(heartbeat.status, 503, "{heartbeat:?}");
    server.stop().await;
}
