//! Leases for programs: taken with a [`LeaseBuilder`], kept by a [`Lease`], renewed in the background. And what people
//! do with leases, as small recipes: [gates](Gate), [work items](ClaimBuilder), semaphores, [reader-writer
//! locks](RwLock), [elections](Election), [several leases at once](SeveralBuilder).
//!
//! It knows the [`Leases`] trait only, so it works the same on an engine in this process and on a service far away.

mod asking;
mod builder;
mod claim;
mod edit;
mod election;
mod gate;
mod gatehouse;
mod keeper;
mod lease;
mod releases;
mod rw_lock;
mod several;
mod standing;
mod table;

use std::sync::Arc;

use leasehold_core::{BootTime, Name, Nonce, Text, limits};

pub use builder::LeaseBuilder;
pub use claim::{ClaimBuilder, Claims, PutBuilder};
pub use edit::{Completion, Edit};
pub use election::{Campaign, Change, Election, Leader};
pub use gate::{Gate, Gated, Pass, Throttle};
pub use lease::Lease;
pub use rw_lock::RwLock;
pub use several::{Several, SeveralBuilder};

use crate::engine::Engine;
use crate::host::{Host, Machine};
use crate::{Leases, Result, store};
use gatehouse::Gatehouse;
use keeper::Keeper;
use releases::Releases;

/// Connects to the store, or to the running service, that a URL names.
///
/// A store's URL (`sqlite:PATH`, `memory:`, see [`store::BACKENDS`]) starts an engine in this process; programs that
/// name the same store share its leases. An `http://` URL is a running service.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let lease = client.lease("nightly-report").acquire().await?;
/// lease.release().await?;
/// client.close().await;
/// # Ok(()) }
/// ```
pub async fn connect(url: &str) -> Result<Client> {
    if url.starts_with("http://") || url.starts_with("https://") {
        return connect_to_service(url).await;
    }
    let engine = Engine::start(store::open(url).await?).await?;
    let leases = Arc::new(engine.clone());
    Ok(Client::build(leases, Machine::shared(), Some(engine)))
}

#[cfg(feature = "http")]
async fn connect_to_service(url: &str) -> Result<Client> {
    Ok(Client::new(Arc::new(crate::Remote::connect(url)?)))
}

#[cfg(not(feature = "http"))]
async fn connect_to_service(_url: &str) -> Result<Client> {
    Err(crate::Error::invalid(
        "this build cannot reach a service by `http://`: name a store instead",
    ))
}

/// Takes leases and keeps them. Cheap to clone; clones share one keeper, which renews all their leases together.
/// [`close`](Self::close) it at the end of a program.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    leases: Arc<dyn Leases>,
    host: Arc<dyn Host>,
    keeper: Arc<Keeper>,
    gates: Gatehouse,
    owner: Text,
    engine: Option<Engine>,
    releases: Releases,
}

impl Client {
    /// A client of these leases.
    pub fn new(leases: Arc<dyn Leases>) -> Self {
        Self::with_host(leases, Machine::shared())
    }

    /// A client of these leases on another host, whose boot clock must be the one that their deadlines are told in.
    pub fn with_host(leases: Arc<dyn Leases>, host: Arc<dyn Host>) -> Self {
        Self::build(leases, host, None)
    }

    fn build(leases: Arc<dyn Leases>, host: Arc<dyn Host>, engine: Option<Engine>) -> Self {
        Self {
            inner: Arc::new(Inner {
                keeper: Arc::new(Keeper::new(leases.clone(), host.clone())),
                gates: Gatehouse::default(),
                owner: this_process(),
                releases: Releases::default(),
                leases,
                host,
                engine,
            }),
        }
    }

    /// A lease by this name, to be taken. The name is looked at when it is.
    pub fn lease(&self, name: impl Into<String>) -> LeaseBuilder {
        LeaseBuilder::new(self.clone(), name.into())
    }

    /// A gate by this id, which lets one call pass per period. Gates have names of their own: a gate and a lease that
    /// are called the same never meet.
    pub fn gate(&self, id: impl Into<String>) -> Gate {
        Gate::new(self.clone(), id.into())
    }

    /// Work items in this state, to be leased.
    pub fn claim(&self, state: impl Into<Text>) -> ClaimBuilder {
        ClaimBuilder::new(self.clone(), state.into())
    }

    /// A work item by this name, to be created or put into another state. Items are leases with a state: whoever has the lease of
    /// that name has the item.
    pub fn put(&self, name: impl Into<String>) -> PutBuilder {
        PutBuilder::new(self.clone(), name.into())
    }

    /// Empties a work item: nobody will claim it any more. [`Error::Held`](crate::Error::Held) while somebody has it;
    /// it does not matter if there is none.
    pub async fn remove(&self, name: impl AsRef<str>) -> Result<()> {
        self.leases().remove(&Name::lock(name)?).await
    }

    /// One of at most `limit` leases of this name at once, to be taken. All who ask give the same limit.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let gpu = client.semaphore("gpu", 2);
    /// let (_one, _two) = (gpu.clone().acquire().await?, gpu.clone().acquire().await?);
    /// assert!(gpu.acquire().await.is_err());
    /// # Ok(()) }
    /// ```
    pub fn semaphore(&self, name: impl Into<String>, limit: u16) -> LeaseBuilder {
        self.lease(name).shared(limit)
    }

    /// A lock by this name for many readers or one writer.
    pub fn rw_lock(&self, name: impl Into<String>) -> RwLock {
        RwLock::new(self.clone(), name.into())
    }

    /// An election by this name.
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election::new(self.clone(), name.into())
    }

    /// Leases by these names, to be taken together: all or none.
    pub fn lease_all(&self, names: impl IntoIterator<Item = impl Into<String>>) -> SeveralBuilder {
        let names = names.into_iter().map(Into::into);
        SeveralBuilder::new(self.clone(), names.collect())
    }

    /// The leases themselves, for everything that needs no guard: show, list, break.
    pub fn leases(&self) -> &Arc<dyn Leases> {
        &self.inner.leases
    }

    /// The surroundings it runs in.
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.inner.host
    }

    /// Waits for the releases of guards that were dropped, then closes the engine that [`connect`] started, if it
    /// did.
    ///
    /// Call it at the end of a program, after all guards are released or dropped: nothing renews or releases a lease
    /// through a client that is closed. Without it the last client that is dropped at the end of `main` waits for those
    /// releases itself, for two seconds at most and on a multi-threaded runtime only. On a `current_thread` runtime
    /// such leases are left to expire.
    pub async fn close(&self) {
        self.inner.releases.join().await;
        if let Some(engine) = &self.inner.engine {
            engine.close().await;
        }
    }

    fn keeper(&self) -> &Arc<Keeper> {
        &self.inner.keeper
    }

    fn gates(&self) -> &Gatehouse {
        &self.inner.gates
    }

    fn now(&self) -> BootTime {
        self.inner.host.boot_time()
    }

    /// What identifies one question, and no other.
    fn fresh_nonce(&self) -> Result<Nonce> {
        Ok(Nonce::new(format!("{:032x}", self.inner.host.random()))?)
    }

    /// Who its leases say that they belong to, unless told otherwise: `host:pid`.
    pub fn owner(&self) -> &Text {
        &self.inner.owner
    }

    fn releases(&self) -> &Releases {
        &self.inner.releases
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("owner", self.owner())
            .finish_non_exhaustive()
    }
}

/// `host:pid`, for people.
fn this_process() -> Text {
    let host = nix::unistd::gethostname()
        .ok()
        .and_then(|host| host.into_string().ok())
        .filter(|host| !host.is_empty())
        .unwrap_or_else(|| "localhost".to_owned());
    let pid = format!(":{}", std::process::id());
    let room = host.floor_char_boundary(limits::MAX_OWNER_BYTES - pid.len());
    format!("{}{pid}", &host[..room]).into()
}
