//! The wait queue: waiters are served in arrival order, and all of them are served.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::{GrantKind, Mode, Outcome};
use leasehold::engine::WaitLimit;
use leasehold::store::memory::Memory;

use crate::support::{
    LONG, acquire, acquire_as, engine, expect_grant, memory, name, outcome, release, take, update,
    wait_for_waiters, wait_up_to,
};

#[tokio::test]
async fn release_and_hand_off_are_one_write() {
    let (engine, job) = (memory().await, name("job"));
    let first = take(&engine, &job, "first").await;
    let waiter = {
        let (engine, job) = (engine.clone(), job.clone());
        tokio::spawn(async move {
            engine
                .perform(&job, acquire("second", LONG), wait_up_to(LONG))
                .await
        })
    };
    wait_for_waiters(&engine, &job, 1).await;
    let before = engine.stats();
    assert_eq!(
        outcome(&engine, &job, release(first.fence)).await,
        Outcome::Released
    );
    let second = expect_grant(waiter.await.expect("no panic"));
    let after = engine.stats();
    assert_eq!(second.fence.get(), first.fence.get() + 1);
    assert_eq!(
        (after.swaps - before.swaps, after.writes - before.writes),
        (1, 1)
    );
}

#[tokio::test]
async fn waiters_are_served_once_in_arrival_order() {
    let (engine, job) = (memory().await, name("job"));
    let first = take(&engine, &job, "first").await;
    let mut waiters = Vec::new();
    for number in 0..10_000u64 {
        let (theirs, job) = (engine.clone(), job.clone());
        waiters.push(tokio::spawn(async move {
            theirs
                .perform(
                    &job,
                    acquire(&format!("waiter {number}"), LONG),
                    wait_up_to(LONG),
                )
                .await
        }));
        // A task starts when it is first polled. Yielding after each spawn makes the arrival order known.
        tokio::task::yield_now().await;
    }
    wait_for_waiters(&engine, &job, 10_000).await;

    // Every tenth waiter leaves the queue.
    for waiter in waiters.iter().step_by(10) {
        waiter.abort();
    }
    wait_for_waiters(&engine, &job, 9_000).await;

    let mut fence = first.fence;
    assert_eq!(
        outcome(&engine, &job, release(fence)).await,
        Outcome::Released
    );
    for (number, waiter) in waiters.into_iter().enumerate() {
        if number % 10 == 0 {
            assert!(waiter.await.expect_err("aborted").is_cancelled());
            continue;
        }
        let grant = expect_grant(waiter.await.expect("no panic"));
        assert_eq!(
            grant.fence.get(),
            fence.get() + 1,
            "waiter {number} was not the next to be granted"
        );
        fence = grant.fence;
        assert_eq!(
            outcome(&engine, &job, release(fence)).await,
            Outcome::Released
        );
    }
    assert_eq!(engine.waiters(&job), 0);
    assert_eq!(engine.stats().queued, 0);
}

#[tokio::test]
async fn waiting_writer_is_not_overtaken_by_readers() {
    let (engine, index) = (memory().await, name("index"));
    let shared = Mode::Shared { limit: None };
    let reader = expect_grant(
        engine
            .perform(&index, acquire_as("reader", LONG, shared), WaitLimit::NONE)
            .await,
    );
    let writer = {
        let (engine, index) = (engine.clone(), index.clone());
        tokio::spawn(async move {
            engine
                .perform(&index, acquire("writer", LONG), wait_up_to(LONG))
                .await
        })
    };
    wait_for_waiters(&engine, &index, 1).await;
    let late = outcome(&engine, &index, acquire_as("late reader", LONG, shared)).await;
    assert!(matches!(late, Outcome::Held(_)), "{late:?}");
    // The present holder may repeat its acquisition.
    let again = expect_grant(
        engine
            .perform(&index, acquire_as("reader", LONG, shared), WaitLimit::NONE)
            .await,
    );
    assert_eq!(again.granted, GrantKind::Again);
    assert_ne!(again.fence, reader.fence);
    outcome(&engine, &index, release(again.fence)).await;
    expect_grant(writer.await.expect("no panic"));
}

#[tokio::test]
async fn next_waiter_is_granted_when_the_first_waiter_leaves() {
    let (engine, index) = (memory().await, name("index"));
    let shared = Mode::Shared { limit: None };
    expect_grant(
        engine
            .perform(&index, acquire_as("reader", LONG, shared), WaitLimit::NONE)
            .await,
    );
    let line = |nonce: &'static str, mode| {
        let (engine, index) = (engine.clone(), index.clone());
        tokio::spawn(async move {
            engine
                .perform(&index, acquire_as(nonce, LONG, mode), wait_up_to(LONG))
                .await
        })
    };
    let writer = line("writer", Mode::Exclusive);
    wait_for_waiters(&engine, &index, 1).await;
    let second = line("second reader", shared);
    wait_for_waiters(&engine, &index, 2).await;
    writer.abort();
    expect_grant(second.await.expect("no panic"));
}

#[tokio::test]
async fn wait_timeout_reports_the_holder() {
    let (engine, job) = (memory().await, name("job"));
    take(&engine, &job, "first").await;
    let refused = engine
        .perform(
            &job,
            acquire("second", LONG),
            wait_up_to(Duration::from_millis(20)),
        )
        .await;
    match refused.expect("an answer").take().0 {
        Outcome::Held(held) => assert_eq!(&*held.owner, "first"),
        other => panic!("{other:?}"),
    }
    assert_eq!(engine.waiters(&job), 0);
}

#[tokio::test]
async fn waiter_is_granted_when_the_holder_expires() {
    let (engine, job) = (memory().await, name("job"));
    let short = Duration::from_millis(50);
    let first = expect_grant(
        engine
            .perform(&job, acquire("first", short), WaitLimit::NONE)
            .await,
    );
    let second = expect_grant(
        engine
            .perform(&job, acquire("second", LONG), wait_up_to(LONG))
            .await,
    );
    assert!(
        second.acquired_at > first.expires_at,
        "granted while the first holder could still rely on its lease"
    );
    let stale = outcome(&engine, &job, update(first.fence, "zombie")).await;
    assert_eq!(stale, Outcome::Expired);
}

#[tokio::test]
async fn waiters_of_two_engines_all_get_the_lease() {
    let store = Arc::new(Memory::new());
    let engines = [engine(store.clone()).await, engine(store).await];
    let job = name("job");
    let mut workers = Vec::new();
    for (number, engine) in engines.iter().enumerate() {
        for worker in 0..8 {
            let (engine, job) = (engine.clone(), job.clone());
            workers.push(tokio::spawn(async move {
                for turn in 0..20 {
                    let nonce = format!("{number} {worker} {turn}");
                    let grant = expect_grant(
                        engine
                            .perform(&job, acquire(&nonce, LONG), wait_up_to(LONG))
                            .await,
                    );
                    assert_eq!(
                        outcome(&engine, &job, release(grant.fence)).await,
                        Outcome::Released
                    );
                }
            }));
        }
    }
    for worker in workers {
        worker.await.expect("every turn was granted");
    }
}
