//! Outage tests for every store on a server; each store has a test file that calls them.
//!
//! They cover faults of real servers (killed under load, cut off, clocks that step), hand-offs between engines, and
//! round trips.
#![allow(dead_code, unused_imports, reason = "each test uses a part of it")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::core::{Fence, Mode, Name, Nonce};
use leasehold::engine::Engine;
use leasehold::host::{Host as _, Machine};
use leasehold::{
    AcquireOutcome, AcquireRequest, Client, Error, HolderKey, Leases as _, Result, store,
};
use leasehold_testbed::{Cluster, Proxy, Server};

use crate::records::{create, record};
use crate::workers::{RunningWorkers, WorkerPool};

mod clock;
mod rarely_polled;
mod round_trips;
mod waiters;

pub(crate) use clock::{check_clock_slew, check_clock_steps};
pub(crate) use round_trips::RoundTrips;
pub(crate) use waiters::check_hand_off_between_engines;

/// How long callers may wait for an error while a server is down.
const ERROR_TIMEOUT: Duration = Duration::from_secs(8);
/// How long it may take until work continues after a recovery.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(5);

async fn engine(url: &str) -> Engine {
    Engine::start(store::open(url).await.expect("opens"))
        .await
        .expect("starts")
}

fn name(text: &str) -> Name {
    Name::lock(text).expect("a valid name")
}

/// Acquires a lease with a fresh nonce.
async fn try_acquire(
    engine: &Engine,
    name: &Name,
    ttl: Duration,
    wait: Duration,
) -> Result<AcquireOutcome> {
    let request = AcquireRequest {
        name: name.clone(),
        nonce: Nonce::new(format!("{:032x}", Machine.random())).expect("short"),
        owner: "test".into(),
        ttl,
        mode: Mode::Exclusive,
        fence: None,
        wait,
    };
    engine.acquire(request).await
}

async fn release(engine: &Engine, name: &Name, fence: Fence) {
    let released = engine.release(name, HolderKey::Fence(fence)).await;
    assert!(
        released.expect("the store answers"),
        "`{name}` was not held"
    );
}

/// Tries to acquire a lease while the store is unavailable, and returns the error.
async fn check_acquire_fails(engine: &Engine, text: &str) -> Error {
    let started = Instant::now();
    let answer = try_acquire(engine, &name(text), Duration::from_secs(60), Duration::ZERO).await;
    assert!(started.elapsed() < ERROR_TIMEOUT, "{:?}", started.elapsed());
    let error = answer.expect_err("the store is unavailable");
    assert!(
        matches!(error, Error::Unavailable(_) | Error::Indeterminate(_)),
        "{error:?}"
    );
    error
}

/// Reads while the store is unavailable. A failed read is never indeterminate.
async fn check_read_fails(engine: &Engine) {
    let started = Instant::now();
    let error = engine
        .show(&name("job"))
        .await
        .expect_err("the store is unavailable");
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(started.elapsed() < ERROR_TIMEOUT, "{:?}", started.elapsed());
}

/// Checks that the workers continue without intervention.
async fn check_work_resumes(workers: &mut RunningWorkers) {
    let back = Instant::now();
    workers.acknowledged(8).await;
    assert!(back.elapsed() < RECOVERY_TIMEOUT, "{:?}", back.elapsed());
}

/// Checks that nothing acknowledged is lost, no fence is granted twice, callers get errors in time, and work
/// continues by itself.
pub(crate) async fn check_kill_under_load(scheme: &str) {
    let server = Server::start(scheme).await.expect("installed");
    let store = store::open(&server.url()).await.expect("opens");
    let engine = Arc::new(Engine::start(store.clone()).await.expect("starts"));
    let mut pool = WorkerPool::new(8);
    for _ in 0..3 {
        let mut workers = pool.start(engine.clone()).await;
        workers.acknowledged(100).await;
        server.kill().await;
        tokio::join!(
            check_acquire_fails(&engine, "while it is down"),
            check_read_fails(&engine)
        );
        // All connections have failed by now, so a write is certainly not sent.
        let write = create(&name("later"), record(1, ""));
        let error = store
            .swap(vec![write])
            .await
            .expect_err("the store is unavailable");
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
        server.restart().await;
        check_work_resumes(&mut workers).await;
        pool.end(workers).await;
    }
    pool.check(&*engine).await;
}

/// Checks the same with three nodes that lose their leader and then their majority.
pub(crate) async fn check_leader_kill_under_load(scheme: &str) {
    let cluster = Cluster::start(scheme, 3).await.expect("installed");
    let engine = Arc::new(engine(&cluster.url()).await);
    let mut pool = WorkerPool::new(8);
    for _ in 0..2 {
        let mut workers = pool.start(engine.clone()).await;
        workers.acknowledged(50).await;
        let killed = cluster.kill_leader().await;
        cluster.leader().await;
        check_work_resumes(&mut workers).await;
        killed.restart().await;
        pool.end(workers).await;
    }
    let mut workers = pool.start(engine.clone()).await;
    workers.acknowledged(50).await;
    let killed = [cluster.kill_leader().await, cluster.kill_leader().await];
    tokio::join!(
        check_acquire_fails(&engine, "without a majority"),
        check_read_fails(&engine)
    );
    killed[0].restart().await;
    cluster.leader().await;
    check_work_resumes(&mut workers).await;
    killed[1].restart().await;
    pool.end(workers).await;
    pool.check(&*engine).await;
}

/// Drops all network traffic. Checks that a lease is reported lost before it can be granted again, callers get errors in
/// time, and work continues by itself afterwards.
pub(crate) async fn check_network_cut(scheme: &str, options: &str, ttl: Duration) {
    let server = Server::start(scheme).await.expect("installed");
    let proxy = Proxy::to(server.port()).await;
    let proxied = engine(&(server.url_at(proxy.port()) + options)).await;
    let direct = engine(&(server.url() + options)).await;
    let client = Client::new(Arc::new(proxied.clone()));
    let lease = client.lease("job").ttl(ttl).acquire().await;
    let lease = lease.expect("granted");
    let next = tokio::spawn(async move {
        let next = try_acquire(&direct, &name("job"), ttl, ttl * 4).await;
        (Machine.boot_time(), next.expect("the store answers"))
    });

    proxy.blackhole();
    let cut = Machine.boot_time();
    let lost = async {
        lease.lost().await;
        Machine.boot_time()
    };
    // It was sent on the existing connection, so its outcome is unknown.
    let (lost, error, ()) = tokio::join!(
        lost,
        check_acquire_fails(&proxied, "meanwhile"),
        check_read_fails(&proxied)
    );
    assert!(matches!(error, Error::Indeterminate(_)), "{error:?}");
    assert!(lost < cut + ttl, "cut off at {cut}, lost at {lost}");
    let (taken, next) = next.await.expect("no panic");
    assert!(lost < taken, "lost at {lost}, taken at {taken}");
    assert!(
        matches!(&next, AcquireOutcome::Granted(hold) if hold.grant.fence > lease.fence()),
        "{next:?}"
    );

    proxy.forward();
    let back = Instant::now();
    while let Err(error) = proxied.show(&name("job")).await {
        assert!(back.elapsed() < RECOVERY_TIMEOUT, "{error:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
