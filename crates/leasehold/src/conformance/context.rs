//! The context of a case: unique names, and short builders of requests.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{BootTime, Fence, Hash, Held, Kind, Mode, Name, Nonce, Text, View};

use super::TestBackend;
use crate::engine::Engine;
use crate::host::{Host, Machine};
use crate::store::Store;
use crate::{
    AcquireOutcome, AcquireRequest, Hold, HolderKey, Leases, RenewRequest, RenewedHold, Result,
    UpdateOutcome, UpdateRequest,
};

/// A ttl that never expires during a case.
pub(super) const LONG_TTL: Duration = Duration::from_secs(600);

/// The time limit of every wait. Only a failing case reaches it.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// The backend under test, and a name prefix that no other case uses.
#[derive(Clone)]
pub(super) struct TestContext {
    backend: Arc<dyn TestBackend>,
    prefix: String,
}

impl TestContext {
    pub(super) fn new(backend: Arc<dyn TestBackend>) -> Self {
        let prefix = format!("case-{:016x}/", Machine.random() as u64);
        Self { backend, prefix }
    }

    /// Returns the context with a longer prefix.
    pub(super) fn nested(&self, suffix: &str) -> Self {
        Self {
            backend: self.backend.clone(),
            prefix: format!("{}{suffix}/", self.prefix),
        }
    }

    pub(super) async fn store(&self) -> Arc<dyn Store> {
        self.backend.store().await.expect("the store opens")
    }

    pub(super) async fn leases(&self) -> Arc<dyn Leases> {
        self.backend.leases().await.expect("the leases open")
    }

    pub(super) async fn engine(&self) -> Engine {
        super::start(&*self.backend)
            .await
            .expect("the engine starts")
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn name(&self, suffix: &str) -> Name {
        self.name_of_kind(Kind::Lock, suffix)
    }

    pub(super) fn name_of_kind(&self, kind: Kind, suffix: &str) -> Name {
        Name::new(kind, format!("{}{suffix}", self.prefix)).expect("a valid name")
    }

    /// Returns the shortest ttl that the store's clock allows, plus time for the case's own work: on a busy disk, a
    /// commit may take most of a second.
    pub(super) async fn short_ttl(&self) -> Duration {
        let store = self.store().await;
        let work_millis = if store.has_expensive_commits() {
            1_500
        } else {
            300
        };
        store.facts().margin * 5 + Duration::from_millis(work_millis)
    }
}

/// Returns a random nonce.
pub(super) fn nonce() -> Nonce {
    Nonce::new(format!("{:032x}", Machine.random())).expect("a valid nonce")
}

/// Returns the hash of a random nonce, as an operation carries it.
pub(super) fn nonce_hash() -> Hash {
    Hash::of(&[&Machine.random().to_le_bytes()])
}

/// Returns the time of this machine's boot clock.
pub(super) fn boot_time() -> BootTime {
    Machine.boot_time()
}

/// Builds a request for a lease: by default exclusive and with [`LONG_TTL`].
#[derive(Clone)]
pub(super) struct AcquireBuilder(pub(super) AcquireRequest);

pub(super) fn acquire(name: &Name, owner: &str) -> AcquireBuilder {
    AcquireBuilder(AcquireRequest {
        name: name.clone(),
        nonce: nonce(),
        owner: Text::from(owner),
        ttl: LONG_TTL,
        mode: Mode::Exclusive,
        fence: None,
        wait: Duration::ZERO,
    })
}

impl AcquireBuilder {
    pub(super) fn nonce(mut self, nonce: &Nonce) -> Self {
        self.0.nonce = nonce.clone();
        self
    }

    pub(super) fn ttl(mut self, ttl: Duration) -> Self {
        self.0.ttl = ttl;
        self
    }

    pub(super) fn wait(mut self, wait: Duration) -> Self {
        self.0.wait = wait;
        self
    }

    pub(super) fn fence(mut self, fence: Fence) -> Self {
        self.0.fence = Some(fence);
        self
    }

    pub(super) fn shared(mut self, limit: Option<u16>) -> Self {
        self.0.mode = Mode::Shared { limit };
        self
    }

    pub(super) async fn send(self, leases: &dyn Leases) -> Result<AcquireOutcome> {
        leases.acquire(self.0).await
    }

    /// Sends the request and panics unless it is granted.
    #[track_caller]
    pub(super) fn expect_granted(self, leases: &dyn Leases) -> impl Future<Output = Hold> + Send {
        let (caller, name) = (std::panic::Location::caller(), self.0.name.clone());
        async move {
            match self.send(leases).await {
                Ok(AcquireOutcome::Granted(hold)) => hold,
                other => panic!("{caller}: {name} was not granted: {other:?}"),
            }
        }
    }

    /// Sends the request, panics unless it is granted, and returns the fence.
    #[track_caller]
    pub(super) fn expect_fence(self, leases: &dyn Leases) -> impl Future<Output = Fence> + Send {
        let granted = self.expect_granted(leases);
        async move { granted.await.grant.fence }
    }

    /// Sends the request and panics unless it is refused.
    #[track_caller]
    pub(super) fn expect_refused(self, leases: &dyn Leases) -> impl Future<Output = Held> + Send {
        let (caller, name) = (std::panic::Location::caller(), self.0.name.clone());
        async move {
            match self.send(leases).await {
                Ok(AcquireOutcome::Held(held)) => held,
                other => panic!("{caller}: {name} was not refused: {other:?}"),
            }
        }
    }
}

pub(super) async fn renew(leases: &dyn Leases, name: &Name, fence: Fence) -> Result<RenewedHold> {
    renew_for(leases, name, fence, None).await
}

pub(super) async fn renew_for(
    leases: &dyn Leases,
    name: &Name,
    fence: Fence,
    ttl: Option<Duration>,
) -> Result<RenewedHold> {
    let request = RenewRequest {
        name: name.clone(),
        fence,
        ttl,
    };
    let mut answers = leases.renew(vec![request], TIMEOUT).await;
    assert_eq!(answers.len(), 1, "one answer to one renewal");
    answers.remove(0)
}

pub(super) fn update(name: &Name, fence: Fence, body: &str) -> UpdateRequest {
    UpdateRequest {
        name: name.clone(),
        fence,
        body: Some(body.into()),
        state: None,
        then_release: false,
    }
}

/// Writes the body and releases the lease in one operation.
pub(super) async fn complete(
    leases: &dyn Leases,
    name: &Name,
    fence: Fence,
    body: &str,
) -> Result<UpdateOutcome> {
    let mut request = update(name, fence, body);
    request.then_release = true;
    leases.update(request).await
}

/// Releases the lease. Returns whether it was held.
pub(super) async fn release(leases: &dyn Leases, name: &Name, fence: Fence) -> bool {
    leases
        .release(name, HolderKey::Fence(fence))
        .await
        .expect("the store answers")
}

pub(super) async fn show(leases: &dyn Leases, name: &Name) -> View {
    let view = leases.show(name).await.expect("the store answers");
    view.unwrap_or_else(|| panic!("there is no record of {name}"))
}

/// Returns the current body.
pub(super) async fn body(leases: &dyn Leases, name: &Name) -> Text {
    show(leases, name).await.record.body
}

/// Runs tasks concurrently on all threads. A panic in one of them panics here.
pub(super) async fn run_concurrently<T: Send + 'static>(
    tasks: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let running: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
    let mut done = Vec::new();
    for task in running {
        match task.await {
            Ok(value) => done.push(value),
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }
    done
}
