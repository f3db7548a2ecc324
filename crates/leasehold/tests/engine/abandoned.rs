//! An operation with an indeterminate outcome is not written after later operations.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::{Acquire, Fence, Hash, Mode, Name, Operation, Outcome, Renew, Update};
use leasehold::engine::{Config, Engine, WaitLimit};
use leasehold::host::Machine;
use leasehold::store::memory::Memory;
use leasehold::{Error, Result};

use crate::faults::{Fault, FaultyStore};

async fn engine(store: &Arc<FaultyStore<Memory>>) -> Engine {
    let mut config = Config::default();
    config.timeout = Duration::from_millis(200);
    let started = Engine::start_with(store.clone(), Machine::shared(), config).await;
    started.expect("the store answers")
}

async fn perform(engine: &Engine, name: &Name, operation: Operation) -> Result<Outcome> {
    let reply = engine.perform(name, operation, WaitLimit::NONE).await?;
    Ok(reply.take().0)
}

/// Acquires the shared lease. Returns the fence.
async fn acquire_shared(engine: &Engine, name: &Name, nonce: &[u8]) -> Fence {
    let acquire = Operation::Acquire(Acquire {
        nonce: Hash::of(&[nonce]),
        owner: "sharer".into(),
        principal: None,
        ttl: Duration::from_secs(60),
        mode: Mode::Shared { limit: None },
        fence: None,
        floor: Fence::default(),
        in_state: None,
    });
    match perform(engine, name, acquire).await {
        Ok(Outcome::Granted(grant)) => grant.fence,
        other => panic!("expected a grant: {other:?}"),
    }
}

fn write(fence: Fence, body: &str) -> Operation {
    Operation::Update(Update {
        fence,
        principal: None,
        body: Some(body.into()),
        state: None,
        then_release: false,
    })
}

#[tokio::test]
async fn abandoned_update_is_not_written_again() {
    let store = FaultyStore::new(Memory::new());
    let (one, other) = (engine(&store).await, engine(&store).await);
    let name = Name::lock("report").expect("a name");
    let (ada, bob) = (
        acquire_shared(&one, &name, b"ada").await,
        acquire_shared(&other, &name, b"bob").await,
    );

    // Ada's update is written, but its answer is lost, and all loads fail until her operation times out.
    store.next_swap(Fault::AnswerLost);
    for _ in 0..6 {
        store.next_load(Fault::Unavailable);
    }
    let result = perform(&one, &name, write(ada, "ada's")).await;
    assert!(matches!(result, Err(Error::Indeterminate(_))), "{result:?}");

    let result = perform(&other, &name, write(bob, "bob's")).await;
    assert!(matches!(result, Ok(Outcome::Renewed(_))), "{result:?}");

    // After Ada's next operation, Bob's confirmed update must still be there.
    let renew = Operation::Renew(Renew {
        fence: ada,
        principal: None,
        ttl: None,
    });
    while perform(&one, &name, renew.clone()).await.is_err() {}
    let view = other.show(&name).await.expect("the store answers");
    assert_eq!(&*view.expect("a record").record.body, "bob's");
}
