//! etcd that dies: nothing acknowledged is lost, and work goes on by itself.
#![cfg(feature = "etcd")]

#[path = "records/mod.rs"]
mod records;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::Error;
use leasehold::core::Name;
use leasehold::store::{self, Store, Swapped};
use leasehold_testbed::{Cluster, Proxy, Server};
use records::*;
use tokio::time::Instant;

/// Counts a record up until told to stop; how far it surely came.
async fn count_up(store: Arc<dyn Store>, stop: Arc<AtomicBool>) -> u64 {
    let name = Name::lock("counter").unwrap();
    let mut sure = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(loaded) = store.load(std::slice::from_ref(&name)).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let (sent, write) = match &loaded.value[0] {
            Some(current) => {
                let count = current.record.fence.get();
                assert!(
                    count >= sure,
                    "{count} < {sure}: what was acknowledged is gone"
                );
                (count + 1, replace(&name, current, record(count + 1, "")))
            }
            None => {
                assert_eq!(sure, 0, "the record is gone");
                (1, create(&name, record(1, "")))
            }
        };
        match store.swap(vec![write]).await {
            Ok(answer) if matches!(answer.value[0], Swapped::Written { .. }) => sure = sent,
            Ok(answer) => assert!(matches!(answer.value[0], Swapped::Failed(_)), "{answer:?}"),
            Err(error) => assert!(is_passing(&error), "{error:?}"),
        }
    }
    sure
}

fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Unavailable(_) | Error::Indeterminate(_))
}

/// Loads until it answers; how long that took.
async fn until_it_answers(store: &dyn Store) -> Duration {
    let started = Instant::now();
    while let Err(error) = store.load(&[]).await {
        assert!(is_passing(&error), "{error:?}");
        assert!(started.elapsed() < Duration::from_secs(30), "{error:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    started.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_loses_nothing_and_is_used_again() {
    let server = Server::start("etcd").await.unwrap();
    let store = store::open(&server.url()).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let counting = tokio::spawn(count_up(store.clone(), stop.clone()));
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.kill().await;
    let down = Instant::now();
    let name = Name::lock("while it is down").unwrap();
    let error = store.swap(vec![create(&name, record(1, ""))]).await;
    assert!(is_passing(&error.unwrap_err()));
    assert!(down.elapsed() < Duration::from_secs(5), "in bounded time");
    server.restart().await;
    let took = until_it_answers(&*store).await;
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.store(true, Ordering::Relaxed);
    assert!(counting.await.unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_has_everything_that_was_acknowledged() {
    let cluster = Cluster::start("etcd", 3).await.unwrap();
    let store = store::open(&cluster.url()).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let counting = tokio::spawn(count_up(store.clone(), stop.clone()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let killed = cluster.kill_leader().await;
    cluster.leader().await;
    let took = until_it_answers(&*store).await;
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    killed.restart().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.store(true, Ordering::Relaxed);
    assert!(counting.await.unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_falls_silent_is_given_up_in_time() {
    let server = Server::start("etcd").await.unwrap();
    let proxy = Proxy::to(server.port()).await;
    let store = store::open(&server.url_at(proxy.port())).await.unwrap();
    proxy.blackhole();
    let asked = Instant::now();
    let name = Name::lock("one").unwrap();
    let error = store.swap(vec![create(&name, record(1, ""))]).await;
    assert!(is_passing(&error.unwrap_err()));
    assert!(asked.elapsed() < Duration::from_secs(6));
}
