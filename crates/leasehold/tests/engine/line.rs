//! Waiters: first come, first served, and nobody is forgotten.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::{GrantKind, Mode, Outcome};
use leasehold::engine::Patience;
use leasehold::store::memory::Memory;

use crate::support::{
    LONG, acquire, acquire_as, engine, granted, in_line, memory, name, outcome, release, take,
    update, waiting,
};

#[tokio::test]
async fn a_release_and_the_next_waiters_grant_are_one_write() {
    let (engine, job) = (memory().await, name("job"));
    let first = take(&engine, &job, "first").await;
    let waiter = {
        let (engine, job) = (engine.clone(), job.clone());
        tokio::spawn(async move {
            engine
                .perform(&job, acquire("second", LONG), waiting(LONG))
                .await
        })
    };
    in_line(&engine, &job, 1).await;
    let before = engine.stats();
    assert_eq!(
        outcome(&engine, &job, release(first.fence)).await,
        Outcome::Released
    );
    let second = granted(waiter.await.expect("no panic"));
    let after = engine.stats();
    assert_eq!(second.fence.get(), first.fence.get() + 1);
    assert_eq!(
        (after.swaps - before.swaps, after.writes - before.writes),
        (1, 1)
    );
}

#[tokio::test]
async fn ten_thousand_waiters_are_served_in_order_each_once() {
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
                    waiting(LONG),
                )
                .await
        }));
        // A task starts when it is first polled: one after another, so that the order of arrival is known.
        tokio::task::yield_now().await;
    }
    in_line(&engine, &job, 10_000).await;

    // Every tenth goes away, and leaves nothing behind.
    for waiter in waiters.iter().step_by(10) {
        waiter.abort();
    }
    in_line(&engine, &job, 9_000).await;

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
        let grant = granted(waiter.await.expect("no panic"));
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
async fn a_writer_in_line_is_not_overtaken_by_readers() {
    let (engine, index) = (memory().await, name("index"));
    let shared = Mode::Shared { limit: None };
    let reader = granted(
        engine
            .perform(&index, acquire_as("reader", LONG, shared), Patience::NONE)
            .await,
    );
    let writer = {
        let (engine, index) = (engine.clone(), index.clone());
        tokio::spawn(async move {
            engine
                .perform(&index, acquire("writer", LONG), waiting(LONG))
                .await
        })
    };
    in_line(&engine, &index, 1).await;
    let late = outcome(&engine, &index, acquire_as("late reader", LONG, shared)).await;
    assert!(matches!(late, Outcome::Held(_)), "{late:?}");
    // The reader that is there already may ask again.
    let again = granted(
        engine
            .perform(&index, acquire_as("reader", LONG, shared), Patience::NONE)
            .await,
    );
    assert_eq!(again.granted, GrantKind::Again);
    assert_ne!(again.fence, reader.fence);
    outcome(&engine, &index, release(again.fence)).await;
    granted(writer.await.expect("no panic"));
}

#[tokio::test]
async fn when_the_first_in_line_leaves_the_next_need_not_wait_for_what_it_waited_for() {
    let (engine, index) = (memory().await, name("index"));
    let shared = Mode::Shared { limit: None };
    granted(
        engine
            .perform(&index, acquire_as("reader", LONG, shared), Patience::NONE)
            .await,
    );
    let line = |nonce: &'static str, mode| {
        let (engine, index) = (engine.clone(), index.clone());
        tokio::spawn(async move {
            engine
                .perform(&index, acquire_as(nonce, LONG, mode), waiting(LONG))
                .await
        })
    };
    let writer = line("writer", Mode::Exclusive);
    in_line(&engine, &index, 1).await;
    let second = line("second reader", shared);
    in_line(&engine, &index, 2).await;
    writer.abort();
    granted(second.await.expect("no panic"));
}

#[tokio::test]
async fn a_wait_that_ends_says_who_holds_it() {
    let (engine, job) = (memory().await, name("job"));
    take(&engine, &job, "first").await;
    let refused = engine
        .perform(
            &job,
            acquire("second", LONG),
            waiting(Duration::from_millis(20)),
        )
        .await;
    match refused.expect("an answer").take().0 {
        Outcome::Held(held) => assert_eq!(&*held.owner, "first"),
        other => panic!("{other:?}"),
    }
    assert_eq!(engine.waiters(&job), 0);
}

#[tokio::test]
async fn a_waiter_gets_it_when_the_holder_expires() {
    let (engine, job) = (memory().await, name("job"));
    let short = Duration::from_millis(50);
    let first = granted(
        engine
            .perform(&job, acquire("first", short), Patience::NONE)
            .await,
    );
    let second = granted(
        engine
            .perform(&job, acquire("second", LONG), waiting(LONG))
            .await,
    );
    assert!(
        second.acquired_at > first.expires_at,
        "granted while the first could still believe"
    );
    let stale = outcome(&engine, &job, update(first.fence, "zombie")).await;
    assert_eq!(stale, Outcome::Expired);
}

#[tokio::test]
async fn two_engines_with_waiters_on_one_name_both_get_their_turns() {
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
                    let grant = granted(
                        engine
                            .perform(&job, acquire(&nonce, LONG), waiting(LONG))
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
        worker.await.expect("every turn came");
    }
}
