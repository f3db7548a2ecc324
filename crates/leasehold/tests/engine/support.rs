//! Helpers of the engine's tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::Result;
use leasehold::core::{
    Acquire, BootTime, Fence, Grant, Hash, HolderRef, Mode, Name, Operation, Outcome, Release,
    Update,
};
use leasehold::engine::{Engine, Reply, WaitLimit};
use leasehold::host::{Host, Machine};
use leasehold::store::Store;
use leasehold::store::memory::Memory;

pub(crate) const LONG: Duration = Duration::from_secs(600);

/// A host whose clock the test sets.
pub(crate) struct ManualClock(AtomicU64);

impl ManualClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(0)))
    }

    /// Sets the clock to this span after boot.
    pub(crate) fn set(&self, since_boot: Duration) {
        let micros = u64::try_from(since_boot.as_micros()).expect("a short test");
        self.0.store(micros, Ordering::SeqCst);
    }
}

impl Host for ManualClock {
    fn boot_time(&self) -> BootTime {
        BootTime::from_micros(self.0.load(Ordering::SeqCst))
    }

    fn random(&self) -> u128 {
        Machine.random()
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::lock(text).expect("a good name")
}

pub(crate) fn acquire(nonce: &str, ttl: Duration) -> Operation {
    acquire_as(nonce, ttl, Mode::Exclusive)
}

pub(crate) fn acquire_as(nonce: &str, ttl: Duration, mode: Mode) -> Operation {
    Operation::Acquire(Acquire {
        nonce: Hash::of(&[nonce.as_bytes()]),
        owner: nonce.into(),
        principal: None,
        ttl,
        mode,
        fence: None,
        floor: Fence::default(),
        in_state: None,
    })
}

pub(crate) fn release(fence: Fence) -> Operation {
    Operation::Release(Release {
        holder: HolderRef::Fence(fence),
        principal: None,
    })
}

pub(crate) fn update(fence: Fence, body: &str) -> Operation {
    Operation::Update(Update {
        fence,
        principal: None,
        body: Some(body.into()),
        state: None,
        then_release: false,
    })
}

pub(crate) fn wait_up_to(wait: Duration) -> WaitLimit {
    WaitLimit { wait, within: None }
}

pub(crate) async fn engine(store: Arc<dyn Store>) -> Engine {
    Engine::start(store).await.expect("the store answers")
}

pub(crate) async fn memory() -> Engine {
    engine(Arc::new(Memory::new())).await
}

pub(crate) fn expect_grant(reply: Result<Reply>) -> Grant {
    match reply.map(Reply::take) {
        Ok((Outcome::Granted(grant), Some(_))) => grant,
        other => panic!("expected a grant: {other:?}"),
    }
}

pub(crate) async fn take(engine: &Engine, name: &Name, nonce: &str) -> Grant {
    expect_grant(
        engine
            .perform(name, acquire(nonce, LONG), WaitLimit::NONE)
            .await,
    )
}

pub(crate) async fn outcome(engine: &Engine, name: &Name, operation: Operation) -> Outcome {
    engine
        .perform(name, operation, WaitLimit::NONE)
        .await
        .expect("the store answers")
        .take()
        .0
}

/// Waits until the name has this many waiters.
pub(crate) async fn wait_for_waiters(engine: &Engine, name: &Name, count: usize) {
    while engine.waiters(name) != count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
