//! The line in front of a name, as only an engine shows it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Acquire, Fence, Mode, Name, Operation, Outcome, Reserve};
use tokio::sync::Mutex;

use super::bench::{Bench, PATIENT, boot, nonce_hash, side_by_side};
use super::engine::{acquire, perform, release_of};
use crate::engine::{Engine, Patience};

super::promises!(Engine:
    waiters_are_served_in_order_of_arrival,
    a_cancelled_waiter_leaves_the_line,
    a_reservation_keeps_others_out,
    a_reservation_is_withdrawn,
    two_engines_exclude_each_other,
);

const PATIENTLY: Patience = Patience {
    wait: PATIENT,
    within: None,
};

/// Waits until so many are in line.
pub(super) async fn until_waiting(engine: &Engine, name: &Name, count: usize) {
    let give_up = boot() + PATIENT;
    while engine.waiters(name) != count {
        assert!(
            boot() < give_up,
            "{} instead of {count} wait for {name}",
            engine.waiters(name)
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn granted(engine: &Engine, name: &Name, patience: Patience) -> Fence {
    let operation = Operation::Acquire(acquire(nonce_hash()));
    let reply = engine
        .perform(name, operation, patience)
        .await
        .expect("an answer");
    match reply.take().0 {
        Outcome::Granted(grant) => grant.fence,
        other => panic!("{name} was not granted: {other:?}"),
    }
}

async fn waiters_are_served_in_order_of_arrival(bench: Bench) {
    let (engine, name) = (bench.engine().await, bench.name("one"));
    let first = granted(&engine, &name, Patience::NONE).await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for arrival in 0..8 {
        let (engine_here, name_here, served) = (engine.clone(), name.clone(), served.clone());
        waiters.push(tokio::spawn(async move {
            let fence = granted(&engine_here, &name_here, PATIENTLY).await;
            served.lock().await.push((arrival, fence));
            perform(&engine_here, &name_here, release_of(fence)).await;
        }));
        until_waiting(&engine, &name, arrival + 1).await;
    }
    perform(&engine, &name, release_of(first)).await;
    for waiter in waiters {
        waiter.await.expect("it does not fail");
    }
    let served = served.lock().await;
    let arrivals: Vec<_> = served.iter().map(|(arrival, _)| *arrival).collect();
    assert_eq!(arrivals, (0..8).collect::<Vec<_>>());
    assert!(served.is_sorted_by_key(|(_, fence)| *fence), "{served:?}");
    assert_eq!(engine.waiters(&name), 0);
}

async fn a_cancelled_waiter_leaves_the_line(bench: Bench) {
    let (engine, name) = (bench.engine().await, bench.name("one"));
    let first = granted(&engine, &name, Patience::NONE).await;
    let mut waiters = Vec::new();
    for arrival in 0..3 {
        let (engine_here, name_here) = (engine.clone(), name.clone());
        waiters.push(tokio::spawn(async move {
            granted(&engine_here, &name_here, PATIENTLY).await
        }));
        until_waiting(&engine, &name, arrival + 1).await;
    }
    waiters.remove(0).abort();
    until_waiting(&engine, &name, 2).await;
    perform(&engine, &name, release_of(first)).await;
    let second = waiters.remove(0).await.expect("it does not fail");
    assert!(second > first);
    perform(&engine, &name, release_of(second)).await;
    assert!(waiters.remove(0).await.expect("it does not fail") > second);
}

async fn a_reservation_keeps_others_out(bench: Bench) {
    let (engine, name, waiter) = (bench.engine().await, bench.name("one"), nonce_hash());
    let fence = granted(&engine, &name, Patience::NONE).await;
    let reserve = Operation::Reserve(Reserve {
        nonce: waiter,
        mode: Mode::Exclusive,
        // Less than the longest: one that ends later than any could, once the store's time is known better, is not believed.
        span: Duration::from_secs(4),
    });
    let outcome = perform(&engine, &name, reserve.clone()).await;
    assert!(matches!(outcome, Outcome::Reserved { .. }), "{outcome:?}");
    perform(&engine, &name, release_of(fence)).await;
    let outcome = perform(&engine, &name, Operation::Acquire(acquire(nonce_hash()))).await;
    assert!(
        matches!(&outcome, Outcome::Held(held) if held.owner.is_empty()),
        "{outcome:?}"
    );
    let outcome = perform(&engine, &name, Operation::Acquire(acquire(waiter))).await;
    assert!(matches!(outcome, Outcome::Granted(_)), "{outcome:?}");
    let free = bench.name("free");
    assert_eq!(perform(&engine, &free, reserve).await, Outcome::Free);
}

async fn a_reservation_is_withdrawn(bench: Bench) {
    let (engine, name, waiter) = (bench.engine().await, bench.name("one"), nonce_hash());
    let fence = granted(&engine, &name, Patience::NONE).await;
    for span in [Duration::from_secs(5), Duration::ZERO] {
        let reserve = Operation::Reserve(Reserve {
            nonce: waiter,
            mode: Mode::Exclusive,
            span,
        });
        perform(&engine, &name, reserve).await;
    }
    perform(&engine, &name, release_of(fence)).await;
    granted(&engine, &name, Patience::NONE).await;
}

async fn two_engines_exclude_each_other(bench: Bench) {
    let (one, other, name) = (
        bench.engine().await,
        bench.engine().await,
        bench.name("one"),
    );
    let mut highest = Fence::default();
    for round in 0..6 {
        let (holder, contender) = if round % 2 == 0 {
            (&one, &other)
        } else {
            (&other, &one)
        };
        let fence = granted(holder, &name, Patience::NONE).await;
        assert!(fence > highest);
        highest = fence;
        let theirs = Operation::Acquire(Acquire {
            owner: "bob".into(),
            ..acquire(nonce_hash())
        });
        let outcome = perform(contender, &name, theirs).await;
        assert!(matches!(outcome, Outcome::Held(_)), "{outcome:?}");
        // Each may act for the holder: the fence is what counts, not the engine.
        let outcome = perform(contender, &name, release_of(fence)).await;
        assert_eq!(outcome, Outcome::Released);
    }
    let tasks = [one, other].map(|engine| {
        let name = name.clone();
        async move {
            let mut fences = Vec::new();
            for _ in 0..5 {
                let fence = granted(&engine, &name, PATIENTLY).await;
                fences.push(fence);
                perform(&engine, &name, release_of(fence)).await;
            }
            fences
        }
    });
    let mut fences = side_by_side(tasks).await.concat();
    fences.sort();
    assert!(
        fences.is_sorted_by(|a, b| a < b),
        "no fence comes twice: {fences:?}"
    );
}
