//! What every store on a server stands: each store has a test file that calls these.
//!
//! Faults on real servers: killed under load, cut off, with clocks that step.
#![allow(dead_code, reason = "each test uses its own part of it")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::engine::Engine;
use leasehold::host::{Host as _, Machine};
use leasehold::{Client, Error, store};
use leasehold_testbed::{Cluster, Proxy, Server};

use crate::witness::Crew;

async fn engine(url: &str) -> Engine {
    Engine::start(store::open(url).await.expect("opens"))
        .await
        .expect("starts")
}

/// Nothing acknowledged is lost, no fence comes twice, callers are answered in time, and work goes on by itself.
pub(crate) async fn killed_under_load(scheme: &str) {
    let server = Server::start(scheme).await.expect("installed");
    let engine = Arc::new(engine(&server.url()).await);
    let mut crew = Crew::new(8);
    for _ in 0..5 {
        let mut shift = crew.start(engine.clone()).await;
        shift.acknowledged(100).await;
        server.kill().await;
        let asked = Instant::now();
        let answer = Client::new(engine.clone())
            .lease("while it is down")
            .acquire()
            .await
            .map(drop);
        assert!(
            matches!(answer, Err(Error::Unavailable(_) | Error::Indeterminate(_))),
            "{answer:?}"
        );
        assert!(
            asked.elapsed() < Duration::from_secs(10),
            "{:?}",
            asked.elapsed()
        );
        server.restart().await;
        let back = Instant::now();
        shift.acknowledged(8).await;
        assert!(
            back.elapsed() < Duration::from_secs(5),
            "{:?}",
            back.elapsed()
        );
        crew.end(shift).await;
    }
    crew.check(&*engine).await;
}

/// The same when three nodes lose their leader, and get it back.
pub(crate) async fn leader_killed_under_load(scheme: &str) {
    let cluster = Cluster::start(scheme, 3).await.expect("installed");
    let engine = Arc::new(engine(&cluster.url()).await);
    let mut crew = Crew::new(8);
    for _ in 0..2 {
        let mut shift = crew.start(engine.clone()).await;
        shift.acknowledged(50).await;
        let killed = cluster.kill_leader().await;
        cluster.leader().await;
        let elected = Instant::now();
        shift.acknowledged(8).await;
        assert!(
            elected.elapsed() < Duration::from_secs(5),
            "{:?}",
            elected.elapsed()
        );
        killed.restart().await;
        crew.end(shift).await;
    }
    crew.check(&*engine).await;
}

/// A store that falls silent is given up in time, and says whether anything was sent.
pub(crate) async fn silent(url: impl Fn(&Server, u16) -> String, scheme: &str) {
    let server = Server::start(scheme).await.expect("installed");
    let proxy = Proxy::to(server.port()).await;
    let engine = engine(&url(&server, proxy.port())).await;
    proxy.blackhole();
    let asked = Instant::now();
    let answer = Client::new(Arc::new(engine)).lease("job").acquire().await;
    assert!(
        matches!(answer, Err(Error::Unavailable(_) | Error::Indeterminate(_))),
        "{:?}",
        answer.map(drop)
    );
    assert!(
        asked.elapsed() < Duration::from_secs(8),
        "{:?}",
        asked.elapsed()
    );
}

/// A network that swallows everything: a lease is reported as lost before anybody else can have it.
pub(crate) async fn cut_off(scheme: &str) {
    let server = Server::start(scheme).await.expect("installed");
    let proxy = Proxy::to(server.port()).await;
    let behind = leasehold::connect(&server.url_at(proxy.port()))
        .await
        .expect("connects");
    let direct = leasehold::connect(&server.url()).await.expect("connects");
    let ttl = Duration::from_secs(3);
    let lease = behind
        .lease("job")
        .ttl(ttl)
        .acquire()
        .await
        .expect("granted");
    proxy.blackhole();
    let next = tokio::spawn(async move {
        let next = direct
            .lease("job")
            .ttl(ttl)
            .wait(ttl * 4)
            .acquire()
            .await
            .expect("it expires");
        (Machine.boot_time(), next)
    });
    lease.lost().await;
    let lost = Machine.boot_time();
    let (taken, next) = next.await.expect("no panic");
    assert!(lost < taken, "lost at {lost}, taken at {taken}");
    assert!(next.fence() > lease.fence());
}

/// The server's clock steps by five seconds either way: among those who were connected before, no holder that believes is
/// overlapped.
pub(crate) async fn its_clock_steps(scheme: &str) {
    for step in [5, -5] {
        let server = Server::builder(scheme)
            .own_clock()
            .start()
            .await
            .expect("installed");
        let holder = leasehold::connect(&server.url()).await.expect("connects");
        let contender = leasehold::connect(&server.url()).await.expect("connects");
        let ttl = Duration::from_secs(4);
        let lease = holder
            .lease("job")
            .ttl(ttl)
            .acquire()
            .await
            .expect("granted");
        let fence = lease.fence();
        // The contender has seen the clock from before the step.
        let refused = contender.lease("job").ttl(ttl).acquire().await;
        assert!(
            matches!(refused, Err(Error::Held(_))),
            "step {step}: {:?}",
            refused.map(drop)
        );
        server.step_clock(step);
        let ended = Machine.boot_time() + ttl * 2;
        while Machine.boot_time() < ended {
            let refused = contender.lease("job").ttl(ttl).acquire().await;
            assert!(
                refused.is_err() || lease.is_lost(),
                "step {step}: taken while its holder believed"
            );
            if refused.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        drop((lease, fence));
    }
}

/// A waiter is served by a release through another engine, by hints or by polling.
pub(crate) async fn waiters_elsewhere(scheme: &str) {
    let server = Server::start(scheme).await.expect("installed");
    for options in ["", "changes=off"] {
        let url = server.url();
        let joint = if url.contains('?') { "&" } else { "?" };
        let url = if options.is_empty() {
            url
        } else {
            format!("{url}{joint}{options}")
        };
        let here = leasehold::connect(&url).await.expect("connects");
        let there = leasehold::connect(&url).await.expect("connects");
        let mut times = Vec::new();
        for _ in 0..20 {
            let lease = here.lease("job").acquire().await.expect("granted");
            let waiter = there.lease("job").wait(Duration::from_secs(30));
            let waiter = tokio::spawn(async move {
                let lease = waiter.acquire().await.expect("granted");
                let granted = Instant::now();
                lease.release().await.expect("released");
                granted
            });
            // Long enough to be in line; if it is not, it is served all the same.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let released = Instant::now();
            lease.release().await.expect("released");
            times.push(
                waiter
                    .await
                    .expect("no panic")
                    .saturating_duration_since(released),
            );
        }
        times.sort();
        println!(
            "{scheme} {options}: median {:?}, slowest {:?}",
            times[10], times[19]
        );
    }
}
