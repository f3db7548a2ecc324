//! What other people's transactions do to leases in PostgreSQL: nothing to all but the rows that they lock.
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
async fn a_locked_row_delays_nobodys_other_leases() {
    let ground = Ground::new().await;
    let engine = Engine::start(ground.open().await).await.unwrap();
    let locked: Vec<_> = (0..6).map(|n| name(&format!("locked {n}"))).collect();
    let mut fences = Vec::new();
    for name in &locked {
        fences.push(grant(&engine, name, "holder", Duration::ZERO).await);
    }
    let user = ground.session().await;
    let lock = format!("begin; select * from {} for update", ground.table);
    user.simple_query(&lock).await.unwrap();

    let stuck: Vec<_> = locked
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
    // Each of the forty may meet the batch that learns of the locked rows once, for a tenth of a second at most.
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
    assert!(stuck.iter().all(|stuck| !stuck.is_finished()));
    user.simple_query("commit").await.unwrap();
    for stuck in stuck {
        assert_eq!(stuck.await.unwrap(), Ok(Outcome::Released));
    }
}

#[tokio::test]
async fn a_row_that_stays_locked_is_an_error_that_says_so() {
    let ground = Ground::new().await;
    let store = ground.open().await;
    let (locked, free, new) = (name("locked"), name("free"), name("new"));
    let both = vec![create(&locked, record(1, "")), create(&free, record(1, ""))];
    store.swap(both).await.unwrap();
    let (old_locked, old_free) = (
        load_one(&*store, &locked).await.unwrap(),
        load_one(&*store, &free).await.unwrap(),
    );
    let user = ground.session().await;
    let lock = format!(
        "begin; update {} set body = 'x' where name = 'locked'",
        ground.table
    );
    user.simple_query(&lock).await.unwrap();

    let write = replace(&locked, &old_locked, record(2, ""));
    let batch = vec![
        write.clone(),
        replace(&free, &old_free, record(2, "")),
        create(&new, record(1, "")),
    ];
    let swapped = store.swap(batch).await.unwrap().value;
    let told = |swapped: &Swapped| match swapped {
        Swapped::Failed(Error::Unavailable(why)) => why.contains("`locked` is locked"),
        _ => false,
    };
    assert!(told(&swapped[0]), "{swapped:?}");
    assert_eq!(swapped[1..], [WRITTEN, WRITTEN]);
    assert!(told(&swap_one(&*store, write.clone()).await));
    // Reading waits for nobody, and neither does losing.
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

/// A server that is slow to accept a connection is no row that stays locked.
#[tokio::test]
async fn a_lock_is_waited_for_from_when_there_is_a_connection_for_it() {
    let direct = Ground::new().await;
    let proxy = Proxy::to(direct.port).await;
    let ground = Ground::on(proxy.port());
    let store = ground.open().await;
    let counter = name("counter");
    swap_one(&*store, create(&counter, record(1, ""))).await;
    let old = load_one(&*store, &counter).await.unwrap();
    let user = direct.session().await;
    let lock = format!("begin; select * from {} for update", ground.table);
    user.simple_query(&lock).await.unwrap();

    let before = proxy.traffic().connections;
    // Two round trips make a connection.
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
async fn an_insert_that_somebody_has_not_committed_is_in_the_way_of_nothing_else() {
    let ground = Ground::new().await;
    let store = ground.open().await;
    let (mine, free) = (name("mine"), name("free"));
    swap_one(&*store, create(&free, record(1, ""))).await;
    let old = load_one(&*store, &free).await.unwrap();
    let user = ground.session().await;
    let insert = format!(
        "begin; insert into {} (kind, name, write_id, fence, held_until, holders, body) \
         values ('lock', 'mine', gen_random_uuid(), 7, 0, '[]', 'theirs')",
        ground.table
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

/// A database may be set to a stricter isolation than this store needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_lose_nothing_whatever_the_isolation() {
    for isolation in ["repeatable%20read", "serializable"] {
        let ground = Ground::new().await;
        let options = format!("&options=-c%20default_transaction_isolation%3D{isolation}");
        let options = options.replace("repeatable%20read", "repeatable%5C%20read");
        count_together(&ground, &options).await;
    }
}

/// Eight count one record up, each ten times, from connections of their own.
async fn count_together(ground: &Ground, options: &str) {
    let name = name("counter");
    let first = ground.open_with(options).await;
    swap_one(&*first, create(&name, record(1, "0"))).await;
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (store, name) = (ground.open_with(options).await, name.clone());
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
