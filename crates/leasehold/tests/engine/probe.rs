//! Whether the store takes writes, and whether it answers.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Name;
use leasehold::engine::{Config, Engine};
use leasehold::store::memory::Memory;
use leasehold::{Error, ListRequest};

use crate::faults::{Fault, Faulty};
use crate::support::{Manual, name, take};

async fn on(store: Arc<Faulty<Memory>>, host: Arc<Manual>) -> Engine {
    let engine = Engine::start_with(store, host, Config::default()).await;
    engine.expect("starts")
}

async fn names(engine: &Engine) -> Vec<Name> {
    let listing = engine.list(ListRequest::default()).await;
    let leases = listing.expect("the store answers").leases;
    leases.into_iter().map(|(name, _)| name).collect()
}

#[tokio::test]
async fn a_probe_fails_when_writes_fail_although_reads_are_answered() {
    let store = Faulty::new(Memory::new());
    let engine = on(store.clone(), Manual::new()).await;
    engine.probe().await.expect("writes work");
    for (fault, expected) in [
        (Fault::Unavailable, "unavailable"),
        (Fault::Denied, "denied"),
        (Fault::Panics, "panics"),
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
async fn a_probe_deletes_what_an_interrupted_one_has_left() {
    let store = Faulty::new(Memory::new());
    let engine = on(store.clone(), Manual::new()).await;
    store.next_swap(Fault::AppliedButLost);
    let interrupted = engine.probe().await;
    assert!(
        matches!(interrupted, Err(Error::Indeterminate(_))),
        "{interrupted:?}"
    );
    assert_eq!(names(&engine).await.len(), 1);
    engine.probe().await.expect("writes work");
    assert_eq!(names(&engine).await, []);

    store.next_swap(Fault::Repeated);
    engine.probe().await.expect("writes work");
    assert_eq!(names(&engine).await, []);
}

#[tokio::test]
async fn the_store_is_up_again_once_a_call_of_a_second_later_is_answered() {
    let store = Faulty::new(Memory::new());
    let host = Manual::new();
    let engine = on(store.clone(), host.clone()).await;
    let is_up = || !engine.measures().store.is_failing();
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
