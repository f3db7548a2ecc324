//! Puts with lost answers while another engine writes the same item.

use std::sync::Arc;

use leasehold::core::{Hash, Operation, Outcome, Put};
use leasehold::engine::{Engine, WaitLimit};
use leasehold::store::memory::Memory;
use leasehold::{Error, Result};
use tokio::task::JoinHandle;

use crate::faults::{Fault, FaultyStore, Gate};
use crate::support::{engine, name, outcome, take};

fn put(state: &str, nonce: &str) -> Operation {
    Operation::Put(Put {
        state: state.into(),
        body: None,
        nonce: Some(Hash::of(&[nonce.as_bytes()])),
    })
}

/// Two engines on one store. A put of the first engine has landed without an answer, and its record is about to be
/// loaded.
struct Setup {
    store: Arc<FaultyStore<Memory>>,
    putting: JoinHandle<Result<Outcome>>,
    look_up: Gate,
    other: Engine,
}

impl Setup {
    async fn new() -> Self {
        let store = FaultyStore::new(Memory::new());
        let (first, other) = (engine(store.clone()).await, engine(store.clone()).await);
        let look_up = store.hold_loads();
        store.next_swap(Fault::AnswerLost);
        let putting = tokio::spawn(async move {
            let item = name("item");
            let answer = first.perform(&item, put("FIRST", "1"), WaitLimit::NONE);
            answer.await.map(|reply| reply.take().0)
        });
        look_up.entered().await;
        Self {
            store,
            putting,
            look_up,
            other,
        }
    }

    /// Returns the answer to the first put, and the state of the item afterwards.
    async fn end(self) -> (Result<Outcome>, String) {
        self.look_up.open();
        let answer = self.putting.await.expect("it does not panic");
        let reader = engine(self.store).await;
        let view = reader.show(&name("item")).await.expect("it answers");
        let state = view.expect("a record").record.state;
        (answer, state.expect("an item").label.to_string())
    }
}

#[tokio::test]
async fn unanswered_put_is_not_repeated_after_another_put() {
    let setup = Setup::new().await;
    let second = outcome(&setup.other, &name("item"), put("SECOND", "2")).await;
    assert_eq!(second, Outcome::Put);
    let (answer, state) = setup.end().await;
    assert_eq!(state, "SECOND");
    assert!(matches!(answer, Err(Error::Indeterminate(_))), "{answer:?}");
}

#[tokio::test]
async fn unanswered_put_is_confirmed_while_it_is_the_last_one() {
    let setup = Setup::new().await;
    take(&setup.other, &name("item"), "worker").await;
    let (answer, state) = setup.end().await;
    assert_eq!((answer, &*state), (Ok(Outcome::Put), "FIRST"));
}
