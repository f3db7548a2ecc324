//! The probe of the store, and its health.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Name;
use leasehold::engine::{Config, Engine};
use leasehold::store::memory::Memory;
use leasehold::{Error, ListRequest};

use crate::faults::{Fault, FaultyStore};
use crate::support::{ManualClock, name, take};

async fn start(store: Arc<FaultyStore<Memory>>, host: Arc<ManualClock>) -> Engine {
    let engine = Engine::start_with(store, host, Config::default()).await;
    engine.expect("starts")
}

async fn names(engine: &Engine) -> Vec<Name> {
    let listing = engine.list(ListRequest::default()).await;
    let leases = listing.expect("the store answers").leases;
    leases.into_iter().map(|(name, _)| name).collect()
}

#[tokio::test]
async fn probe_fails_when_writes_fail_although_reads_succeed() {
    let store = FaultyStore::new(Memory::new());
    let engine = start(store.clone(), ManualClock::new()).await;
    engine.probe().await.expect("writes work");
    for (fault, expected) in [
        (Fault::Unavailable, "unavailable"),
        (Fault::Denied, "denied"),
        (Fault::Panic, "panics"),
    ] {
        store.next_swap(fault);
        let failed = engine.probe().await;
        assert!(
            matches!(failed, Err(Error::Unavailable(_) | Error::Denied(_))),
            "{expected}: {failed:?}"
        );
        engine.show(&name("job")).await.expect("reads work");
    }
    engine.probe().await.expect("writes work again");
    assert_eq!(names(&engine).await, []);
}

#[tokio::test]
async fn probe_deletes_the_record_of_an_interrupted_probe() {
    let store = FaultyStore::new(Memory::new());
    let engine = start(store.clone(), ManualClock::new()).await;
    store.next_swap(Fault::AnswerLost);
    let interrupted = engine.probe().await;
    assert!(
        matches!(interrupted, Err(Error::Indeterminate(_))),
        "{interrupted:?}"
    );
    assert_eq!(names(&engine).await.len(), 1);
    engine.probe().await.expect("writes work");
    assert_eq!(names(&engine).await, []);

    store.next_swap(Fault::DeliveredTwice);
    engine.probe().await.expect("writes work");
    assert_eq!(names(&engine).await, []);
}

#[tokio::test]
async fn store_is_healthy_again_one_second_after_the_last_failure() {
    let store = FaultyStore::new(Memory::new());
    let host = ManualClock::new();
    let engine = start(store.clone(), host.clone()).await;
    let is_up = || !engine.metrics().store.is_failing();
    take(&engine, &name("job"), "nonce").await;
    assert!(is_up());
    host.set(Duration::from_secs(10));
    store.next_swap(Fault::Unavailable);
    engine.probe().await.unwrap_err();
    assert!(!is_up());
    host.set(Duration::from_millis(10_900));
    engine.probe().await.expect("answered");
    assert!(!is_up(), "too soon to say");
    host.set(Duration::from_secs(11));
    engine.show(&name("job")).await.expect("answered");
    assert!(is_up());
}
