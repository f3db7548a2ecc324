//! Features that only an engine offers: principals, events, closing, probes.

use std::time::Duration;

use leasehold_core::{
    Acquire, Break, Event, Fence, Hash, HolderRef, Kind, Mode, Name, Operation, Outcome, Record,
    Release, Renew, Text, limits,
};

use super::context::{LONG_TTL, TIMEOUT, TestContext, nonce_hash};
use super::store_helpers::{load, put, record};
use crate::engine::{Engine, WaitLimit};
use crate::{Error, ListRequest};

super::define_cases!(Engine:
    only_the_principal_can_act_on_its_lease,
    gate_can_stay_shut_for_years,
    undelivered_fresh_grant_is_released,
    undelivered_repeated_grant_is_kept,
    events_report_grants_and_releases,
    exhausted_fence_is_refused,
    closed_engine_answers_its_waiters,
    probe_writes_and_leaves_no_record,
);

/// Performs an operation without waiting, and returns its outcome.
pub(super) async fn perform(engine: &Engine, name: &Name, operation: Operation) -> Outcome {
    let reply = engine.perform(name, operation, WaitLimit::NONE).await;
    reply.expect("the store answers").take().0
}

pub(super) fn acquire_with(nonce: Hash) -> Acquire {
    Acquire {
        nonce,
        owner: "ada".into(),
        principal: None,
        ttl: LONG_TTL,
        mode: Mode::Exclusive,
        fence: None,
        floor: Fence::default(),
        in_state: None,
    }
}

/// Acquires with a random nonce and returns the fence.
pub(super) async fn granted(engine: &Engine, name: &Name) -> Fence {
    let operation = Operation::Acquire(acquire_with(nonce_hash()));
    match perform(engine, name, operation).await {
        Outcome::Granted(grant) => grant.fence,
        other => panic!("{name} was not granted: {other:?}"),
    }
}

pub(super) fn release_operation(fence: Fence) -> Operation {
    Operation::Release(Release {
        holder: HolderRef::Fence(fence),
        principal: None,
    })
}

pub(super) async fn stored(context: &TestContext, name: &Name) -> Option<Record> {
    load(&*context.store().await, name)
        .await
        .map(|stored| Record::clone(&stored.record))
}

async fn only_the_principal_can_act_on_its_lease(context: TestContext) {
    let (engine, name) = (context.engine().await, context.name("one"));
    let (nonce, ada): (_, Option<Text>) = (nonce_hash(), Some("ada".into()));
    let own = Acquire {
        principal: ada.clone(),
        ..acquire_with(nonce)
    };
    let outcome = perform(&engine, &name, Operation::Acquire(own)).await;
    let Outcome::Granted(grant) = outcome else {
        panic!("not granted: {outcome:?}");
    };
    let renew = |principal| {
        Operation::Renew(Renew {
            fence: grant.fence,
            principal,
            ttl: None,
        })
    };
    for principal in [None, Some("eve".into())] {
        assert_eq!(
            perform(&engine, &name, renew(principal.clone())).await,
            Outcome::Denied
        );
        let stolen = Acquire {
            principal: principal.clone(),
            ..acquire_with(nonce)
        };
        let outcome = perform(&engine, &name, Operation::Acquire(stolen)).await;
        assert!(matches!(outcome, Outcome::Held(_)), "{outcome:?}");
        let release = Release {
            holder: HolderRef::Nonce(nonce),
            principal,
        };
        assert_eq!(
            perform(&engine, &name, Operation::Release(release.clone())).await,
            Outcome::NotHeld
        );
        let break_own = Operation::Break(Break::Own(release));
        assert_eq!(perform(&engine, &name, break_own).await, Outcome::Denied);
    }
    let outcome = perform(&engine, &name, renew(ada)).await;
    assert!(matches!(outcome, Outcome::Renewed(_)), "{outcome:?}");
}

async fn gate_can_stay_shut_for_years(context: TestContext) {
    let engine = context.engine().await;
    let (gate, lock) = (
        context.name_of_kind(Kind::Gate, "device-42"),
        context.name("device-42"),
    );
    let years = |nonce| {
        Operation::Acquire(Acquire {
            ttl: limits::MAX_PERIOD,
            ..acquire_with(nonce)
        })
    };
    let outcome = perform(&engine, &gate, years(nonce_hash())).await;
    assert!(matches!(outcome, Outcome::Granted(_)), "{outcome:?}");
    let outcome = perform(&engine, &gate, years(nonce_hash())).await;
    let Outcome::Held(held) = outcome else {
        panic!("the gate is shut: {outcome:?}");
    };
    assert!(held.retry_after > limits::MAX_PERIOD / 2);
    granted(&engine, &lock).await;
    let answer = engine
        .perform(&lock, years(nonce_hash()), WaitLimit::NONE)
        .await;
    assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
}

async fn undelivered_fresh_grant_is_released(context: TestContext) {
    let (engine, name) = (context.engine().await, context.name("one"));
    let operation = Operation::Acquire(acquire_with(nonce_hash()));
    let reply = engine
        .perform(&name, operation, WaitLimit::NONE)
        .await
        .expect("the store answers");
    assert!(matches!(reply.outcome(), Outcome::Granted(_)));
    drop(reply);
    let wait_limit = WaitLimit {
        wait: TIMEOUT,
        within: None,
    };
    let operation = Operation::Acquire(acquire_with(nonce_hash()));
    let (outcome, _) = engine
        .perform(&name, operation, wait_limit)
        .await
        .expect("the store answers")
        .take();
    assert!(matches!(outcome, Outcome::Granted(_)), "{outcome:?}");
}

async fn undelivered_repeated_grant_is_kept(context: TestContext) {
    let (engine, name) = (context.engine().await, context.name("one"));
    let nonce = nonce_hash();
    let operation = Operation::Acquire(acquire_with(nonce));
    perform(&engine, &name, operation.clone()).await;
    drop(
        engine
            .perform(&name, operation, WaitLimit::NONE)
            .await
            .expect("the store answers"),
    );
    // Its owner may still be at work, so the lease must be left to expire. A release would take effect in this time.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let outcome = perform(
        &engine,
        &name,
        Operation::Acquire(acquire_with(nonce_hash())),
    )
    .await;
    assert!(matches!(outcome, Outcome::Held(_)), "{outcome:?}");
}

async fn events_report_grants_and_releases(context: TestContext) {
    let (engine, name) = (context.engine().await, context.name("one"));
    let mut events = engine.subscribe();
    let fence = granted(&engine, &name).await;
    perform(&engine, &name, release_operation(fence)).await;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let next = events.next().await.expect("the engine runs");
        let event = next.expect("no event was missed");
        if event.name == name {
            seen.push(event.event);
        }
    }
    assert!(
        matches!(&seen[0], Event::Granted(holder) if holder.fence == fence),
        "{seen:?}"
    );
    assert!(
        matches!(&seen[1], Event::Ended { fence: of, .. } if *of == fence),
        "{seen:?}"
    );
}

async fn exhausted_fence_is_refused(context: TestContext) {
    let (engine, name) = (context.engine().await, context.name("end"));
    let end = Record {
        fence: Fence::MAX,
        ..record("")
    };
    put(&*context.store().await, &name, None, &end).await;
    let outcome = perform(
        &engine,
        &name,
        Operation::Acquire(acquire_with(nonce_hash())),
    )
    .await;
    assert_eq!(outcome, Outcome::Exhausted);
    assert_eq!(stored(&context, &name).await, Some(end));
}

async fn closed_engine_answers_its_waiters(context: TestContext) {
    let (engine, name) = (context.engine().await, context.name("one"));
    granted(&engine, &name).await;
    let (waiting, awaited) = (engine.clone(), name.clone());
    let waiter = tokio::spawn(async move {
        let wait_limit = WaitLimit {
            wait: TIMEOUT * 3,
            within: None,
        };
        let operation = Operation::Acquire(acquire_with(nonce_hash()));
        waiting
            .perform(&awaited, operation, wait_limit)
            .await
            .map(|reply| reply.take().0)
    });
    super::engine_waiting::wait_for_waiters(&engine, &name, 1).await;
    engine.close().await;
    let answer = waiter.await.expect("the task does not panic");
    assert!(
        matches!(answer, Ok(Outcome::Held(_)) | Err(Error::Unavailable(_))),
        "{answer:?}"
    );
}

async fn probe_writes_and_leaves_no_record(context: TestContext) {
    let engine = context.engine().await;
    let written = || engine.metrics().swap.read().1;
    let before = written();
    for _ in 0..2 {
        engine.probe().await.expect("the store accepts writes");
    }
    assert_eq!(written() - before, 4, "each probe inserts and deletes");
    let request = ListRequest {
        prefix: "leasehold/readyz/".into(),
        ..ListRequest::default()
    };
    let remaining = engine.list(request).await.expect("the store answers");
    assert!(remaining.leases.is_empty(), "{:?}", remaining.leases);
}
