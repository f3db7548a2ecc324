//! A PostgreSQL server that is killed, hangs or steps its clock, and the cost of a call.
#![cfg(feature = "postgres")]

mod postgres_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::Error;
use leasehold::core::{Mode, Outcome, Time};
use leasehold::engine::Engine;
use leasehold::store::{Store, Swapped};
use leasehold_testbed::{Proxy, Server};
use postgres_support::*;
use tokio::time::Instant;

/// Increments a counter until stopped. Returns the last acknowledged value, and the last one that was sent.
async fn count_up(store: Arc<dyn Store>, stop: Arc<AtomicBool>) -> (u64, u64) {
    let name = name("counter");
    let (mut acknowledged, mut sent) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let Ok(loaded) = store.load(std::slice::from_ref(&name)).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let write = match &loaded.value[0] {
            Some(current) => {
                let count = current.record.fence.get();
                assert!(
                    count >= acknowledged,
                    "{count} < {acknowledged}: an acknowledged write is lost"
                );
                sent = count + 1;
                replace(&name, current, record(sent, ""))
            }
            None => {
                assert_eq!(acknowledged, 0, "the record is gone");
                sent = 1;
                create(&name, record(1, ""))
            }
        };
        match store.swap(vec![write]).await {
            Ok(answer) if answer.value[0] == WRITTEN => acknowledged = sent,
            Ok(answer) => assert!(matches!(answer.value[0], Swapped::Failed(_))),
            Err(error) => assert!(
                matches!(error, Error::Unavailable(_) | Error::Indeterminate(_)),
                "{error:?}"
            ),
        }
    }
    (acknowledged, sent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_loses_nothing_and_is_used_again_at_once() {
    let server = Server::start("postgres").await.unwrap();
    let store = Fixture::on(server.port()).open().await;
    let stop = Arc::new(AtomicBool::new(false));
    let counting = tokio::spawn(count_up(store.clone(), stop.clone()));
    let engine = Engine::start(store.clone()).await.unwrap();
    for round in 0..3 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.kill().await;
        let down = Instant::now();
        let name = name(&format!("while it is down {round}"));
        let error = acquire(&engine, &name, "n", Duration::ZERO)
            .await
            .unwrap_err();
        assert!(
            matches!(error, Error::Unavailable(_) | Error::Indeterminate(_)),
            "{error:?}"
        );
        assert!(
            down.elapsed() < Duration::from_secs(8),
            "{:?}",
            down.elapsed()
        );
        server.restart().await;
        let back = Instant::now();
        grant(&engine, &name, "m", Duration::ZERO).await;
        assert!(
            back.elapsed() < Duration::from_secs(5),
            "{:?}",
            back.elapsed()
        );
    }
    stop.store(true, Ordering::Relaxed);
    let (acknowledged, sent) = counting.await.unwrap();
    let last = load_one(&*store, &name("counter")).await.unwrap();
    assert!((acknowledged..=sent).contains(&last.record.fence.get()));
    assert!(acknowledged > 3, "it counted");
}

#[tokio::test]
async fn unresponsive_network_is_an_error_in_time() {
    let server = leasehold_testbed::shared("postgres").await.unwrap();
    let proxy = Proxy::to(server.port()).await;
    let store = Fixture::on(proxy.port()).open().await;
    let name = name("a");
    swap_one(&*store, create(&name, record(1, ""))).await;
    let current = load_one(&*store, &name).await.unwrap();
    proxy.blackhole();
    let started = Instant::now();
    let write = replace(&name, &current, record(2, ""));
    // The swap uses the only connection, and the load cannot open another one.
    let (swapped, loaded) = tokio::join!(store.swap(vec![write]), store.load(&[]));
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(matches!(loaded, Err(Error::Unavailable(_))), "{loaded:?}");
    // It was sent, so its outcome is unknown.
    assert!(
        matches!(swapped, Err(Error::Indeterminate(_))),
        "{swapped:?}"
    );
    proxy.forward();
    let back = Instant::now();
    store.load(&[]).await.unwrap();
    assert!(back.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn each_call_is_one_round_trip() {
    let server = leasehold_testbed::shared("postgres").await.unwrap();
    let proxy = Proxy::to(server.port()).await;
    let store = Fixture::on(proxy.port()).open_with("&changes=off").await;
    // The server may answer the first part of a long request before the second part is sent.
    proxy.delay(Duration::from_millis(20));
    let names: Vec<_> = (0..64).map(|n| name(&format!("n{n:02}"))).collect();
    let trips = async |what: &str, call: &dyn Fn() -> Call| {
        let before = proxy.traffic().round_trips;
        call().await;
        let trips = proxy.traffic().round_trips - before;
        assert_eq!(trips, 1, "{what}");
    };
    type Call = std::pin::Pin<Box<dyn Future<Output = ()>>>;
    trips("load", &|| {
        let (store, names) = (store.clone(), names.clone());
        Box::pin(async move {
            store.load(&names).await.unwrap();
        })
    })
    .await;
    let creating: Vec<_> = names
        .iter()
        .map(|name| create(name, record(1, "x")))
        .collect();
    for (what, expected) in [("insert", true), ("conflict", false)] {
        trips(what, &|| {
            let (store, writes) = (store.clone(), creating.clone());
            Box::pin(async move {
                let swapped = store.swap(writes).await.unwrap().value;
                assert!(
                    swapped
                        .iter()
                        .all(|swapped| (*swapped == WRITTEN) == expected)
                );
            })
        })
        .await;
    }
    let current = store.load(&names).await.unwrap().value;
    let updating: Vec<_> = names
        .iter()
        .zip(current)
        .map(|(name, stored)| replace(name, &stored.unwrap(), record(2, "x")))
        .collect();
    trips("update", &|| {
        let (store, writes) = (store.clone(), updating.clone());
        Box::pin(async move {
            let swapped = store.swap(writes).await.unwrap().value;
            assert!(swapped.iter().all(|swapped| *swapped == WRITTEN));
        })
    })
    .await;
}

#[tokio::test]
async fn time_is_read_from_the_server() {
    let server = Server::builder("postgres")
        .own_clock()
        .start()
        .await
        .unwrap();
    let store = Fixture::on(server.port()).open().await;
    let time = async || store.load(&[]).await.unwrap().stamp.time;
    let before = time().await;
    server.step_clock(3600);
    let after = time().await;
    let stepped = after.since(before);
    assert!(
        stepped >= Duration::from_secs(3590) && stepped < Duration::from_secs(3700),
        "{stepped:?}"
    );
    let answer = store.swap(vec![create(&name("a"), record(1, ""))]).await;
    assert!(answer.unwrap().stamp.time >= after);
}

#[tokio::test]
async fn notifications_resume_after_a_restart() {
    let server = Server::start("postgres").await.unwrap();
    let fixture = Fixture::on(server.port());
    let (one, other) = (fixture.open().await, fixture.open().await);
    let mut changes = other.changes().unwrap();
    // The writer listens as well.
    let _own = one.changes().unwrap();
    let mut fence = 0;
    for round in 0..2 {
        // Listening starts asynchronously, so the first notifications may be missed.
        let changed = loop {
            fence += 1;
            let freed = name(&format!("freed {round}.{fence}"));
            let mut held = record(fence, "");
            let until = Time::from_micros(5);
            held.holders = vec![holder(fence, "h", Mode::Exclusive, until)];
            let kept = name(&format!("kept {fence}"));
            let both = vec![create(&freed, record(1, "")), create(&kept, held)];
            one.swap(both).await.unwrap();
            let wait = Duration::from_millis(300);
            if let Ok(changed) = tokio::time::timeout(wait, changes.recv()).await {
                break changed.unwrap();
            }
            assert!(fence < 100, "no notification arrived");
        };
        assert!(changed.as_str().starts_with("freed"), "{changed}");
        while changes.try_recv().is_ok() {}
        server.restart().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_is_served_by_another_engine_with_and_without_notifications() {
    for options in ["", "&changes=off"] {
        let fixture = Fixture::new().await;
        let one = Engine::start(fixture.open_with(options).await)
            .await
            .unwrap();
        let other = Engine::start(fixture.open_with(options).await)
            .await
            .unwrap();
        let name = name("shared");
        let fence = grant(&one, &name, "first", Duration::ZERO).await;
        let waiting = tokio::spawn({
            let (other, name) = (other.clone(), name.clone());
            async move { grant(&other, &name, "second", Duration::from_secs(20)).await }
        });
        while other.waiters(&name) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(release(&one, &name, fence).await, Ok(Outcome::Released));
        assert!(waiting.await.unwrap() > fence);
    }
}
