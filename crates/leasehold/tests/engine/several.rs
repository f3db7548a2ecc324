//! Several leases at once: after a refusal none of them is held.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::{Break, Holder, Name, Nonce, Operation};
use leasehold::engine::{Engine, Several};
use leasehold::store::Store;
use leasehold::store::memory::Memory;
use leasehold::{AcquireAllRequest, Error, Result};
use tokio::task::JoinHandle;

use crate::faults::{Fault, Faulty, Gate};
use crate::support::{LONG, engine, in_line, name, outcome, release, take};

fn acquire_all(engine: &Engine, names: &[Name], wait: Duration) -> JoinHandle<Result<Several>> {
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

/// `b` is held. A caller asks for `a` and `b`: it has been granted `a`, its refusal or the store's error is known, and
/// the release of `a` is on its way to a store that does not answer before the gate is opened.
async fn refused_while_the_store_is_slow(
    store: &Arc<Faulty<Memory>>,
    fault: Option<Fault>,
) -> (JoinHandle<Result<Several>>, Gate, [Name; 2]) {
    let engine = engine(store.clone()).await;
    let names = [name("a"), name("b")];
    take(&engine, &names[1], "holder").await;
    let loads = store.hold_loads();
    let asked = acquire_all(&engine, &names, Duration::ZERO);
    loads.entered().await;
    if let Some(fault) = fault {
        store.next_load(fault);
    }
    let swaps = store.hold_swaps();
    loads.open();
    swaps.entered().await;
    (asked, swaps, names)
}

#[tokio::test]
async fn refusal_is_returned_after_the_taken_leases_are_released() {
    let store = Faulty::new(Memory::new());
    let (asked, swaps, [a, b]) = refused_while_the_store_is_slow(&store, None).await;
    assert!(!asked.is_finished(), "refused while `a` is still held");
    assert_eq!(holders(&*store, &a).await.len(), 1);
    swaps.open();
    match asked.await.expect("does not panic") {
        Ok(Several::Held(name, held)) => {
            assert_eq!((name, &*held.owner), (b, "holder"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(holders(&*store, &a).await, []);
}

#[tokio::test]
async fn an_error_leaves_after_what_was_taken_is_released() {
    let store = Faulty::new(Memory::new());
    let denied = Some(Fault::Denied);
    let (asked, swaps, [a, _]) = refused_while_the_store_is_slow(&store, denied).await;
    assert!(!asked.is_finished(), "refused while `a` is still held");
    swaps.open();
    let answer = asked.await.expect("does not panic");
    assert!(matches!(answer, Err(Error::Denied(_))), "{answer:?}");
    assert_eq!(holders(&*store, &a).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_whose_release_is_not_confirmed_is_indeterminate() {
    let store = Faulty::new(Memory::new());
    let (asked, _never_opened, _) = refused_while_the_store_is_slow(&store, None).await;
    let answer = asked.await.expect("does not panic");
    assert!(matches!(answer, Err(Error::Indeterminate(_))), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_while_the_others_are_waited_for_is_taken_again() {
    let store = Arc::new(Memory::new());
    let engine = engine(store.clone()).await;
    let [a, b] = [name("a"), name("b")];
    let held = take(&engine, &b, "holder").await;
    let asked = acquire_all(&engine, &[a.clone(), b.clone()], LONG);
    in_line(&engine, &b, 1).await;
    let first = holders(&*store, &a).await[0].fence;
    let force = Operation::Break(Break::Force {
        fence: None,
        reason: "by mistake".into(),
        now: false,
    });
    outcome(&engine, &a, force).await;
    // The renewal after a third of the ttl finds out.
    loop {
        assert!(!asked.is_finished(), "{:?}", asked.await);
        let holders = holders(&*store, &a).await;
        if holders.first().is_some_and(|holder| holder.fence > first) {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    in_line(&engine, &b, 1).await;
    outcome(&engine, &b, release(held.fence)).await;
    match asked.await.expect("does not panic") {
        Ok(Several::Granted(granted)) => assert_eq!(granted.len(), 2),
        other => panic!("{other:?}"),
    }
}
