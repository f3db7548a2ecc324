//! Several leases at once: after a refusal none of them is held.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::{Break, Holder, Name, Nonce, Operation};
use leasehold::engine::{AcquireAllReply, Engine};
use leasehold::store::Store;
use leasehold::store::memory::Memory;
use leasehold::{AcquireAllRequest, Error, Result};
use tokio::task::JoinHandle;

use crate::faults::{Fault, FaultyStore, Gate};
use crate::support::{LONG, engine, name, outcome, release, take, wait_for_waiters};

fn acquire_all(
    engine: &Engine,
    names: &[Name],
    wait: Duration,
) -> JoinHandle<Result<AcquireAllReply>> {
    let request = AcquireAllRequest {
        names: names.to_vec(),
        nonce: Nonce::new("several").expect("a good nonce"),
        owner: "several".into(),
        ttl: LONG,
        wait,
    };
    let engine = engine.clone();
    tokio::spawn(async move { engine.acquire_all(request, None).await })
}

async fn holders(store: &dyn Store, name: &Name) -> Vec<Holder> {
    let loaded = store.load(std::slice::from_ref(name)).await;
    let stored = loaded.expect("answers").value.remove(0);
    stored.map_or_else(Vec::new, |stored| stored.record.holders.clone())
}

/// `b` is held. A caller has acquired `a` of `a` and `b`, its refusal or the store's error is known, and the release of
/// `a` was sent to a store that does not answer before the gate is opened.
async fn refused_while_the_store_is_slow(
    store: &Arc<FaultyStore<Memory>>,
    fault: Option<Fault>,
) -> (JoinHandle<Result<AcquireAllReply>>, Gate, [Name; 2]) {
    let engine = engine(store.clone()).await;
    let names = [name("a"), name("b")];
    take(&engine, &names[1], "holder").await;
    let loads = store.hold_loads();
    let acquiring = acquire_all(&engine, &names, Duration::ZERO);
    loads.entered().await;
    if let Some(fault) = fault {
        store.next_load(fault);
    }
    let swaps = store.hold_swaps();
    loads.open();
    swaps.entered().await;
    (acquiring, swaps, names)
}

#[tokio::test]
async fn refusal_is_returned_after_the_granted_leases_are_released() {
    let store = FaultyStore::new(Memory::new());
    let (acquiring, swaps, [a, b]) = refused_while_the_store_is_slow(&store, None).await;
    assert!(!acquiring.is_finished(), "refused while `a` is still held");
    assert_eq!(holders(&*store, &a).await.len(), 1);
    swaps.open();
    match acquiring.await.expect("does not panic") {
        Ok(AcquireAllReply::Held(name, held)) => {
            assert_eq!((name, &*held.owner), (b, "holder"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(holders(&*store, &a).await, []);
}

#[tokio::test]
async fn error_is_returned_after_the_granted_leases_are_released() {
    let store = FaultyStore::new(Memory::new());
    let denied = Some(Fault::Denied);
    let (acquiring, swaps, [a, _]) = refused_while_the_store_is_slow(&store, denied).await;
    assert!(!acquiring.is_finished(), "refused while `a` is still held");
    swaps.open();
    let answer = acquiring.await.expect("does not panic");
    assert!(matches!(answer, Err(Error::Denied(_))), "{answer:?}");
    assert_eq!(holders(&*store, &a).await, []);
}

#[tokio::test(start_paused = true)]
async fn refusal_with_an_unconfirmed_release_is_indeterminate() {
    let store = FaultyStore::new(Memory::new());
    let (acquiring, _never_opened, _) = refused_while_the_store_is_slow(&store, None).await;
    let answer = acquiring.await.expect("does not panic");
    assert!(matches!(answer, Err(Error::Indeterminate(_))), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn lease_lost_while_waiting_for_others_is_reacquired() {
    let store = Arc::new(Memory::new());
    let engine = engine(store.clone()).await;
    let [a, b] = [name("a"), name("b")];
    let held = take(&engine, &b, "holder").await;
    let acquiring = acquire_all(&engine, &[a.clone(), b.clone()], LONG);
    wait_for_waiters(&engine, &b, 1).await;
    let first = holders(&*store, &a).await[0].fence;
    let force = Operation::Break(Break::Force {
        fence: None,
        reason: "by mistake".into(),
        now: false,
    });
    outcome(&engine, &a, force).await;
    // The renewal after a third of the ttl detects it.
    loop {
        assert!(!acquiring.is_finished(), "{:?}", acquiring.await);
        let holders = holders(&*store, &a).await;
        if holders.first().is_some_and(|holder| holder.fence > first) {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    wait_for_waiters(&engine, &b, 1).await;
    outcome(&engine, &b, release(held.fence)).await;
    match acquiring.await.expect("does not panic") {
        Ok(AcquireAllReply::Granted(granted)) => assert_eq!(granted.len(), 2),
        other => panic!("{other:?}"),
    }
}
