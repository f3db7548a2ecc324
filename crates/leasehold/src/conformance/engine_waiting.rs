//! The wait queue of a name, as seen at the engine.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Acquire, Fence, Mode, Name, Operation, Outcome, Reserve};
use tokio::sync::Mutex;

use super::context::{TIMEOUT, TestContext, boot_time, nonce_hash, run_concurrently};
use super::engine::{acquire_with, perform, release_operation};
use crate::engine::{Engine, WaitLimit};

super::define_cases!(Engine:
    waiters_are_served_in_arrival_order,
    cancelled_waiter_leaves_the_queue,
    reservation_keeps_others_out,
    reservation_can_be_withdrawn,
    two_engines_exclude_each_other,
);

const LONG_WAIT: WaitLimit = WaitLimit {
    wait: TIMEOUT,
    within: None,
};

/// Waits until `count` waiters are in the queue.
pub(super) async fn wait_for_waiters(engine: &Engine, name: &Name, count: usize) {
    let give_up = boot_time() + TIMEOUT;
    while engine.waiters(name) != count {
        assert!(
            boot_time() < give_up,
            "{} instead of {count} wait for {name}",
            engine.waiters(name)
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn granted(engine: &Engine, name: &Name, wait_limit: WaitLimit) -> Fence {
    let operation = Operation::Acquire(acquire_with(nonce_hash()));
    let reply = engine
        .perform(name, operation, wait_limit)
        .await
        .expect("the store answers");
    match reply.take().0 {
        Outcome::Granted(grant) => grant.fence,
        other => panic!("{name} was not granted: {other:?}"),
    }
}

async fn waiters_are_served_in_arrival_order(context: TestContext) {
    let (engine, name) = (context.engine().await, context.name("one"));
    let first = granted(&engine, &name, WaitLimit::NONE).await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for arrival in 0..8 {
        let (engine_here, name_here, served) = (engine.clone(), name.clone(), served.clone());
        waiters.push(tokio::spawn(async move {
            let fence = granted(&engine_here, &name_here, LONG_WAIT).await;
            served.lock().await.push((arrival, fence));
            perform(&engine_here, &name_here, release_operation(fence)).await;
        }));
        wait_for_waiters(&engine, &name, arrival + 1).await;
    }
    perform(&engine, &name, release_operation(first)).await;
    for waiter in waiters {
        waiter.await.expect("the task does not panic");
    }
    let served = served.lock().await;
    let arrivals: Vec<_> = served.iter().map(|(arrival, _)| *arrival).collect();
    assert_eq!(arrivals, (0..8).collect::<Vec<_>>());
    assert!(served.is_sorted_by_key(|(_, fence)| *fence), "{served:?}");
    assert_eq!(engine.waiters(&name), 0);
}

async fn cancelled_waiter_leaves_the_queue(context: TestContext) {
    let (engine, name) = (context.engine().await, context.name("one"));
    let first = granted(&engine, &name, WaitLimit::NONE).await;
    let mut waiters = Vec::new();
    for arrival in 0..3 {
        let (engine_here, name_here) = (engine.clone(), name.clone());
        waiters.push(tokio::spawn(async move {
            granted(&engine_here, &name_here, LONG_WAIT).await
        }));
        wait_for_waiters(&engine, &name, arrival + 1).await;
    }
    waiters.remove(0).abort();
    wait_for_waiters(&engine, &name, 2).await;
    perform(&engine, &name, release_operation(first)).await;
    let second = waiters.remove(0).await.expect("the task does not panic");
    assert!(second > first);
    perform(&engine, &name, release_operation(second)).await;
    assert!(waiters.remove(0).await.expect("the task does not panic") > second);
}

async fn reservation_keeps_others_out(context: TestContext) {
    let (engine, name, waiter) = (context.engine().await, context.name("one"), nonce_hash());
    let fence = granted(&engine, &name, WaitLimit::NONE).await;
    let reserve = Operation::Reserve(Reserve {
        nonce: waiter,
        mode: Mode::Exclusive,
        // Less than the maximum: a better reading of the store's time may show that a longer one exceeds it, and it
        // would be ignored.
        span: Duration::from_secs(4),
    });
    let outcome = perform(&engine, &name, reserve.clone()).await;
    assert!(matches!(outcome, Outcome::Reserved { .. }), "{outcome:?}");
    perform(&engine, &name, release_operation(fence)).await;
    let outcome = perform(
        &engine,
        &name,
        Operation::Acquire(acquire_with(nonce_hash())),
    )
    .await;
    assert!(
        matches!(&outcome, Outcome::Held(held) if held.owner.is_empty()),
        "{outcome:?}"
    );
    let outcome = perform(&engine, &name, Operation::Acquire(acquire_with(waiter))).await;
    assert!(matches!(outcome, Outcome::Granted(_)), "{outcome:?}");
    let free = context.name("free");
    assert_eq!(perform(&engine, &free, reserve).await, Outcome::Free);
}

async fn reservation_can_be_withdrawn(context: TestContext) {
    let (engine, name, waiter) = (context.engine().await, context.name("one"), nonce_hash());
    let fence = granted(&engine, &name, WaitLimit::NONE).await;
    for span in [Duration::from_secs(5), Duration::ZERO] {
        let reserve = Operation::Reserve(Reserve {
            nonce: waiter,
            mode: Mode::Exclusive,
            span,
        });
        perform(&engine, &name, reserve).await;
    }
    perform(&engine, &name, release_operation(fence)).await;
    granted(&engine, &name, WaitLimit::NONE).await;
}

async fn two_engines_exclude_each_other(context: TestContext) {
    let (one, other, name) = (
        context.engine().await,
        context.engine().await,
        context.name("one"),
    );
    let mut highest = Fence::default();
    for round in 0..6 {
        let (holder, contender) = if round % 2 == 0 {
            (&one, &other)
        } else {
            (&other, &one)
        };
        let fence = granted(holder, &name, WaitLimit::NONE).await;
        assert!(fence > highest);
        highest = fence;
        let other_acquire = Operation::Acquire(Acquire {
            owner: "bob".into(),
            ..acquire_with(nonce_hash())
        });
        let outcome = perform(contender, &name, other_acquire).await;
        assert!(matches!(outcome, Outcome::Held(_)), "{outcome:?}");
        // Either engine may act for the holder: the fence decides.
        let outcome = perform(contender, &name, release_operation(fence)).await;
        assert_eq!(outcome, Outcome::Released);
    }
    let tasks = [one, other].map(|engine| {
        let name = name.clone();
        async move {
            let mut fences = Vec::new();
            for _ in 0..5 {
                let fence = granted(&engine, &name, LONG_WAIT).await;
                fences.push(fence);
                perform(&engine, &name, release_operation(fence)).await;
            }
            fences
        }
    });
    let mut fences = run_concurrently(tasks).await.concat();
    fences.sort();
    assert!(
        fences.is_sorted_by(|a, b| a < b),
        "fences are unique: {fences:?}"
    );
}
