//! An engine whose writes arrive twice at the store, as through a proxy or a driver that retries.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::{Acquire, GrantKind, Mode, Name, Operation, Outcome};

use super::claims::{claim_now, claim_request, put, unique_state};
use super::context::{LONG_TTL, TestContext, nonce};
use super::engine::{acquire_with, perform, release_operation};
use super::store_helpers::{load, put as put_record, record, write};
use crate::Result;
use crate::engine::Engine;
use crate::store::{Answer, Facts, Page, Query, Store, Stored, Swapped, Write};

super::define_cases!(Engine:
    duplicated_write_conflicts_with_itself,
    duplicated_grant_is_fresh,
    duplicated_claim_gets_the_items,
    duplicated_release_of_a_shared_lease_succeeds,
);

/// Sends every batch of writes twice and returns the second answer.
struct DuplicatingStore(Arc<dyn Store>);

#[async_trait]
impl Store for DuplicatingStore {
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

    fn has_expensive_commits(&self) -> bool {
        self.0.has_expensive_commits()
    }

    fn is_in_process(&self) -> bool {
        self.0.is_in_process()
    }
}

async fn engine(context: &TestContext) -> Engine {
    let store = Arc::new(DuplicatingStore(context.store().await));
    Engine::start(store).await.expect("the engine starts")
}

/// The engine relies on this to recognise its own write.
async fn duplicated_write_conflicts_with_itself(context: TestContext) {
    let (store, name) = (context.store().await, context.name("one"));
    let first = put_record(&*store, &name, None, &record("first")).await;
    let second = write(&name, Some(&first), &record("second"));
    let (id, _) = second.put.clone().expect("the write has a record");
    let repeated = DuplicatingStore(store.clone()).swap(vec![second]).await;
    let swapped = repeated.expect("the store answers").value;
    let [Swapped::Conflict(Some(current))] = &swapped[..] else {
        panic!("the second copy conflicts: {swapped:?}");
    };
    assert_eq!(current.version.write, id);
    let stored = load(&*store, &name).await;
    assert_eq!(
        stored.as_ref(),
        Some(current),
        "the conflict returns the current tag"
    );
}

async fn duplicated_grant_is_fresh(context: TestContext) {
    let (engine, name) = (engine(&context).await, context.name("one"));
    for _ in 0..3 {
        let operation = Operation::Acquire(acquire_with(nonce().hash(&name)));
        let granted = perform(&engine, &name, operation).await;
        let Outcome::Granted(grant) = granted else {
            panic!("the name is free: {granted:?}");
        };
        assert_eq!(grant.granted, GrantKind::Fresh);
        let released = perform(&engine, &name, release_operation(grant.fence)).await;
        assert_eq!(released, Outcome::Released);
    }
}

async fn duplicated_claim_gets_the_items(context: TestContext) {
    let (engine, new) = (engine(&context).await, unique_state(&context, "NEW"));
    let names: Vec<_> = ["a", "b", "c"].map(|name| context.name(name)).into();
    for name in &names {
        put(&engine, name, &new, "").await;
    }
    let items = claim_now(&engine, claim_request(&new, 3)).await;
    assert_eq!(items.len(), 3, "{items:?}");
}

async fn duplicated_release_of_a_shared_lease_succeeds(context: TestContext) {
    let (engine, name) = (engine(&context).await, context.name("one"));
    let operation = Operation::Acquire(Acquire {
        mode: Mode::Shared { limit: None },
        ttl: LONG_TTL,
        ..acquire_with(nonce().hash(&name))
    });
    let granted = perform(&engine, &name, operation).await;
    let Outcome::Granted(grant) = granted else {
        panic!("the name is free: {granted:?}");
    };
    let released = perform(&engine, &name, release_operation(grant.fence)).await;
    assert_eq!(released, Outcome::Released);
}
