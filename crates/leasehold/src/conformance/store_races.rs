//! What stays true when many write at once, and what the store's clock promises.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Kind, Name, Stamp};
use tokio::sync::Barrier;

use super::bench::{Bench, boot, side_by_side};
use super::store_kit::{load, put, record, stored_body, swap, write};
use crate::Error;
use crate::store::{Query, Store, Swapped};

super::promises!(Store:
    increments_lose_nothing,
    one_of_many_creates,
    batches_in_opposite_orders_end,
    a_batch_meets_single_writes,
    time_never_runs_backwards,
    time_goes_on,
);

const WORKERS: usize = 8;

/// Each worker gets the store by a connection of its own where the database has such, two workers to each.
async fn workers(bench: &Bench) -> Vec<Arc<dyn Store>> {
    let mut stores = Vec::new();
    for _ in 0..WORKERS / 2 {
        let store = bench.store().await;
        stores.extend([store.clone(), store]);
    }
    stores
}

/// Adds one by compare-and-swap, however often that takes. A disk may keep somebody's commit, and with it a lock, for
/// longer than a write waits: then nothing has happened, as everybody who tries again relies on.
async fn increment(store: &dyn Store, name: &Name) {
    const UNAVAILABLE: usize = 10;
    let mut unavailable = 0;
    let mut current = load(store, name).await.expect("it is there");
    loop {
        let count: u64 = current.record.body.parse().expect("a number");
        let next = record(&(count + 1).to_string());
        match swap(store, write(name, Some(&current.version), &next)).await {
            Swapped::Written { .. } => return,
            Swapped::Conflict(newer) => current = newer.expect("it is still there"),
            Swapped::Failed(Error::Unavailable(_)) if unavailable < UNAVAILABLE => unavailable += 1,
            Swapped::Failed(error) => panic!("{error}"),
        }
    }
}

async fn increments_lose_nothing(bench: Bench) {
    const EACH: usize = 15;
    let name = bench.name("counter");
    put(&*bench.store().await, &name, None, &record("0")).await;
    let tasks = workers(&bench).await.into_iter().map(|store| {
        let name = name.clone();
        async move {
            for _ in 0..EACH {
                increment(&*store, &name).await;
            }
        }
    });
    side_by_side(tasks).await;
    let total = stored_body(&*bench.store().await, &name).await;
    assert_eq!(total.as_deref(), Some(&*(WORKERS * EACH).to_string()));
}

async fn one_of_many_creates(bench: Bench) {
    for round in 0..5 {
        let name = bench.name(&round.to_string());
        let start = Arc::new(Barrier::new(WORKERS));
        let tasks = (0..).zip(workers(&bench).await).map(|(worker, store)| {
            let (name, start) = (name.clone(), start.clone());
            async move {
                start.wait().await;
                let mine = record(&format!("worker {worker}"));
                (
                    mine.body.clone(),
                    swap(&*store, write(&name, None, &mine)).await,
                )
            }
        });
        let answers = side_by_side(tasks).await;
        let current = load(&*bench.store().await, &name)
            .await
            .expect("one of them wrote");
        let mut winners = 0;
        for (body, swapped) in answers {
            match swapped {
                Swapped::Written { .. } => {
                    winners += 1;
                    assert_eq!(body, current.record.body, "the winner's record stands");
                }
                Swapped::Conflict(told) => assert_eq!(told.as_ref(), Some(&current)),
                Swapped::Failed(error) => panic!("{error}"),
            }
        }
        assert_eq!(winners, 1, "in round {round}");
    }
}

/// Writes to all of these names in one batch until each has been incremented once.
async fn increment_all(store: &dyn Store, names: &[Name]) {
    let mut left = names.to_vec();
    while !left.is_empty() {
        let loaded = store.load(&left).await.expect("the store answers").value;
        let batch = left.iter().zip(loaded).map(|(name, stored)| {
            let stored = stored.expect("it is there");
            let count: u64 = stored.record.body.parse().expect("a number");
            write(
                name,
                Some(&stored.version),
                &record(&(count + 1).to_string()),
            )
        });
        let swapped = store.swap(batch.collect()).await.expect("it answers").value;
        let mut answers = swapped.into_iter();
        left.retain(|_| !matches!(answers.next(), Some(Swapped::Written { .. })));
    }
}

async fn batches_in_opposite_orders_end(bench: Bench) {
    const ROUNDS: usize = 5;
    let store = bench.store().await;
    let count = store.facts().batch.min(8);
    let names: Vec<_> = (0..count).map(|n| bench.name(&n.to_string())).collect();
    for name in &names {
        put(&*store, name, None, &record("0")).await;
    }
    let tasks = (0..4).zip(workers(&bench).await).map(|(worker, store)| {
        let mut names = names.clone();
        if worker % 2 == 1 {
            names.reverse();
        }
        async move {
            for _ in 0..ROUNDS {
                increment_all(&*store, &names).await;
            }
        }
    });
    side_by_side(tasks).await;
    for name in &names {
        let total = stored_body(&*store, name).await;
        assert_eq!(total.as_deref(), Some(&*(4 * ROUNDS).to_string()));
    }
}

async fn a_batch_meets_single_writes(bench: Bench) {
    const ROUNDS: usize = 8;
    let store = bench.store().await;
    let names: Vec<_> = (0..store.facts().batch.min(4))
        .map(|n| bench.name(&n.to_string()))
        .collect();
    for name in &names {
        put(&*store, name, None, &record("0")).await;
    }
    let single = (bench.store().await, names.clone());
    let batched = (bench.store().await, names.clone());
    let singly = tokio::spawn(async move {
        for name in single.1.iter().cycle().take(ROUNDS * single.1.len()) {
            increment(&*single.0, name).await;
        }
    });
    for _ in 0..ROUNDS {
        increment_all(&*batched.0, &batched.1).await;
    }
    singly.await.expect("it does not fail");
    for name in &names {
        let total = stored_body(&*store, name).await;
        assert_eq!(total.as_deref(), Some(&*(2 * ROUNDS).to_string()));
    }
}

async fn time_never_runs_backwards(bench: Bench) {
    let latest = Arc::new(AtomicU64::new(0));
    let margin = bench.store().await.facts().margin;
    let tasks = (0..).zip(workers(&bench).await).map(|(worker, store)| {
        let (latest, name) = (latest.clone(), bench.name(&format!("{worker}")));
        async move {
            for round in 0..12 {
                let before = latest.load(Ordering::SeqCst);
                let stamp = ask_time(&*store, &name, round).await;
                // What was told before this was asked is not later, but for what the store declares.
                let allowed = stamp.time + stamp.resolution + margin;
                assert!(
                    allowed.as_micros() >= before,
                    "{} after {before}",
                    stamp.time
                );
                latest.fetch_max(stamp.time.as_micros(), Ordering::SeqCst);
            }
        }
    });
    side_by_side(tasks).await;
}

/// Every answer tells the time: ask in every way in turn.
async fn ask_time(store: &dyn Store, name: &Name, round: usize) -> Stamp {
    match round % 4 {
        0 => store.load(&[]).await.expect("it answers").stamp,
        1 => {
            let writes = vec![write(name, None, &record(""))];
            store.swap(writes).await.expect("it answers").stamp
        }
        2 => {
            let names = std::slice::from_ref(name);
            store.load(names).await.expect("it answers").stamp
        }
        _ => {
            let query = Query {
                prefix: name.as_str().to_owned(),
                ..Query::all(Kind::Lock)
            };
            store.find(&query).await.expect("it answers").stamp
        }
    }
}

async fn time_goes_on(bench: Bench) {
    let store = bench.store().await;
    let slack = store.facts().margin;
    let before = store.load(&[]).await.expect("it answers").stamp;
    let received = boot();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let sent = boot();
    let after = store.load(&[]).await.expect("it answers").stamp;
    let told = (after.time + after.resolution + slack).since(before.time);
    // 1 % for clocks that run apart.
    assert!(
        told >= sent.since(received) * 99 / 100,
        "only {told:?} went by"
    );
}
