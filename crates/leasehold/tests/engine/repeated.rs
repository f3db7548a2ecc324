//! Writes that a proxy or a driver delivers twice: the second copy conflicts with the first, which has landed.

use std::time::Duration;

use leasehold::ClaimRequest;
use leasehold::core::{
    Break, Fence, GrantKind, Mode, Nonce, Operation, Outcome, Put, Time, holder_margin,
};
use leasehold::engine::{Config, Engine, WaitLimit};
use leasehold::store::memory::Memory;

use crate::faults::{Fault, FaultyStore};
use crate::support::{
    LONG, ManualClock, acquire, acquire_as, engine, expect_grant, name, outcome as outcome_of,
    release, take,
};

fn put(state: &str) -> Operation {
    Operation::Put(Put {
        state: state.into(),
        body: None,
        nonce: None,
    })
}

#[tokio::test]
async fn grant_that_is_delivered_twice_is_granted_once() {
    let store = FaultyStore::new(Memory::new());
    let (engine, job) = (engine(store.clone()).await, name("job"));
    store.next_swap(Fault::DeliveredTwice);
    let reply = engine.perform(&job, acquire("me", LONG), WaitLimit::NONE);
    let reply = reply.await.expect("the store answers");
    let call_times = reply.call_times().expect("it was written");
    let (outcome, deadline) = reply.take();
    let Outcome::Granted(grant) = outcome else {
        panic!("there is no contender: {outcome:?}");
    };
    assert_eq!(grant.granted, GrantKind::Fresh);
    let latest = call_times.sent + (LONG - holder_margin(Duration::ZERO, LONG));
    assert!(deadline.is_some_and(|deadline| call_times.sent < deadline && deadline <= latest));
    let stats = engine.stats();
    assert_eq!((stats.swaps, stats.writes, stats.conflicts), (1, 1, 0));
    // The cached record is the current one: the next write needs no load.
    let released = outcome_of(&engine, &job, release(grant.fence)).await;
    assert_eq!(released, Outcome::Released);
    assert_eq!(engine.stats().loads, 0);
}

#[tokio::test]
async fn claim_that_is_delivered_twice_gets_the_item() {
    let store = FaultyStore::new(Memory::new());
    let (engine, item) = (engine(store.clone()).await, name("item"));
    assert_eq!(outcome_of(&engine, &item, put("NEW")).await, Outcome::Put);
    store.next_swap(Fault::DeliveredTwice);
    let claim = ClaimRequest {
        state: "NEW".into(),
        prefix: String::new(),
        limit: 1,
        ttl: LONG,
        owner: "me".into(),
        nonce: Nonce::new("mine").expect("a nonce"),
        wait: Duration::ZERO,
    };
    let claimed = engine.claim(claim, None).await.expect("the store answers");
    let names: Vec<_> = claimed.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, [item]);
}

#[tokio::test]
async fn shared_release_that_is_delivered_twice_succeeds() {
    let store = FaultyStore::new(Memory::new());
    let (engine, index) = (engine(store.clone()).await, name("index"));
    let share = acquire_as("reader", LONG, Mode::Shared { limit: None });
    let reader = expect_grant(engine.perform(&index, share, WaitLimit::NONE).await);
    store.next_swap(Fault::DeliveredTwice);
    let released = outcome_of(&engine, &index, release(reader.fence)).await;
    assert_eq!(released, Outcome::Released);
}

#[tokio::test]
async fn break_that_is_delivered_twice_ends_only_the_present_holder() {
    let store = FaultyStore::new(Memory::new());
    let (engine, job) = (engine(store.clone()).await, name("job"));
    take(&engine, &job, "stuck").await;
    store.next_swap(Fault::DeliveredTwice);
    let force = Operation::Break(Break::Force {
        fence: None,
        reason: "stuck".into(),
        now: true,
    });
    let broken = outcome_of(&engine, &job, force).await;
    assert_eq!(broken, Outcome::Broken { until: None });
}

#[tokio::test]
async fn retry_after_a_lost_request_recognizes_its_own_write() {
    let store = FaultyStore::new(Memory::new());
    let (engine, job) = (engine(store.clone()).await, name("job"));
    store.next_swap(Fault::RequestLost);
    store.next_swap(Fault::DeliveredTwice);
    assert_eq!(take(&engine, &job, "me").await.granted, GrantKind::Fresh);
}

#[tokio::test]
async fn first_grant_that_is_delivered_twice_after_a_clock_step_gets_a_fence_of_the_new_time() {
    let epoch = 1_700_000_000_000_000;
    let (here, server) = (ManualClock::new(), ManualClock::new());
    let memory = Memory::with_clock(server.clone(), Time::from_micros(epoch));
    let store = FaultyStore::new(memory);
    let engine = Engine::start_with(store.clone(), here, Config::default()).await;
    let engine = engine.expect("the store answers");
    server.set(Duration::from_secs(3_600));
    store.next_swap(Fault::DeliveredTwice);
    let grant = take(&engine, &name("job"), "me").await;
    let now = Time::from_micros(epoch) + Duration::from_secs(3_600);
    assert!(grant.fence > Fence::starting_at(now), "{}", grant.fence);
}
