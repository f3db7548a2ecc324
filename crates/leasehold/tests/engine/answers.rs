//! Answers of the engine, answers of the store that are lost, and replies that are not taken.

use std::time::Duration;

use leasehold::core::{EndReason, Event, GrantKind, Nonce, Operation, Outcome, Put, Renew};
use leasehold::engine::WaitLimit;
use leasehold::store::memory::Memory;
use leasehold::{ClaimRequest, Error};

use crate::faults::{Fault, FaultyStore};
use crate::support::{LONG, acquire, engine, memory, name, outcome, release, take, update};

#[tokio::test]
async fn operations_that_arrive_during_a_write_share_the_next_batch() {
    let store = FaultyStore::new(Memory::new());
    let engine = engine(store.clone()).await;
    let gate = store.hold_swaps();
    let first = {
        let engine = engine.clone();
        tokio::spawn(async move { take(&engine, &name("first"), "me").await })
    };
    gate.entered().await;
    let others: Vec<_> = (0..63)
        .map(|number| {
            let engine = engine.clone();
            tokio::spawn(async move { take(&engine, &name(&format!("{number}")), "me").await })
        })
        .collect();
    while engine.stats().queued < 63 {
        tokio::task::yield_now().await;
    }
    gate.open();
    first.await.expect("granted");
    for other in others {
        other.await.expect("granted");
    }
    assert_eq!(engine.stats().swaps, 2);
}

#[tokio::test]
async fn dropped_reply_releases_a_fresh_grant_but_not_a_repeated_one() {
    let (engine, job) = (memory().await, name("job"));
    drop(
        engine
            .perform(&job, acquire("gone", LONG), WaitLimit::NONE)
            .await
            .expect("granted"),
    );
    let mine = take(&engine, &job, "me").await;
    drop(
        engine
            .perform(&job, acquire("me", LONG), WaitLimit::NONE)
            .await
            .expect("granted again"),
    );
    let held = outcome(&engine, &job, acquire("other", LONG)).await;
    assert!(matches!(held, Outcome::Held(_)), "{held:?}");
    assert_eq!(
        outcome(&engine, &job, release(mine.fence)).await,
        Outcome::NotHeld,
        "its fence was replaced"
    );
}

#[tokio::test]
async fn lost_answer_is_resolved_by_the_version_of_the_record() {
    let store = FaultyStore::new(Memory::new());
    let (engine, job) = (engine(store.clone()).await, name("job"));
    store.next_swap(Fault::AnswerLost);
    let grant = take(&engine, &job, "me").await;
    assert_eq!(
        grant.granted,
        GrantKind::Fresh,
        "the write had landed, and was not repeated"
    );
    store.next_swap(Fault::AnswerLost);
    assert!(matches!(
        outcome(&engine, &job, update(grant.fence, "step 1")).await,
        Outcome::Renewed(_)
    ));
    store.next_swap(Fault::AnswerLost);
    assert_eq!(
        outcome(&engine, &job, release(grant.fence)).await,
        Outcome::Released
    );
    assert_eq!(&*take(&engine, &job, "next").await.body, "step 1");
}

#[tokio::test]
async fn claim_with_a_lost_answer_is_indeterminate_and_not_empty() {
    let store = FaultyStore::new(Memory::new());
    let (engine, item) = (engine(store.clone()).await, name("item"));
    let put = Operation::Put(Put {
        state: "NEW".into(),
        body: None,
        nonce: None,
    });
    assert_eq!(outcome(&engine, &item, put).await, Outcome::Put);
    let loads = store.hold_loads();
    store.next_swap(Fault::AnswerLost);
    let claim = ClaimRequest {
        state: "NEW".into(),
        prefix: String::new(),
        limit: 1,
        ttl: LONG,
        owner: "me".into(),
        nonce: Nonce::new("mine").expect("a nonce"),
        wait: Duration::ZERO,
    };
    let claiming = tokio::spawn(async move { engine.claim(claim, None).await });
    loads.entered().await;
    // Another write follows, so that the record's version does not show which write landed.
    store.touch(&item).await.expect("the store answers");
    loads.open();
    let answer = claiming.await.expect("no panic");
    assert!(matches!(answer, Err(Error::Indeterminate(_))), "{answer:?}");
}

#[tokio::test]
async fn denial_after_a_lost_answer_is_indeterminate() {
    let store = FaultyStore::new(Memory::new());
    let (engine, job) = (engine(store.clone()).await, name("job"));
    let put = || {
        let put = Operation::Put(Put {
            state: "REQUESTED".into(),
            body: None,
            nonce: None,
        });
        engine.perform(&job, put, WaitLimit::NONE)
    };
    store.next_swap(Fault::AnswerLost);
    store.next_load(Fault::Denied);
    let error = put().await.err();
    assert!(matches!(error, Some(Error::Indeterminate(_))), "{error:?}");
    // Without an earlier unanswered write, the denial is certain.
    store.next_swap(Fault::Denied);
    let error = put().await.err();
    assert!(matches!(error, Some(Error::Denied(_))), "{error:?}");
}

#[tokio::test]
async fn lost_request_is_retried() {
    let store = FaultyStore::new(Memory::new());
    let (engine, job) = (engine(store.clone()).await, name("job"));
    store.next_swap(Fault::RequestLost);
    let grant = take(&engine, &job, "me").await;
    store.next_swap(Fault::Unavailable);
    assert_eq!(
        outcome(&engine, &job, release(grant.fence)).await,
        Outcome::Released
    );
    store.next_load(Fault::Unavailable);
    let renew = Operation::Renew(Renew {
        fence: grant.fence,
        principal: None,
        ttl: None,
    });
    assert_eq!(outcome(&engine, &job, renew).await, Outcome::Fenced);
}

#[tokio::test]
async fn subscriber_receives_all_events_of_a_lease() {
    let (engine, job) = (memory().await, name("job"));
    let mut events = engine.subscribe();
    let grant = take(&engine, &job, "me").await;
    outcome(&engine, &job, update(grant.fence, "step 3")).await;
    outcome(&engine, &job, release(grant.fence)).await;
    let mut received = Vec::new();
    for _ in 0..4 {
        let event = events.next().await.unwrap().expect("none missed");
        assert_eq!(event.name, job);
        received.push(event.event);
    }
    let released = Some(EndReason::Released);
    assert!(
        matches!(
            &received[..],
            [
                Event::Granted(granted),
                Event::Renewed(renewed),
                Event::Updated { state: None },
                Event::Ended { fence, how, .. },
            ] if *fence == grant.fence && granted.fence == renewed.fence && *how == released
        ),
        "{received:?}"
    );
}
