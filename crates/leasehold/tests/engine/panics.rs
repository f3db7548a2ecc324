//! A store that panics: every caller gets an answer, and the name stays usable.

use std::time::Duration;

use leasehold::core::{GrantKind, Outcome};
use leasehold::engine::{Config, Engine, WaitLimit};
use leasehold::host::Machine;
use leasehold::store::Store as _;
use leasehold::store::memory::Memory;
use leasehold::{Error, ListRequest};

use crate::faults::{Fault, FaultyStore, Gate};
use crate::support::{LONG, acquire, engine, name, outcome, release, take};

#[tokio::test]
async fn panicking_write_is_retried() {
    let store = FaultyStore::new(Memory::new());
    let (engine, job) = (engine(store.clone()).await, name("job"));
    store.next_swap(Fault::Panic);
    let grant = take(&engine, &job, "me").await;
    assert_eq!(grant.granted, GrantKind::Fresh);
    store.next_swap(Fault::AppliedThenPanic);
    let released = outcome(&engine, &job, release(grant.fence)).await;
    assert_eq!(released, Outcome::Released);
}

#[tokio::test]
async fn panicking_load_is_retried() {
    let store = FaultyStore::new(Memory::new());
    let (engine, job) = (engine(store.clone()).await, name("job"));
    let first = take(&engine, &job, "first").await;
    store.next_load(Fault::Panic);
    let refused = outcome(&engine, &job, acquire("second", LONG)).await;
    assert!(matches!(refused, Outcome::Held(_)), "{refused:?}");
    store.next_load(Fault::Panic);
    let shown = engine.show(&job).await;
    assert!(matches!(shown, Err(Error::Unavailable(_))), "{shown:?}");
    let listed = engine.list(ListRequest::default()).await;
    assert_eq!(listed.expect("it answers").leases.len(), 1);
    let released = outcome(&engine, &job, release(first.fence)).await;
    assert_eq!(released, Outcome::Released);
}

/// Sends a write that is delayed by the gate, so that it panics in a task of the engine and not in the caller's.
async fn acquire_behind(gate: &Gate, engine: &Engine) -> tokio::task::JoinHandle<()> {
    let engine = engine.clone();
    let acquiring = tokio::spawn(async move {
        take(&engine, &name("job"), "me").await;
    });
    gate.entered().await;
    acquiring
}

#[tokio::test]
async fn write_that_panics_in_the_background_is_retried() {
    let store = FaultyStore::new(Memory::new());
    let engine = engine(store.clone()).await;
    let gate = store.hold_swaps();
    store.next_swap(Fault::Panic);
    let acquiring = acquire_behind(&gate, &engine).await;
    gate.open();
    acquiring.await.expect("granted");
}

#[tokio::test]
async fn store_that_always_panics_causes_an_error_within_the_timeout() {
    let store = FaultyStore::new(Memory::new());
    let mut config = Config::default();
    config.timeout = Duration::from_millis(300);
    let started = Engine::start_with(store.clone(), Machine::shared(), config).await;
    let (engine, job) = (started.expect("the store answers"), name("job"));
    for _ in 0..1_000 {
        store.next_swap(Fault::Panic);
        store.next_load(Fault::Panic);
    }
    let answer = engine.perform(&job, acquire("me", LONG), WaitLimit::NONE);
    let answer = answer.await;
    let has_panic_message =
        matches!(&answer, Err(Error::Indeterminate(why)) if why.contains("injected by the test"));
    assert!(has_panic_message, "{answer:?}");
}

#[tokio::test]
async fn engine_does_not_start_on_a_store_that_panics() {
    let store = FaultyStore::new(Memory::new());
    store.next_load(Fault::Panic);
    let started = Engine::start(store.clone()).await.map(drop);
    assert!(matches!(started, Err(Error::Unavailable(_))), "{started:?}");
    assert!(store.load(&[]).await.is_ok());
}
