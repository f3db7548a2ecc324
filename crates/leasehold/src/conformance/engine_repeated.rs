//! An engine whose writes are sent twice on the way to the store, as by a proxy or a driver that retries.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::{Acquire, GrantKind, Mode, Name, Operation, Outcome};

use super::bench::{Bench, LONG, nonce};
use super::claims::{claim, claimed, put, state};
use super::engine::{acquire, perform, release_of};
use super::store_kit::{load, put as put_record, record, write};
use crate::Result;
use crate::engine::Engine;
use crate::store::{Answer, Facts, Page, Query, Store, Stored, Swapped, Write};

super::promises!(Engine:
    a_repeated_write_conflicts_with_itself,
    a_repeated_grant_is_fresh,
    a_repeated_claim_gets_the_item,
    a_repeated_release_of_a_shared_lease_is_released,
);

/// Sends every batch of writes twice. The answer is the second one.
struct Repeating(Arc<dyn Store>);

#[async_trait]
impl Store for Repeating {
    fn facts(&self) -> Facts {
        self.0.facts()
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        self.0.load(names).await
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        self.0.swap(writes.clone()).await?;
        self.0.swap(writes).await
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        self.0.find(query).await
    }

    fn blocks(&self) -> bool {
        self.0.blocks()
    }

    fn is_dear(&self) -> bool {
        self.0.is_dear()
    }

    fn is_near(&self) -> bool {
        self.0.is_near()
    }
}

async fn engine(bench: &Bench) -> Engine {
    let store = Arc::new(Repeating(bench.store().await));
    Engine::start(store).await.expect("the engine starts")
}

/// What lets an engine recognise its own write.
async fn a_repeated_write_conflicts_with_itself(bench: Bench) {
    let (store, name) = (bench.store().await, bench.name("one"));
    let first = put_record(&*store, &name, None, &record("first")).await;
    let second = write(&name, Some(&first), &record("second"));
    let (id, _) = second.put.clone().expect("it writes");
    let repeated = Repeating(store.clone()).swap(vec![second]).await;
    let swapped = repeated.expect("the store answers").value;
    let [Swapped::Conflict(Some(current))] = &swapped[..] else {
        panic!("the second copy loses: {swapped:?}");
    };
    assert_eq!(current.version.write, id);
    let stored = load(&*store, &name).await;
    assert_eq!(stored.as_ref(), Some(current), "with the tag that it has");
}

async fn a_repeated_grant_is_fresh(bench: Bench) {
    let (engine, name) = (engine(&bench).await, bench.name("one"));
    for _ in 0..3 {
        let asked = Operation::Acquire(acquire(nonce().hash(&name)));
        let granted = perform(&engine, &name, asked).await;
        let Outcome::Granted(grant) = granted else {
            panic!("it is free: {granted:?}");
        };
        assert_eq!(grant.granted, GrantKind::Fresh);
        let released = perform(&engine, &name, release_of(grant.fence)).await;
        assert_eq!(released, Outcome::Released);
    }
}

async fn a_repeated_claim_gets_the_item(bench: Bench) {
    let (engine, new) = (engine(&bench).await, state(&bench, "NEW"));
    let names: Vec<_> = ["a", "b", "c"].map(|name| bench.name(name)).into();
    for name in &names {
        put(&engine, name, &new, "").await;
    }
    let items = claimed(&engine, claim(&new, 3)).await;
    assert_eq!(items.len(), 3, "{items:?}");
}

async fn a_repeated_release_of_a_shared_lease_is_released(bench: Bench) {
    let (engine, name) = (engine(&bench).await, bench.name("one"));
    let asked = Operation::Acquire(Acquire {
        mode: Mode::Shared { limit: None },
        ttl: LONG,
        ..acquire(nonce().hash(&name))
    });
    let granted = perform(&engine, &name, asked).await;
    let Outcome::Granted(grant) = granted else {
        panic!("it is free: {granted:?}");
    };
    let released = perform(&engine, &name, release_of(grant.fence)).await;
    assert_eq!(released, Outcome::Released);
}
