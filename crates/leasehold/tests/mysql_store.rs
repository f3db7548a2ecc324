//! Leases in MariaDB: round trips of records, locks of other transactions, server failures, and cost.
#![cfg(feature = "mysql")]

mod mysql_support;

use std::time::Duration;

use leasehold::Error;
use leasehold::core::{Mode, State, Time};
use leasehold::store::{Swapped, Write};
use leasehold_testbed::{Proxy, Server};
use mysql_async::prelude::Queryable as _;
use mysql_support::*;
use tokio::time::Instant;

#[tokio::test]
async fn record_round_trips_through_every_read() {
    let fixture = Fixture::new().await;
    let store = fixture.open().await;
    let name = name("a/b '\"#?%_\\🔒 ");
    record_round_trips(&*store, &*fixture.open().await, &name).await;
}

#[tokio::test]
async fn leases_are_readable() {
    let fixture = Fixture::new().await;
    let store = fixture.open().await;
    let expires_at = Time::from_micros(1_700_000_000_250_000);
    let mut held = record(1_700_000_000_000_002, "step 3");
    held.holders = vec![holder(7, "web-1:17", Mode::Exclusive, expires_at)];
    held.state = Some(State {
        label: "REQUESTED".into(),
        since: expires_at,
    });
    swap_one(&*store, create(&name("nightly"), held)).await;
    let shown = fixture
        .sql(
            "select concat_ws('|', kind, name, fence, owner, holders, expires_at_utc, state, body) \
             from leasehold_leases",
        )
        .await;
    let expected =
        "lock|nightly|1700000000000002|web-1:17|1|2023-11-14 22:13:20.250000|REQUESTED|step 3";
    assert_eq!(shown.as_deref(), Some(expected));
}

#[tokio::test]
async fn corrupt_row_blocks_no_other_write() {
    let fixture = Fixture::new().await;
    let store = fixture.open().await;
    let (bad, good) = (name("bad one"), name("good"));
    let both = vec![create(&bad, full_record()), create(&good, record(1, ""))];
    store.swap(both).await.unwrap();
    let damage = "update leasehold_records set holders = '[{]' where name = 'bad one'";
    fixture.sql(damage).await;
    corrupt_record_does_not_block_others(&*store, &bad, &good).await;
}

#[tokio::test]
async fn locked_row_is_reported_and_delays_no_other_write() {
    let fixture = Fixture::new().await;
    let store = fixture.open().await;
    let (locked, free, new) = (name("locked"), name("free"), name("new"));
    let both = vec![create(&locked, record(1, "")), create(&free, record(1, ""))];
    store.swap(both).await.unwrap();
    let (old_locked, old_free) = (
        load_one(&*store, &locked).await.unwrap(),
        load_one(&*store, &free).await.unwrap(),
    );
    let mut user = fixture.session().await;
    let lock = format!(
        "begin; select * from {}.leasehold_records where kind = 'lock' and name = 'locked' for update",
        fixture.database
    );
    user.query_drop(lock).await.unwrap();

    let write = replace(&locked, &old_locked, record(2, ""));
    let batch = vec![
        write.clone(),
        replace(&free, &old_free, record(2, "")),
        create(&new, record(1, "")),
    ];
    let started = Instant::now();
    let swapped = store.swap(batch).await.unwrap().value;
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    let is_locked = |swapped: &Swapped| match swapped {
        Swapped::Failed(Error::Unavailable(why)) => why.contains("`locked` is locked"),
        _ => false,
    };
    assert!(is_locked(&swapped[0]), "{swapped:?}");
    assert_eq!(swapped[1..], [WRITTEN, WRITTEN]);
    assert!(is_locked(&swap_one(&*store, write.clone()).await));
    // Neither reads nor conflicts wait for the lock.
    assert_eq!(load_one(&*store, &locked).await.as_ref(), Some(&old_locked));
    let stale = Write {
        expect: Some(version(write_id())),
        ..write.clone()
    };
    let conflict = swap_one(&*store, stale).await;
    assert_eq!(conflict, Swapped::Conflict(Some(old_locked)));

    let waiting = tokio::spawn({
        let (store, write) = (store.clone(), write.clone());
        async move { swap_one(&*store, write).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    user.query_drop("rollback").await.unwrap();
    assert_eq!(waiting.await.unwrap(), WRITTEN);
}

#[tokio::test]
async fn each_call_is_one_round_trip() {
    let server = leasehold_testbed::shared("mysql").await.unwrap();
    let proxy = Proxy::to(server.port()).await;
    let store = Fixture::on(server.port(), proxy.port()).await.open().await;
    let names: Vec<_> = (0..64).map(|n| name(&format!("n{n:02}"))).collect();
    let creating: Vec<_> = names
        .iter()
        .map(|name| create(name, record(1, "x")))
        .collect();
    let trips = || proxy.traffic().round_trips;

    let before = trips();
    store.load(&names).await.unwrap();
    assert_eq!(trips() - before, 1, "load");
    let before = trips();
    let swapped = store.swap(creating.clone()).await.unwrap().value;
    assert!(swapped.iter().all(|swapped| *swapped == WRITTEN));
    assert_eq!(trips() - before, 1, "insert");
    let before = trips();
    let swapped = store.swap(creating).await.unwrap().value;
    assert!(
        swapped
            .iter()
            .all(|swapped| matches!(swapped, Swapped::Conflict(Some(_))))
    );
    assert_eq!(trips() - before, 1, "conflict");
    let current = store.load(&names).await.unwrap().value;
    let updating = names.iter().zip(current);
    let updating = updating.map(|(name, stored)| replace(name, &stored.unwrap(), record(2, "x")));
    let before = trips();
    let swapped = store.swap(updating.collect()).await.unwrap().value;
    assert!(swapped.iter().all(|swapped| *swapped == WRITTEN));
    assert_eq!(trips() - before, 1, "update");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_loses_nothing_and_is_used_again_at_once() {
    let server = Server::start("mysql").await.unwrap();
    let store = Fixture::on(server.port(), server.port()).await.open().await;
    let name = name("counter");
    let mut acknowledged = 1;
    swap_one(&*store, create(&name, record(1, ""))).await;
    for _ in 0..2 {
        for _ in 0..20 {
            let current = load_one(&*store, &name).await.unwrap();
            assert!(current.record.fence.get() >= acknowledged);
            let next = current.record.fence.get() + 1;
            let write = replace(&name, &current, record(next, ""));
            assert_eq!(swap_one(&*store, write).await, WRITTEN);
            acknowledged = next;
        }
        let current = load_one(&*store, &name).await.unwrap();
        server.kill().await;
        let down = Instant::now();
        let write = replace(&name, &current, record(acknowledged + 1, ""));
        let error = store.swap(vec![write]).await.unwrap_err();
        assert!(
            matches!(error, Error::Unavailable(_) | Error::Indeterminate(_)),
            "{error:?}"
        );
        let error = store.load(&[]).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
        assert!(down.elapsed() < Duration::from_secs(9));
        server.restart().await;
        let back = Instant::now();
        let current = load_one(&*store, &name).await.unwrap();
        assert!(back.elapsed() < Duration::from_secs(5));
        assert_eq!(current.record.fence.get(), acknowledged);
    }
}

#[tokio::test]
async fn unresponsive_network_is_an_error_in_time() {
    let server = leasehold_testbed::shared("mysql").await.unwrap();
    let proxy = Proxy::to(server.port()).await;
    let store = Fixture::on(server.port(), proxy.port()).await.open().await;
    swap_one(&*store, create(&name("a"), record(1, ""))).await;
    proxy.blackhole();
    let started = Instant::now();
    let write = create(&name("b"), record(1, ""));
    // The swap uses the only connection, and the load cannot open another one.
    let (swapped, loaded) = tokio::join!(store.swap(vec![write]), store.load(&[]));
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(
        matches!(swapped, Err(Error::Indeterminate(_))),
        "{swapped:?}"
    );
    assert!(matches!(loaded, Err(Error::Unavailable(_))), "{loaded:?}");
    proxy.forward();
    store.load(&[]).await.unwrap();
}

#[tokio::test]
async fn time_is_read_from_the_server() {
    let server = Server::builder("mysql").own_clock().start().await.unwrap();
    let store = Fixture::on(server.port(), server.port()).await.open().await;
    let time = async || store.load(&[]).await.unwrap().stamp.time;
    let before = time().await;
    server.step_clock(3600);
    let stepped = time().await.since(before);
    assert!(
        stepped >= Duration::from_secs(3590) && stepped < Duration::from_secs(3700),
        "{stepped:?}"
    );
}
