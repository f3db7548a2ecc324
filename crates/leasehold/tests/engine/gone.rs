//! A caller that was told that nobody knows is not overtaken by its own past.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::{Acquire, Fence, Hash, Mode, Name, Operation, Outcome, Renew, Update};
use leasehold::engine::{Config, Engine, Patience};
use leasehold::host::Machine;
use leasehold::store::memory::Memory;
use leasehold::{Error, Result};

use crate::faults::{Fault, Faulty};

async fn engine(store: &Arc<Faulty<Memory>>) -> Engine {
    let mut config = Config::default();
    config.timeout = Duration::from_millis(200);
    let started = Engine::start_with(store.clone(), Machine::shared(), config).await;
    started.expect("the store answers")
}

async fn perform(engine: &Engine, name: &Name, operation: Operation) -> Result<Outcome> {
    let reply = engine.perform(name, operation, Patience::NONE).await?;
    Ok(reply.take().0)
}

/// One of those who share the lease; its fence.
async fn share(engine: &Engine, name: &Name, nonce: &[u8]) -> Fence {
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
        other => panic!("it was not granted: {other:?}"),
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
async fn an_update_that_nobody_waits_for_is_not_written_again() {
    let store = Faulty::new(Memory::new());
    let (one, other) = (engine(&store).await, engine(&store).await);
    let name = Name::lock("report").expect("a name");
    let (ada, bob) = (
        share(&one, &name, b"ada").await,
        share(&other, &name, b"bob").await,
    );

    // Ada's update is written, but the answer is lost, and so is every attempt to look until her time is up.
    store.next_swap(Fault::AppliedButLost);
    for _ in 0..6 {
        store.next_load(Fault::Unavailable);
    }
    let told = perform(&one, &name, write(ada, "ada's")).await;
    assert!(matches!(told, Err(Error::Indeterminate(_))), "{told:?}");

    let told = perform(&other, &name, write(bob, "bob's")).await;
    assert!(matches!(told, Ok(Outcome::Renewed(_))), "{told:?}");

    // Ada goes on. What bob was told is stored must still be there.
    let renew = Operation::Renew(Renew {
        fence: ada,
        principal: None,
        ttl: None,
    });
    while perform(&one, &name, renew.clone()).await.is_err() {}
    let view = other.show(&name).await.expect("the store answers");
    assert_eq!(&*view.expect("it is there").record.body, "bob's");
}
