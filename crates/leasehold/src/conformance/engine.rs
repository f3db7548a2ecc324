//! What only an engine offers: work items, purging, principals, events.

use std::time::Duration;

use leasehold_core::{
    Acquire, Break, Event, Fence, Hash, HolderRef, Kind, Mode, Name, Operation, Outcome, Record,
    Release, Renew, Text, limits,
};

use super::bench::{Bench, LONG, PATIENT, nonce_hash};
use super::store_kit::{load, put, record};
use crate::engine::{Engine, Patience};
use crate::{Error, ListRequest};

super::promises!(Engine:
    only_the_principal_acts,
    a_gate_may_be_shut_for_years,
    a_grant_that_nobody_takes_is_released,
    a_grant_again_that_nobody_takes_stays,
    events_tell_what_happened,
    a_corrupt_end_of_fences_is_refused,
    a_closed_engine_answers,
    a_probe_writes_and_leaves_nothing_behind,
);

/// Performs an operation and takes its outcome.
pub(super) async fn perform(engine: &Engine, name: &Name, operation: Operation) -> Outcome {
    let reply = engine.perform(name, operation, Patience::NONE).await;
    reply.expect("the store answers").take().0
}

pub(super) fn acquire(nonce: Hash) -> Acquire {
    Acquire {
        nonce,
        owner: "ada".into(),
        principal: None,
        ttl: LONG,
        mode: Mode::Exclusive,
        fence: None,
        floor: Fence::default(),
        in_state: None,
    }
}

/// Acquires by a nonce of its own; the fence.
pub(super) async fn granted(engine: &Engine, name: &Name) -> Fence {
    let operation = Operation::Acquire(acquire(nonce_hash()));
    match perform(engine, name, operation).await {
        Outcome::Granted(grant) => grant.fence,
        other => panic!("{name} was not granted: {other:?}"),
    }
}

pub(super) fn release_of(fence: Fence) -> Operation {
    Operation::Release(Release {
        holder: HolderRef::Fence(fence),
        principal: None,
    })
}

pub(super) async fn stored(bench: &Bench, name: &Name) -> Option<Record> {
    load(&*bench.store().await, name)
        .await
        .map(|stored| Record::clone(&stored.record))
}

async fn only_the_principal_acts(bench: Bench) {
    let (engine, name) = (bench.engine().await, bench.name("one"));
    let (nonce, ada): (_, Option<Text>) = (nonce_hash(), Some("ada".into()));
    let mine = Acquire {
        principal: ada.clone(),
        ..acquire(nonce)
    };
    let outcome = perform(&engine, &name, Operation::Acquire(mine)).await;
    let Outcome::Granted(grant) = outcome else {
        panic!("it was not granted: {outcome:?}");
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
        let theft = Acquire {
            principal: principal.clone(),
            ..acquire(nonce)
        };
        let outcome = perform(&engine, &name, Operation::Acquire(theft)).await;
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

async fn a_gate_may_be_shut_for_years(bench: Bench) {
    let engine = bench.engine().await;
    let (gate, lock) = (
        bench.of_kind(Kind::Gate, "device-42"),
        bench.name("device-42"),
    );
    let years = |nonce| {
        Operation::Acquire(Acquire {
            ttl: limits::MAX_PERIOD,
            ..acquire(nonce)
        })
    };
    let outcome = perform(&engine, &gate, years(nonce_hash())).await;
    assert!(matches!(outcome, Outcome::Granted(_)), "{outcome:?}");
    let outcome = perform(&engine, &gate, years(nonce_hash())).await;
    let Outcome::Held(held) = outcome else {
        panic!("it is shut: {outcome:?}");
    };
    assert!(held.retry_after > limits::MAX_PERIOD / 2);
    granted(&engine, &lock).await;
    let answer = engine
        .perform(&lock, years(nonce_hash()), Patience::NONE)
        .await;
    assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
}

async fn a_grant_that_nobody_takes_is_released(bench: Bench) {
    let (engine, name) = (bench.engine().await, bench.name("one"));
    let operation = Operation::Acquire(acquire(nonce_hash()));
    let reply = engine
        .perform(&name, operation, Patience::NONE)
        .await
        .expect("an answer");
    assert!(matches!(reply.outcome(), Outcome::Granted(_)));
    drop(reply);
    let patience = Patience {
        wait: PATIENT,
        within: None,
    };
    let operation = Operation::Acquire(acquire(nonce_hash()));
    let (outcome, _) = engine
        .perform(&name, operation, patience)
        .await
        .expect("an answer")
        .take();
    assert!(matches!(outcome, Outcome::Granted(_)), "{outcome:?}");
}

async fn a_grant_again_that_nobody_takes_stays(bench: Bench) {
    let (engine, name) = (bench.engine().await, bench.name("one"));
    let mine = nonce_hash();
    let operation = Operation::Acquire(acquire(mine));
    perform(&engine, &name, operation.clone()).await;
    drop(
        engine
            .perform(&name, operation, Patience::NONE)
            .await
            .expect("an answer"),
    );
    // Its owner may still be at work: it is left to expire. Long enough for a release to have come through.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let outcome = perform(&engine, &name, Operation::Acquire(acquire(nonce_hash()))).await;
    assert!(matches!(outcome, Outcome::Held(_)), "{outcome:?}");
}

async fn events_tell_what_happened(bench: Bench) {
    let (engine, name) = (bench.engine().await, bench.name("one"));
    let mut events = engine.subscribe();
    let fence = granted(&engine, &name).await;
    perform(&engine, &name, release_of(fence)).await;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let told = events.next().await.expect("the engine is there");
        let happened = told.expect("none missed");
        if happened.name == name {
            seen.push(happened.event);
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

async fn a_corrupt_end_of_fences_is_refused(bench: Bench) {
    let (engine, name) = (bench.engine().await, bench.name("end"));
    let end = Record {
        fence: Fence::MAX,
        ..record("")
    };
    put(&*bench.store().await, &name, None, &end).await;
    let outcome = perform(&engine, &name, Operation::Acquire(acquire(nonce_hash()))).await;
    assert_eq!(outcome, Outcome::Exhausted);
    assert_eq!(stored(&bench, &name).await, Some(end));
}

async fn a_closed_engine_answers(bench: Bench) {
    let (engine, name) = (bench.engine().await, bench.name("one"));
    granted(&engine, &name).await;
    let (waiting, asked) = (engine.clone(), name.clone());
    let waiter = tokio::spawn(async move {
        let patience = Patience {
            wait: PATIENT * 3,
            within: None,
        };
        let operation = Operation::Acquire(acquire(nonce_hash()));
        waiting
            .perform(&asked, operation, patience)
            .await
            .map(|reply| reply.take().0)
    });
    super::engine_waiting::until_waiting(&engine, &name, 1).await;
    engine.close().await;
    let answer = waiter.await.expect("it does not fail");
    assert!(
        matches!(answer, Ok(Outcome::Held(_)) | Err(Error::Unavailable(_))),
        "{answer:?}"
    );
}

async fn a_probe_writes_and_leaves_nothing_behind(bench: Bench) {
    let engine = bench.engine().await;
    let written = || engine.measures().swap.read().1;
    let before = written();
    for _ in 0..2 {
        engine.probe().await.expect("the store takes writes");
    }
    assert_eq!(written() - before, 4, "each inserts and deletes");
    let request = ListRequest {
        prefix: "leasehold/readyz/".into(),
        ..ListRequest::default()
    };
    let left = engine.list(request).await.expect("the store answers");
    assert!(left.leases.is_empty(), "{:?}", left.leases);
}
