//! Concurrent writes, and the store's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Kind, Name, Stamp};
use tokio::sync::Barrier;

use super::context::{TestContext, boot_time, run_concurrently};
use super::store_helpers::{load, put, record, stored_body, swap, write};
use crate::Error;
use crate::store::{Query, Store, Swapped};

super::define_cases!(Store:
    no_increment_is_lost,
    one_of_many_writers_creates,
    batches_in_opposite_orders_do_not_deadlock,
    batches_and_single_writes_lose_nothing,
    time_never_runs_backwards,
    time_advances,
);

const WORKERS: usize = 8;

/// Returns the store of each worker. Two workers share a store; each store has its own connection where the database
/// allows it.
async fn workers(context: &TestContext) -> Vec<Arc<dyn Store>> {
    let mut stores = Vec::new();
    for _ in 0..WORKERS / 2 {
        let store = context.store().await;
        stores.extend([store.clone(), store]);
    }
    stores
}

/// Adds one by compare-and-swap, with retries. On a slow disk, a concurrent commit may hold a lock for longer than a
/// write waits. The write then fails without effect, which every caller that retries relies on.
async fn increment(store: &dyn Store, name: &Name) {
    const UNAVAILABLE: usize = 10;
    let mut unavailable = 0;
    let mut current = load(store, name).await.expect("the record exists");
    loop {
        let count: u64 = current.record.body.parse().expect("the body is a number");
        let next = record(&(count + 1).to_string());
        match swap(store, write(name, Some(&current.version), &next)).await {
            Swapped::Written { .. } => return,
            Swapped::Conflict(newer) => current = newer.expect("the record still exists"),
            Swapped::Failed(Error::Unavailable(_)) if unavailable < UNAVAILABLE => unavailable += 1,
            Swapped::Failed(error) => panic!("{error}"),
        }
    }
}

async fn no_increment_is_lost(context: TestContext) {
    const EACH: usize = 15;
    let name = context.name("counter");
    put(&*context.store().await, &name, None, &record("0")).await;
    let tasks = workers(&context).await.into_iter().map(|store| {
        let name = name.clone();
        async move {
            for _ in 0..EACH {
                increment(&*store, &name).await;
            }
        }
    });
    run_concurrently(tasks).await;
    let total = stored_body(&*context.store().await, &name).await;
    assert_eq!(total.as_deref(), Some(&*(WORKERS * EACH).to_string()));
}

async fn one_of_many_writers_creates(context: TestContext) {
    for round in 0..5 {
        let name = context.name(&round.to_string());
        let start = Arc::new(Barrier::new(WORKERS));
        let tasks = (0..).zip(workers(&context).await).map(|(worker, store)| {
            let (name, start) = (name.clone(), start.clone());
            async move {
                start.wait().await;
                let written = record(&format!("worker {worker}"));
                (
                    written.body.clone(),
                    swap(&*store, write(&name, None, &written)).await,
                )
            }
        });
        let answers = run_concurrently(tasks).await;
        let current = load(&*context.store().await, &name)
            .await
            .expect("one of them has written");
        let mut winners = 0;
        for (body, swapped) in answers {
            match swapped {
                Swapped::Written { .. } => {
                    winners += 1;
                    assert_eq!(body, current.record.body, "the winner's record is stored");
                }
                Swapped::Conflict(other) => assert_eq!(other.as_ref(), Some(&current)),
                Swapped::Failed(error) => panic!("{error}"),
            }
        }
        assert_eq!(winners, 1, "in round {round}");
    }
}

/// Increments each of these names once. Writes them in one batch, and retries those that conflicted.
async fn increment_all(store: &dyn Store, names: &[Name]) {
    let mut left = names.to_vec();
    while !left.is_empty() {
        let loaded = store.load(&left).await.expect("the store answers").value;
        let batch = left.iter().zip(loaded).map(|(name, stored)| {
            let stored = stored.expect("the record exists");
            let count: u64 = stored.record.body.parse().expect("the body is a number");
            write(
                name,
                Some(&stored.version),
                &record(&(count + 1).to_string()),
            )
        });
        let swapped = store
            .swap(batch.collect())
            .await
            .expect("the store answers")
            .value;
        let mut answers = swapped.into_iter();
        left.retain(|_| !matches!(answers.next(), Some(Swapped::Written { .. })));
    }
}

async fn batches_in_opposite_orders_do_not_deadlock(context: TestContext) {
    const ROUNDS: usize = 5;
    let store = context.store().await;
    let count = store.facts().batch.min(8);
    let names: Vec<_> = (0..count).map(|n| context.name(&n.to_string())).collect();
    for name in &names {
        put(&*store, name, None, &record("0")).await;
    }
    let tasks = (0..4).zip(workers(&context).await).map(|(worker, store)| {
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
    run_concurrently(tasks).await;
    for name in &names {
        let total = stored_body(&*store, name).await;
        assert_eq!(total.as_deref(), Some(&*(4 * ROUNDS).to_string()));
    }
}

async fn batches_and_single_writes_lose_nothing(context: TestContext) {
    const ROUNDS: usize = 8;
    let store = context.store().await;
    let names: Vec<_> = (0..store.facts().batch.min(4))
        .map(|n| context.name(&n.to_string()))
        .collect();
    for name in &names {
        put(&*store, name, None, &record("0")).await;
    }
    let single = (context.store().await, names.clone());
    let batched = (context.store().await, names.clone());
    let singly = tokio::spawn(async move {
        for name in single.1.iter().cycle().take(ROUNDS * single.1.len()) {
            increment(&*single.0, name).await;
        }
    });
    for _ in 0..ROUNDS {
        increment_all(&*batched.0, &batched.1).await;
    }
    singly.await.expect("the task does not panic");
    for name in &names {
        let total = stored_body(&*store, name).await;
        assert_eq!(total.as_deref(), Some(&*(2 * ROUNDS).to_string()));
    }
}

async fn time_never_runs_backwards(context: TestContext) {
    let latest = Arc::new(AtomicU64::new(0));
    let margin = context.store().await.facts().margin;
    let tasks = (0..).zip(workers(&context).await).map(|(worker, store)| {
        let (latest, name) = (latest.clone(), context.name(&format!("{worker}")));
        async move {
            for round in 0..12 {
                let before = latest.load(Ordering::SeqCst);
                let stamp = read_time(&*store, &name, round).await;
                // A time that was received before this request is not later, within the declared margin.
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
    run_concurrently(tasks).await;
}

/// Reads the time, which every answer carries, by each kind of request in turn.
async fn read_time(store: &dyn Store, name: &Name, round: usize) -> Stamp {
    match round % 4 {
        0 => store.load(&[]).await.expect("the store answers").stamp,
        1 => {
            let writes = vec![write(name, None, &record(""))];
            store.swap(writes).await.expect("the store answers").stamp
        }
        2 => {
            let names = std::slice::from_ref(name);
            store.load(names).await.expect("the store answers").stamp
        }
        _ => {
            let query = Query {
                prefix: name.as_str().to_owned(),
                ..Query::all(Kind::Lock)
            };
            store.find(&query).await.expect("the store answers").stamp
        }
    }
}

async fn time_advances(context: TestContext) {
    let store = context.store().await;
    let slack = store.facts().margin;
    let before = store.load(&[]).await.expect("the store answers").stamp;
    let received = boot_time();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let sent = boot_time();
    let after = store.load(&[]).await.expect("the store answers").stamp;
    let elapsed = (after.time + after.resolution + slack).since(before.time);
    // The tolerance of 1 % covers clock drift.
    assert!(
        elapsed >= sent.since(received) * 99 / 100,
        "only {elapsed:?} elapsed"
    );
}
