//! Leases for programs: taken with a [`LeaseBuilder`], kept by a [`Lease`], renewed in the background.
//!
//! It knows the [`Leases`] trait only, so it works the same on an engine in this process and on a service far away.

mod builder;
mod edit;
mod keeper;
mod lease;
mod standing;
mod table;

use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::{Text, limits};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

pub use builder::LeaseBuilder;
pub use edit::Edit;
pub use lease::Lease;

use crate::engine::Engine;
use crate::host::{Host, Machine};
use crate::{Leases, Result, store};
use keeper::Keeper;

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
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    leases: Arc<dyn Leases>,
    host: Arc<dyn Host>,
    keeper: Arc<Keeper>,
    owner: Text,
    engine: Option<Engine>,
    /// Releases of leases that were dropped, under way.
    releases: Mutex<JoinSet<()>>,
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
                owner: this_process(),
                releases: Mutex::default(),
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

    /// The leases themselves, for everything that needs no guard: show, list, break.
    pub fn leases(&self) -> &Arc<dyn Leases> {
        &self.inner.leases
    }

    /// The surroundings it runs in.
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.inner.host
    }

    /// Waits for the releases of leases that were dropped, then closes the engine that [`connect`] started, if it
    /// did. A program that ends without this leaves such leases to expire.
    pub async fn close(&self) {
        let mut releases = std::mem::take(&mut *self.releases());
        while releases.join_next().await.is_some() {}
        if let Some(engine) = &self.inner.engine {
            engine.close().await;
        }
    }

    fn keeper(&self) -> &Arc<Keeper> {
        &self.inner.keeper
    }

    /// Who its leases say that they belong to, unless told otherwise: `host:pid`.
    pub fn owner(&self) -> &Text {
        &self.inner.owner
    }

    /// Runs a release that nobody waits for.
    fn release_later(&self, release: impl Future<Output = ()> + Send + 'static, runtime: &Handle) {
        let mut releases = self.releases();
        while releases.try_join_next().is_some() {}
        releases.spawn_on(release, runtime);
    }

    fn releases(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        self.inner
            .releases
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("owner", self.owner())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Releases under way go on without the client; a set that is dropped would end them.
        let releases = self.releases.get_mut();
        releases
            .unwrap_or_else(PoisonError::into_inner)
            .detach_all();
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
    let room = host.floor_char_boundary(limits::OWNER_BYTES - pid.len());
    format!("{}{pid}", &host[..room]).into()
}
