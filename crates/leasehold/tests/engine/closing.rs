//! Closing: every waiter gets a correct answer, and none leaves a holder in the store.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Name;
use leasehold::engine::{Engine, Patience, Reply};
use leasehold::store::Store as _;
use leasehold::store::memory::Memory;
use leasehold::{Error, Result};
use tokio::task::JoinHandle;

use crate::faults::{Fault, Faulty};
use crate::support::{LONG, acquire, engine, in_line, name, release, take, waiting};

type Answer = JoinHandle<Result<Reply>>;

/// An engine with a waiter whose grant is about to be sent together with the release of the holder.
struct Scene {
    engine: Engine,
    name: Name,
    waiter: Answer,
    holder: leasehold::core::Fence,
}

impl Scene {
    async fn new(store: &Arc<Faulty<Memory>>) -> Self {
        let (engine, name) = (engine(store.clone()).await, name("job"));
        let holder = take(&engine, &name, "holder").await.fence;
        let waiter = {
            let (engine, name) = (engine.clone(), name.clone());
            let acquire = acquire("waiter", LONG);
            tokio::spawn(async move { engine.perform(&name, acquire, waiting(LONG)).await })
        };
        in_line(&engine, &name, 1).await;
        Self {
            engine,
            name,
            waiter,
            holder,
        }
    }

    fn release(&self) -> Answer {
        let (engine, name, holder) = (self.engine.clone(), self.name.clone(), self.holder);
        tokio::spawn(async move { engine.perform(&name, release(holder), Patience::NONE).await })
    }

    /// Closes the engine, which is still concluding what is under way.
    async fn close(&self) -> JoinHandle<()> {
        let engine = self.engine.clone();
        let closing = tokio::spawn(async move { engine.close().await });
        // The runtime has one thread: by the next turn the engine has begun to close.
        tokio::task::yield_now().await;
        assert!(!closing.is_finished());
        closing
    }

    async fn assert_indeterminate(self) {
        let answer = tokio::time::timeout(Duration::from_secs(60), self.waiter).await;
        let answer = answer.expect("it is answered").expect("it does not panic");
        assert!(matches!(answer, Err(Error::Indeterminate(_))), "{answer:?}");
    }
}

async fn holders(store: &Faulty<Memory>, name: &Name) -> usize {
    let loaded = store.load(std::slice::from_ref(name)).await;
    let stored = loaded.expect("the store answers").value.remove(0);
    stored.expect("it is there").record.holders.len()
}

#[tokio::test]
async fn waiter_with_an_unanswered_grant_is_indeterminate_and_the_grant_is_undone() {
    let store = Faulty::new(Memory::new());
    let scene = Scene::new(&store).await;
    let loads = store.hold_loads();
    store.next_swap(Fault::AppliedButLost);
    let releasing = scene.release();
    // The lost write is about to be looked up.
    loads.entered().await;
    let (closing, name) = (scene.close().await, scene.name.clone());
    scene.assert_indeterminate().await;
    loads.open();
    closing.await.expect("it does not panic");
    let _ = releasing.await;
    assert_eq!(holders(&store, &name).await, 0, "the grant is undone");
}

#[tokio::test]
async fn waiter_whose_grant_is_under_way_is_answered_when_the_answer_is_lost() {
    let store = Faulty::new(Memory::new());
    let scene = Scene::new(&store).await;
    let swaps = store.hold_swaps();
    store.next_swap(Fault::AppliedButLost);
    let releasing = scene.release();
    swaps.entered().await;
    let (closing, name) = (scene.close().await, scene.name.clone());
    swaps.open();
    scene.assert_indeterminate().await;
    closing.await.expect("it does not panic");
    let _ = releasing.await;
    assert_eq!(holders(&store, &name).await, 0, "the grant is undone");
}

#[tokio::test]
async fn waiter_that_leaves_after_an_unanswered_grant_leaves_nothing_behind() {
    let store = Faulty::new(Memory::new());
    let scene = Scene::new(&store).await;
    let loads = store.hold_loads();
    store.next_swap(Fault::AppliedButLost);
    let releasing = scene.release();
    loads.entered().await;
    scene.waiter.abort();
    assert!(scene.waiter.await.expect_err("aborted").is_cancelled());
    loads.open();
    let _ = releasing.await;
    scene.engine.close().await;
    assert_eq!(holders(&store, &scene.name).await, 0);
}

#[tokio::test]
async fn waiter_whose_grant_loses_is_not_granted_by_a_closing_engine() {
    let store = Faulty::new(Memory::new());
    let scene = Scene::new(&store).await;
    let swaps = store.hold_swaps();
    store.next_swap(Fault::Overtaken);
    let releasing = scene.release();
    swaps.entered().await;
    let (closing, name) = (scene.close().await, scene.name.clone());
    swaps.open();
    let answer = tokio::time::timeout(Duration::from_secs(60), scene.waiter).await;
    let answer = answer.expect("it is answered").expect("it does not panic");
    assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
    closing.await.expect("it does not panic");
    let _ = releasing.await;
    assert_eq!(holders(&store, &name).await, 0);
}
