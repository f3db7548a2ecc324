//! What the cases work with: names of their own, requests in few words.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{BootTime, Fence, Hash, Held, Kind, Mode, Name, Nonce, Text, View};

use super::Place;
use crate::engine::Engine;
use crate::host::{Host, Machine};
use crate::store::Store;
use crate::{
    AcquireRequest, Acquired, Hold, Holding, Leases, RenewRequest, Renewed, Result, UpdateRequest,
    Updated,
};

/// Long enough never to run out during a case.
pub(super) const LONG: Duration = Duration::from_secs(600);

/// Longer than anything that is awaited takes: only what is broken gets there.
pub(super) const PATIENT: Duration = Duration::from_secs(60);

/// A place, and a prefix that no other case has.
#[derive(Clone)]
pub(super) struct Bench {
    place: Arc<dyn Place>,
    prefix: String,
}

impl Bench {
    pub(super) fn new(place: Arc<dyn Place>) -> Self {
        let prefix = format!("case-{:016x}/", Machine.random() as u64);
        Self { place, prefix }
    }

    /// The same place under a longer prefix.
    pub(super) fn sub(&self, suffix: &str) -> Self {
        Self {
            place: self.place.clone(),
            prefix: format!("{}{suffix}/", self.prefix),
        }
    }

    pub(super) async fn store(&self) -> Arc<dyn Store> {
        self.place.store().await.expect("the store opens")
    }

    pub(super) async fn leases(&self) -> Arc<dyn Leases> {
        self.place.leases().await.expect("the leases open")
    }

    pub(super) async fn engine(&self) -> Engine {
        super::start(&*self.place).await.expect("the engine starts")
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn name(&self, suffix: &str) -> Name {
        self.of_kind(Kind::Lock, suffix)
    }

    pub(super) fn of_kind(&self, kind: Kind, suffix: &str) -> Name {
        Name::new(kind, format!("{}{suffix}", self.prefix)).expect("a legal name")
    }

    /// The shortest ttl that this store's clock allows, with some room so that a busy machine gets its work done in
    /// it: a disk that others use too may take most of a second for a commit.
    pub(super) async fn short(&self) -> Duration {
        let store = self.store().await;
        let room = if store.is_dear() { 1_500 } else { 300 };
        store.facts().margin * 5 + Duration::from_millis(room)
    }
}

/// A nonce that nobody else uses.
pub(super) fn nonce() -> Nonce {
    Nonce::new(format!("{:032x}", Machine.random())).expect("a legal nonce")
}

/// A fresh nonce as an operation has it.
pub(super) fn nonce_hash() -> Hash {
    Hash::of(&[&Machine.random().to_le_bytes()])
}

/// This machine's boot clock.
pub(super) fn boot() -> BootTime {
    Machine.boot_time()
}

/// Asks for a lease, exclusive and for long unless told otherwise.
#[derive(Clone)]
pub(super) struct Ask(pub(super) AcquireRequest);

pub(super) fn ask(name: &Name, owner: &str) -> Ask {
    Ask(AcquireRequest {
        name: name.clone(),
        nonce: nonce(),
        owner: Text::from(owner),
        ttl: LONG,
        mode: Mode::Exclusive,
        fence: None,
        wait: Duration::ZERO,
    })
}

impl Ask {
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

    pub(super) async fn of(self, leases: &dyn Leases) -> Result<Acquired> {
        leases.acquire(self.0).await
    }

    /// It must be granted.
    #[track_caller]
    pub(super) fn granted(self, leases: &dyn Leases) -> impl Future<Output = Hold> + Send {
        let (caller, name) = (std::panic::Location::caller(), self.0.name.clone());
        async move {
            match self.of(leases).await {
                Ok(Acquired::Granted(hold)) => hold,
                other => panic!("{caller}: {name} was not granted: {other:?}"),
            }
        }
    }

    /// It must be refused.
    #[track_caller]
    pub(super) fn refused(self, leases: &dyn Leases) -> impl Future<Output = Held> + Send {
        let (caller, name) = (std::panic::Location::caller(), self.0.name.clone());
        async move {
            match self.of(leases).await {
                Ok(Acquired::Held(held)) => held,
                other => panic!("{caller}: {name} was not refused: {other:?}"),
            }
        }
    }
}

pub(super) async fn renew(leases: &dyn Leases, name: &Name, fence: Fence) -> Result<Renewed> {
    renew_for(leases, name, fence, None).await
}

pub(super) async fn renew_for(
    leases: &dyn Leases,
    name: &Name,
    fence: Fence,
    ttl: Option<Duration>,
) -> Result<Renewed> {
    let request = RenewRequest {
        name: name.clone(),
        fence,
        ttl,
    };
    let mut answers = leases.renew(vec![request], PATIENT).await;
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

/// Writes the body and lets go in one operation.
pub(super) async fn complete(
    leases: &dyn Leases,
    name: &Name,
    fence: Fence,
    body: &str,
) -> Result<Updated> {
    let mut request = update(name, fence, body);
    request.then_release = true;
    leases.update(request).await
}

/// Lets go; whether there was something to let go of.
pub(super) async fn release(leases: &dyn Leases, name: &Name, fence: Fence) -> bool {
    leases
        .release(name, Holding::Fence(fence))
        .await
        .expect("a release is never an error")
}

pub(super) async fn shown(leases: &dyn Leases, name: &Name) -> View {
    let view = leases.show(name).await.expect("the store answers");
    view.unwrap_or_else(|| panic!("there is no record of {name}"))
}

/// The body as it stands.
pub(super) async fn body(leases: &dyn Leases, name: &Name) -> Text {
    shown(leases, name).await.record.body
}

/// Runs tasks side by side on all threads; a panic in one is a panic here.
pub(super) async fn side_by_side<T: Send + 'static>(
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
