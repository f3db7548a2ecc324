//! Closing: every waiter gets a correct answer, and no waiter becomes a holder.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Name;
use leasehold::engine::{Engine, Reply, WaitLimit};
use leasehold::store::Store as _;
use leasehold::store::memory::Memory;
use leasehold::{Error, Result};
use tokio::task::JoinHandle;

use crate::faults::{Fault, FaultyStore};
use crate::support::{LONG, acquire, engine, name, release, take, wait_for_waiters, wait_up_to};

type Answer = JoinHandle<Result<Reply>>;

/// An engine with a holder and a waiter. The release of the holder and the grant of the waiter are one write.
struct Setup {
    engine: Engine,
    name: Name,
    waiter: Answer,
    holder: leasehold::core::Fence,
}

impl Setup {
    async fn new(store: &Arc<FaultyStore<Memory>>) -> Self {
        let (engine, name) = (engine(store.clone()).await, name("job"));
        let holder = take(&engine, &name, "holder").await.fence;
        let waiter = {
            let (engine, name) = (engine.clone(), name.clone());
            let acquire = acquire("waiter", LONG);
            tokio::spawn(async move { engine.perform(&name, acquire, wait_up_to(LONG)).await })
        };
        wait_for_waiters(&engine, &name, 1).await;
        Self {
            engine,
            name,
            waiter,
            holder,
        }
    }

    fn release(&self) -> Answer {
        let (engine, name, holder) = (self.engine.clone(), self.name.clone(), self.holder);
        tokio::spawn(async move {
            engine
                .perform(&name, release(holder), WaitLimit::NONE)
                .await
        })
    }

    /// Starts to close the engine while a call is in flight.
    async fn close(&self) -> JoinHandle<()> {
        let engine = self.engine.clone();
        let closing = tokio::spawn(async move { engine.close().await });
        // The runtime has one thread, so the engine has started to close when this task continues.
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

async fn holders(store: &FaultyStore<Memory>, name: &Name) -> usize {
    let loaded = store.load(std::slice::from_ref(name)).await;
    let stored = loaded.expect("the store answers").value.remove(0);
    stored.expect("a record").record.holders.len()
}

#[tokio::test]
async fn waiter_with_an_unanswered_grant_is_indeterminate_and_the_grant_is_undone() {
    let store = FaultyStore::new(Memory::new());
    let setup = Setup::new(&store).await;
    let loads = store.hold_loads();
    store.next_swap(Fault::AnswerLost);
    let releasing = setup.release();
    // The engine is about to load the record.
    loads.entered().await;
    let (closing, name) = (setup.close().await, setup.name.clone());
    setup.assert_indeterminate().await;
    loads.open();
    closing.await.expect("it does not panic");
    let _ = releasing.await;
    assert_eq!(holders(&store, &name).await, 0, "the grant is undone");
}

#[tokio::test]
async fn waiter_whose_grant_is_under_way_is_answered_when_the_answer_is_lost() {
    let store = FaultyStore::new(Memory::new());
    let setup = Setup::new(&store).await;
    let swaps = store.hold_swaps();
    store.next_swap(Fault::AnswerLost);
    let releasing = setup.release();
    swaps.entered().await;
    let (closing, name) = (setup.close().await, setup.name.clone());
    swaps.open();
    setup.assert_indeterminate().await;
    closing.await.expect("it does not panic");
    let _ = releasing.await;
    assert_eq!(holders(&store, &name).await, 0, "the grant is undone");
}

#[tokio::test]
async fn waiter_that_leaves_after_an_unanswered_grant_leaves_nothing_behind() {
    let store = FaultyStore::new(Memory::new());
    let setup = Setup::new(&store).await;
    let loads = store.hold_loads();
    store.next_swap(Fault::AnswerLost);
    let releasing = setup.release();
    loads.entered().await;
    setup.waiter.abort();
    assert!(setup.waiter.await.expect_err("aborted").is_cancelled());
    loads.open();
    let _ = releasing.await;
    setup.engine.close().await;
    assert_eq!(holders(&store, &setup.name).await, 0);
}

#[tokio::test]
async fn waiter_whose_grant_loses_is_not_granted_by_a_closing_engine() {
    let store = FaultyStore::new(Memory::new());
    let setup = Setup::new(&store).await;
    let swaps = store.hold_swaps();
    store.next_swap(Fault::Conflict);
    let releasing = setup.release();
    swaps.entered().await;
    let (closing, name) = (setup.close().await, setup.name.clone());
    swaps.open();
    let answer = tokio::time::timeout(Duration::from_secs(60), setup.waiter).await;
    let answer = answer.expect("it is answered").expect("it does not panic");
    assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
    closing.await.expect("it does not panic");
    let _ = releasing.await;
    assert_eq!(holders(&store, &name).await, 0);
}
