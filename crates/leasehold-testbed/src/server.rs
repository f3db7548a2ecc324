//! One running server.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Missing;
use crate::keeper::Keeper;
use crate::ports::Port;
use crate::recipe::{Member, Recipe};
use crate::recipes::{self, Pgbouncer};
use crate::start;

/// A real server of a single test, on loopback. It ends when this is dropped, and when this process ends in any way.
///
/// Methods panic with the end of the server's log if it does not start.
pub struct Server {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) recipe: Arc<dyn Recipe>,
    /// Before the ports in drop order: they are free only once the server has ended.
    pub(crate) keeper: Mutex<Keeper>,
    pub(crate) port: Port,
    pub(crate) peer: Port,
    /// All members of its cluster, including itself.
    pub(crate) members: Vec<Member>,
    pub(crate) folder: PathBuf,
}

impl Server {
    /// Starts an empty server for a store URL's scheme, and waits until it serves.
    pub async fn start(scheme: &str) -> Result<Self, Missing> {
        Builder::new(scheme).start().await
    }

    /// Returns a builder, for further arguments, TLS, or a clock that can be stepped.
    pub fn builder(scheme: &str) -> Builder {
        Builder::new(scheme)
    }

    /// Returns the store URL.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// Returns the store URL with another port, such as a proxy's.
    pub fn url_at(&self, port: u16) -> String {
        self.inner.recipe.url(&[port])
    }

    /// Returns the port for clients, on loopback.
    pub fn port(&self) -> u16 {
        self.inner.port.number()
    }

    /// Returns the folder with its data and its log, which is removed with the server.
    pub fn folder(&self) -> &Path {
        &self.inner.folder
    }

    /// Starts a PgBouncer in transaction mode in front of this PostgreSQL server.
    pub async fn behind_pgbouncer(&self) -> Result<Self, Missing> {
        let recipe = Arc::new(Pgbouncer {
            target: self.port(),
        });
        let mut servers = Builder::new("pgbouncer").start_recipe(recipe, 1).await?;
        Ok(servers.remove(0))
    }

    /// Kills all processes of the server at once with `kill -9`.
    pub async fn kill(&self) {
        self.blocking(|server| server.keeper().crash()).await;
    }

    /// Stops the server gracefully.
    pub async fn stop(&self) {
        self.blocking(|server| server.keeper().stop()).await;
    }

    /// Restarts the server on the same data and port, and waits until it serves. A running server is stopped first.
    pub async fn restart(&self) {
        self.blocking(|server| {
            server.keeper().stop();
            server.start();
        })
        .await;
    }

    /// Freezes the server: connections stay open, but nothing is answered.
    pub async fn pause(&self) {
        self.blocking(|server| server.keeper().pause()).await;
    }

    /// Resumes a frozen server.
    pub async fn resume(&self) {
        self.blocking(|server| server.keeper().resume()).await;
    }

    /// Steps the clock of a server that was built [with its own](Builder::own_clock) to this many seconds ahead of,
    /// or behind, this machine's.
    pub fn step_clock(&self, seconds: impl Into<f64>) {
        crate::clock::set(&self.inner.folder, seconds.into(), 1.0)
            .expect("the clock's file can be written");
    }

    pub(crate) async fn blocking(&self, act: impl FnOnce(&Inner) + Send + 'static) {
        let inner = self.inner.clone();
        let acting = tokio::task::spawn_blocking(move || act(&inner));
        if let Err(panicked) = acting.await {
            std::panic::resume_unwind(panicked.into_panic());
        }
    }
}

impl Inner {
    pub(crate) fn member(&self) -> Member {
        Member {
            port: self.port.number(),
            peer: self.peer.number(),
            tls: self.members[0].tls,
        }
    }

    pub(crate) fn keeper(&self) -> MutexGuard<'_, Keeper> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the server, and waits until it serves.
    pub(crate) fn start(&self) {
        self.keeper().start();
        if let Err(log) = self.wait_until_ready() {
            panic!("{} did not start:\n{log}", self.recipe.name());
        }
    }

    /// Waits until the server serves. Returns the end of its log if it does not.
    pub(crate) fn wait_until_ready(&self) -> Result<(), String> {
        let is_ready = || {
            self.recipe.is_ready(self.member()).unwrap_or(false)
                && matches!(self.recipe.leader(&self.members), Ok(Some(_)))
        };
        start::wait_until(is_ready, || self.keeper().is_up()).map_err(|()| self.end_of_log())
    }

    pub(crate) fn end_of_log(&self) -> String {
        let log = std::fs::read(self.folder.join("log")).unwrap_or_default();
        let end = &log[log.len().saturating_sub(4096)..];
        String::from_utf8_lossy(end).into_owned()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.url())
    }
}

/// The configuration of a server to start.
pub struct Builder {
    scheme: String,
    pub(crate) arguments: Vec<OsString>,
    /// The rate of its own clock, if it has one.
    pub(crate) clock_rate: Option<f64>,
    pub(crate) tls: bool,
    pub(crate) self_signed: bool,
}

impl Builder {
    fn new(scheme: &str) -> Self {
        Self {
            scheme: scheme.to_owned(),
            arguments: Vec::new(),
            clock_rate: None,
            tls: false,
            self_signed: false,
        }
    }

    /// Adds an argument to the server's command line.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Gives the server a wall clock that [`Server::step_clock`] can step. Initially it shows this machine's time.
    #[must_use]
    pub fn own_clock(self) -> Self {
        self.slewed_clock(1.0)
    }

    /// Gives the server a wall clock that initially shows this machine's time and runs at this rate: 1.08 is too
    /// fast.
    #[must_use]
    pub fn slewed_clock(mut self, rate: f64) -> Self {
        self.clock_rate = Some(rate);
        self
    }

    /// Makes the server require TLS (PostgreSQL: offer it), with a certificate for `localhost` and `127.0.0.1`:
    /// `cert.pem` and `key.pem` in its [folder](Server::folder). The authority's certificate is `ca.pem` there. The
    /// URL does not mention TLS.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Makes the server require TLS with a self-signed certificate, which is also the only one in `ca.pem`.
    #[must_use]
    pub fn self_signed(mut self) -> Self {
        self.self_signed = true;
        self.tls()
    }

    /// Starts the empty server, and waits until it serves.
    pub async fn start(self) -> Result<Server, Missing> {
        let mut servers = self.start_many(1).await?;
        Ok(servers.remove(0))
    }

    /// Starts a cluster of this many nodes.
    pub(crate) async fn start_many(self, nodes: usize) -> Result<Vec<Server>, Missing> {
        let recipe = recipes::of(&self.scheme)?;
        self.start_recipe(recipe, nodes).await
    }

    async fn start_recipe(
        self,
        recipe: Arc<dyn Recipe>,
        nodes: usize,
    ) -> Result<Vec<Server>, Missing> {
        let starting = tokio::task::spawn_blocking(move || start::start(&recipe, nodes, &self));
        match starting.await {
            Ok(servers) => servers,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
}

/// How long a server may take to start: minutes would hide a hang, and a busy machine needs more than seconds.
pub(crate) const READY_WITHIN: Duration = Duration::from_secs(60);
