//! The client: acquires leases with a [`LeaseBuilder`], and renews them in the background while a [`Lease`] is held.
//!
//! Recipes build on leases: [gates](Gate), [work items](ClaimBuilder), semaphores, [reader-writer locks](RwLock),
//! [elections](Election), and [several leases at once](LeaseSetBuilder).
//!
//! The client depends only on the [`Leases`] trait, so it works the same with an engine in this process and with a
//! remote service.

mod attempts;
mod builder;
mod claim;
mod edit;
mod election;
mod gate;
mod keeper;
mod lease;
mod lease_set;
mod lease_state;
mod releases;
mod rw_lock;
mod table;
mod throttle_cache;

use std::sync::Arc;

use leasehold_core::{BootTime, Name, Nonce, Text, limits};

pub use builder::LeaseBuilder;
pub use claim::{ClaimBuilder, Claims, PutBuilder};
pub use edit::{Completion, Edit};
pub use election::{Campaign, Change, Election, Leader};
pub use gate::{Gate, GateOutcome, Pass, Throttle};
pub use lease::Lease;
pub use lease_set::{LeaseSet, LeaseSetBuilder};
pub use rw_lock::RwLock;

use crate::engine::Engine;
use crate::host::{Host, Machine};
use crate::{Leases, Result, store};
use keeper::Keeper;
use releases::Releases;
use throttle_cache::ThrottleCache;

/// Connects to a store or to a running service, by its URL.
///
/// The URL of a store (`sqlite:PATH`, `memory:`, see [`store::BACKENDS`]) starts an engine in this process. Programs that
/// use the same store share its leases. An `http://` or `https://` URL connects to a running service.
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
        "cannot connect to a service: this build lacks the feature `http`: enable it, or give the URL of a store",
    ))
}

/// A client, which acquires leases and renews them in the background.
///
/// It is cheap to clone; the leases of all clones are renewed together. Call [`close`](Self::close) at the end of the
/// program.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    leases: Arc<dyn Leases>,
    host: Arc<dyn Host>,
    keeper: Arc<Keeper>,
    throttle_cache: ThrottleCache,
    owner: Text,
    engine: Option<Engine>,
    releases: Releases,
}

impl Client {
    /// Creates a client of these leases.
    pub fn new(leases: Arc<dyn Leases>) -> Self {
        Self::with_host(leases, Machine::shared())
    }

    /// Creates a client with a custom host. Its boot clock must be the one that the deadlines of these leases refer to.
    pub fn with_host(leases: Arc<dyn Leases>, host: Arc<dyn Host>) -> Self {
        Self::build(leases, host, None)
    }

    fn build(leases: Arc<dyn Leases>, host: Arc<dyn Host>, engine: Option<Engine>) -> Self {
        Self {
            inner: Arc::new(Inner {
                keeper: Arc::new(Keeper::new(leases.clone(), host.clone())),
                throttle_cache: ThrottleCache::default(),
                owner: default_owner(),
                releases: Releases::default(),
                leases,
                host,
                engine,
            }),
        }
    }

    /// Builds a lease of this name. The name is checked when the lease is acquired.
    pub fn lease(&self, name: impl Into<String>) -> LeaseBuilder {
        LeaseBuilder::new(self.clone(), name.into())
    }

    /// Builds a gate with this id, which lets one call pass per period. Gates have a separate namespace: a gate and a lease
    /// of the same name are independent.
    pub fn gate(&self, id: impl Into<String>) -> Gate {
        Gate::new(self.clone(), id.into())
    }

    /// Builds a claim of work items in this state.
    pub fn claim(&self, state: impl Into<Text>) -> ClaimBuilder {
        ClaimBuilder::new(self.clone(), state.into())
    }

    /// Builds a put, which creates the work item of this name or moves it to another state. A work item is a lease with a
    /// state: the holder of the lease of that name holds the item.
    pub fn put(&self, name: impl Into<String>) -> PutBuilder {
        PutBuilder::new(self.clone(), name.into())
    }

    /// Removes a work item, so that it can no longer be claimed. Succeeds if there is no such item.
    ///
    /// # Errors
    /// [`Error::Held`](crate::Error::Held) while the item is leased.
    pub async fn remove(&self, name: impl AsRef<str>) -> Result<()> {
        self.leases().remove(&Name::lock(name)?).await
    }

    /// Builds a lease of a semaphore, which at most `limit` clients hold at once. All clients must give the same limit.
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

    /// Builds a reader-writer lock of this name.
    pub fn rw_lock(&self, name: impl Into<String>) -> RwLock {
        RwLock::new(self.clone(), name.into())
    }

    /// Builds an election of this name.
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election::new(self.clone(), name.into())
    }

    /// Builds leases of these names, which are acquired all or none.
    pub fn lease_all(&self, names: impl IntoIterator<Item = impl Into<String>>) -> LeaseSetBuilder {
        let names = names.into_iter().map(Into::into);
        LeaseSetBuilder::new(self.clone(), names.collect())
    }

    /// Returns the underlying leases, for operations without a guard: show, list, break.
    pub fn leases(&self) -> &Arc<dyn Leases> {
        &self.inner.leases
    }

    /// Returns the host.
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.inner.host
    }

    /// Waits for the releases of dropped guards, and then closes the engine if [`connect`] started one.
    ///
    /// Call it at the end of the program, after all guards were released or dropped: a closed client neither renews nor
    /// releases leases. Without this call, the last client that is dropped at the end of `main` waits for the releases
    /// for up to two seconds, on a multi-threaded runtime only. On a `current_thread` runtime those leases expire.
    pub async fn close(&self) {
        self.inner.releases.join().await;
        if let Some(engine) = &self.inner.engine {
            engine.close().await;
        }
    }

    fn keeper(&self) -> &Arc<Keeper> {
        &self.inner.keeper
    }

    fn throttle_cache(&self) -> &ThrottleCache {
        &self.inner.throttle_cache
    }

    fn now(&self) -> BootTime {
        self.inner.host.boot_time()
    }

    /// Returns a random nonce for one request.
    fn new_nonce(&self) -> Result<Nonce> {
        Ok(Nonce::new(format!("{:032x}", self.inner.host.random()))?)
    }

    /// Returns the default owner of its leases: `host:pid`.
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

/// Returns `host:pid`, with a host name shortened to the limit of an owner.
fn default_owner() -> Text {
    let host = nix::unistd::gethostname()
        .ok()
        .and_then(|host| host.into_string().ok())
        .filter(|host| !host.is_empty())
        .unwrap_or_else(|| "localhost".to_owned());
    let pid = format!(":{}", std::process::id());
    let room = host.floor_char_boundary(limits::MAX_OWNER_BYTES - pid.len());
    format!("{}{pid}", &host[..room]).into()
}
