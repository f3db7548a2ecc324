//! The effect of other transactions on leases in PostgreSQL: none, except on the rows that they lock.
#![cfg(feature = "postgres")]

mod postgres_support;

use std::time::Duration;

use leasehold::Error;
use leasehold::core::Outcome;
use leasehold::engine::Engine;
use leasehold::store::{Swapped, Write};
use leasehold_testbed::Proxy;
use postgres_support::*;
use tokio::time::Instant;

#[tokio::test]
async fn locked_row_does_not_delay_other_leases() {
    let fixture = Fixture::new().await;
    let engine = Engine::start(fixture.open().await).await.unwrap();
    let locked: Vec<_> = (0..6).map(|n| name(&format!("locked {n}"))).collect();
    let mut fences = Vec::new();
    for name in &locked {
        fences.push(grant(&engine, name, "holder", Duration::ZERO).await);
    }
    let user = fixture.session().await;
    let lock = format!("begin; select * from {} for update", fixture.table);
    user.simple_query(&lock).await.unwrap();

    let blocked: Vec<_> = locked
        .iter()
        .zip(fences)
        .map(|(name, fence)| {
            let (engine, name) = (engine.clone(), name.clone());
            tokio::spawn(async move { release(&engine, &name, fence).await })
        })
        .collect();
    let started = Instant::now();
    for round in 0..20 {
        let name = name(&format!("free {round}"));
        let fence = grant(&engine, &name, "other", Duration::ZERO).await;
        assert_eq!(release(&engine, &name, fence).await, Ok(Outcome::Released));
    }
    // Each of the forty calls may be in a batch with a write to a locked row, which waits at most 100 ms.
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
    assert!(blocked.iter().all(|blocked| !blocked.is_finished()));
    user.simple_query("commit").await.unwrap();
    for blocked in blocked {
        assert_eq!(blocked.await.unwrap(), Ok(Outcome::Released));
    }
}

#[tokio::test]
async fn row_that_stays_locked_is_reported() {
    let fixture = Fixture::new().await;
    let store = fixture.open().await;
    let (locked, free, new) = (name("locked"), name("free"), name("new"));
    let both = vec![create(&locked, record(1, "")), create(&free, record(1, ""))];
    store.swap(both).await.unwrap();
    let (old_locked, old_free) = (
        load_one(&*store, &locked).await.unwrap(),
        load_one(&*store, &free).await.unwrap(),
    );
    let user = fixture.session().await;
    let lock = format!(
        "begin; update {} set body = 'x' where name = 'locked'",
        fixture.table
    );
    user.simple_query(&lock).await.unwrap();

    let write = replace(&locked, &old_locked, record(2, ""));
    let batch = vec![
        write.clone(),
        replace(&free, &old_free, record(2, "")),
        create(&new, record(1, "")),
    ];
    let swapped = store.swap(batch).await.unwrap().value;
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
    assert_eq!(
        swap_one(&*store, stale).await,
        Swapped::Conflict(Some(old_locked.clone()))
    );

    let waiting = tokio::spawn({
        let (store, write) = (store.clone(), write.clone());
        async move { swap_one(&*store, write).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    user.simple_query("rollback").await.unwrap();
    assert_eq!(waiting.await.unwrap(), WRITTEN);
}

/// A server that is slow to accept a connection is not reported as a locked row.
#[tokio::test]
async fn lock_wait_starts_when_the_connection_is_open() {
    let direct = Fixture::new().await;
    let proxy = Proxy::to(direct.port).await;
    let fixture = Fixture::on(proxy.port());
    let store = fixture.open().await;
    let counter = name("counter");
    swap_one(&*store, create(&counter, record(1, ""))).await;
    let old = load_one(&*store, &counter).await.unwrap();
    let user = direct.session().await;
    let lock = format!("begin; select * from {} for update", fixture.table);
    user.simple_query(&lock).await.unwrap();

    let before = proxy.traffic().connections;
    // Connecting takes two round trips.
    proxy.delay(Duration::from_millis(100));
    let write = replace(&counter, &old, record(2, ""));
    let waiting = tokio::spawn(async move { swap_one(&*store, write).await });
    while proxy.traffic().connections == before {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    user.simple_query("rollback").await.unwrap();
    assert_eq!(waiting.await.unwrap(), WRITTEN);
}

#[tokio::test]
async fn uncommitted_insert_of_another_transaction_blocks_no_other_write() {
    let fixture = Fixture::new().await;
    let store = fixture.open().await;
    let (mine, free) = (name("mine"), name("free"));
    swap_one(&*store, create(&free, record(1, ""))).await;
    let old = load_one(&*store, &free).await.unwrap();
    let user = fixture.session().await;
    let insert = format!(
        "begin; insert into {} (kind, name, write_id, fence, held_until, holders, body) \
         values ('lock', 'mine', gen_random_uuid(), 7, 0, '[]', 'theirs')",
        fixture.table
    );
    user.simple_query(&insert).await.unwrap();
    let batch = vec![
        create(&mine, record(1, "")),
        replace(&free, &old, record(2, "")),
        create(&name("zzz"), record(1, "")),
    ];
    let swapped = store.swap(batch).await.unwrap().value;
    assert!(
        matches!(swapped[0], Swapped::Failed(Error::Unavailable(_))),
        "{swapped:?}"
    );
    assert_eq!(swapped[1..], [WRITTEN, WRITTEN]);
    user.simple_query("commit").await.unwrap();
    match swap_one(&*store, create(&mine, record(1, ""))).await {
        Swapped::Conflict(Some(theirs)) => assert_eq!(&*theirs.record.body, "theirs"),
        other => panic!("{other:?}"),
    }
}

/// A database may be configured for a stricter isolation level than this store requires.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_increment_is_lost_at_any_isolation_level() {
    for isolation in ["repeatable%20read", "serializable"] {
        let fixture = Fixture::new().await;
        let options = format!("&options=-c%20default_transaction_isolation%3D{isolation}");
        let options = options.replace("repeatable%20read", "repeatable%5C%20read");
        count_concurrently(&fixture, &options).await;
    }
}

/// Increments one record from eight stores, ten times each.
async fn count_concurrently(fixture: &Fixture, options: &str) {
    let name = name("counter");
    let first = fixture.open_with(options).await;
    swap_one(&*first, create(&name, record(1, "0"))).await;
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (store, name) = (fixture.open_with(options).await, name.clone());
        tasks.push(tokio::spawn(async move {
            let mut current = load_one(&*store, &name).await.unwrap();
            let mut left = 10;
            while left > 0 {
                let count: u32 = current.record.body.parse().unwrap();
                let write = replace(&name, &current, record(1, &(count + 1).to_string()));
                match swap_one(&*store, write).await {
                    Swapped::Conflict(newer) => current = newer.unwrap(),
                    Swapped::Failed(Error::Unavailable(_)) => {}
                    swapped => {
                        assert_eq!(swapped, WRITTEN);
                        current = load_one(&*store, &name).await.unwrap();
                        left -= 1;
                    }
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let total = load_one(&*first, &name).await.unwrap();
    assert_eq!(&*total.record.body, "80");
}
