//! What every store on a server stands: each store has a test file that calls these.
//!
//! Faults on real servers: killed under load, cut off, with clocks that step. And what a fleet pays: hand-overs from one
//! engine to another, round trips.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test uses its own part of it"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::core::{Fence, Mode, Name, Nonce};
use leasehold::engine::Engine;
use leasehold::host::{Host as _, Machine};
use leasehold::{AcquireRequest, Acquired, Client, Error, Holding, Leases as _, Result, store};
use leasehold_testbed::{Cluster, Proxy, Server};

use crate::records::{create, record};
use crate::witness::{Crew, Shift};

mod clock;
mod patient;
mod trips;
mod waiters;

pub(crate) use clock::{its_clock_is_slewed, its_clock_steps};
pub(crate) use trips::Trips;
pub(crate) use waiters::waiters_elsewhere;

/// Within which callers are told that a server is away.
const TOLD: Duration = Duration::from_secs(8);
/// Within which work goes on once it is back.
const RESUMED: Duration = Duration::from_secs(5);

async fn engine(url: &str) -> Engine {
    Engine::start(store::open(url).await.expect("opens"))
        .await
        .expect("starts")
}

fn name(text: &str) -> Name {
    Name::lock(text).expect("a good name")
}

/// Asks for a lease by a nonce of its own.
async fn ask(engine: &Engine, name: &Name, ttl: Duration, wait: Duration) -> Result<Acquired> {
    let request = AcquireRequest {
        name: name.clone(),
        nonce: Nonce::new(format!("{:032x}", Machine.random())).expect("short"),
        owner: "somebody".into(),
        ttl,
        mode: Mode::Exclusive,
        fence: None,
        wait,
    };
    engine.acquire(request).await
}

async fn release(engine: &Engine, name: &Name, fence: Fence) {
    let released = engine.release(name, Holding::Fence(fence)).await;
    assert!(
        released.expect("the store answers"),
        "`{name}` was not held"
    );
}

/// Asks a store that is away for a lease; what the caller is told in the end.
async fn ask_in_vain(engine: &Engine, text: &str) -> Error {
    let asked = Instant::now();
    let answer = ask(engine, &name(text), Duration::from_secs(60), Duration::ZERO).await;
    assert!(asked.elapsed() < TOLD, "{:?}", asked.elapsed());
    let error = answer.expect_err("it is away");
    assert!(
        matches!(error, Error::Unavailable(_) | Error::Indeterminate(_)),
        "{error:?}"
    );
    error
}

/// Asks a store that is away what it knows. Reading has done nothing, whatever became of it.
async fn look_in_vain(engine: &Engine) {
    let asked = Instant::now();
    let error = engine.show(&name("job")).await.expect_err("it is away");
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(asked.elapsed() < TOLD, "{:?}", asked.elapsed());
}

/// The workers go on, by themselves.
async fn resumes(shift: &mut Shift) {
    let back = Instant::now();
    shift.acknowledged(8).await;
    assert!(back.elapsed() < RESUMED, "{:?}", back.elapsed());
}

/// Nothing acknowledged is lost, no fence comes twice, callers are answered in time, and work goes on by itself.
pub(crate) async fn killed_under_load(scheme: &str) {
    let server = Server::start(scheme).await.expect("installed");
    let store = store::open(&server.url()).await.expect("opens");
    let engine = Arc::new(Engine::start(store.clone()).await.expect("starts"));
    let mut crew = Crew::new(8);
    for _ in 0..3 {
        let mut shift = crew.start(engine.clone()).await;
        shift.acknowledged(100).await;
        server.kill().await;
        tokio::join!(
            ask_in_vain(&engine, "while it is down"),
            look_in_vain(&engine)
        );
        // By now every connection has turned out to be dead: what nobody takes was not sent.
        let write = create(&name("later"), record(1, ""));
        let told = store.swap(vec![write]).await.expect_err("it is away");
        assert!(matches!(told, Error::Unavailable(_)), "{told:?}");
        server.restart().await;
        resumes(&mut shift).await;
        crew.end(shift).await;
    }
    crew.check(&*engine).await;
}

/// The same when three nodes lose their leader and get it back, and when they lose their majority.
pub(crate) async fn leader_killed_under_load(scheme: &str) {
    let cluster = Cluster::start(scheme, 3).await.expect("installed");
    let engine = Arc::new(engine(&cluster.url()).await);
    let mut crew = Crew::new(8);
    for _ in 0..2 {
        let mut shift = crew.start(engine.clone()).await;
        shift.acknowledged(50).await;
        let killed = cluster.kill_leader().await;
        cluster.leader().await;
        resumes(&mut shift).await;
        killed.restart().await;
        crew.end(shift).await;
    }
    let mut shift = crew.start(engine.clone()).await;
    shift.acknowledged(50).await;
    let killed = [cluster.kill_leader().await, cluster.kill_leader().await];
    tokio::join!(
        ask_in_vain(&engine, "without a majority"),
        look_in_vain(&engine)
    );
    killed[0].restart().await;
    cluster.leader().await;
    resumes(&mut shift).await;
    killed[1].restart().await;
    crew.end(shift).await;
    crew.check(&*engine).await;
}

/// A network that swallows everything: a lease is reported as lost before anybody else can have it, callers are told in
/// time, and work goes on by itself when it is over.
pub(crate) async fn cut_off(scheme: &str, options: &str, ttl: Duration) {
    let server = Server::start(scheme).await.expect("installed");
    let proxy = Proxy::to(server.port()).await;
    let behind = engine(&(server.url_at(proxy.port()) + options)).await;
    let direct = engine(&(server.url() + options)).await;
    let client = Client::new(Arc::new(behind.clone()));
    let lease = client.lease("job").ttl(ttl).acquire().await;
    let lease = lease.expect("granted");
    let next = tokio::spawn(async move {
        let next = ask(&direct, &name("job"), ttl, ttl * 4).await;
        (Machine.boot_time(), next.expect("the store answers"))
    });

    proxy.blackhole();
    let cut = Machine.boot_time();
    let lost = async {
        lease.lost().await;
        Machine.boot_time()
    };
    // It was sent on the connection that there is, so nobody can tell.
    let (lost, told, ()) = tokio::join!(
        lost,
        ask_in_vain(&behind, "meanwhile"),
        look_in_vain(&behind)
    );
    assert!(matches!(told, Error::Indeterminate(_)), "{told:?}");
    assert!(lost < cut + ttl, "cut off at {cut}, lost at {lost}");
    let (taken, next) = next.await.expect("no panic");
    assert!(lost < taken, "lost at {lost}, taken at {taken}");
    assert!(
        matches!(&next, Acquired::Granted(hold) if hold.grant.fence > lease.fence()),
        "{next:?}"
    );

    proxy.forward();
    let back = Instant::now();
    while let Err(error) = behind.show(&name("job")).await {
        assert!(back.elapsed() < RESUMED, "{error:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
