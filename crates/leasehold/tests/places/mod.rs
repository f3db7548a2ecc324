//! Locates the backends of the conformance suite, and runs the suite on them.
#![allow(unreachable_pub)]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::Result;
use leasehold::conformance::{Case, TestBackend};
use leasehold::engine::Config;
use leasehold::store::{self, BACKENDS, Store};
use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// The number of concurrent cases, even on few cores: they mostly wait for a lease to expire or for a server.
const THREADS: usize = 8;

/// Runs these cases on every backend of the table. The name of each trial starts with that of its backend.
pub fn run_suite(
    cases: impl Iterator<Item = (String, Case)> + Clone,
    place: impl Fn(Arc<dyn TestBackend>) -> Arc<dyn TestBackend>,
) -> Conclusion {
    let folder = TempDir::new().expect("a temporary folder");
    let mut trials = Vec::new();
    for backend in BACKENDS.iter().filter(|backend| backend.is_built()) {
        let location = locate(backend.scheme, &folder);
        for (name, case) in cases.clone() {
            let name = format!("{}::{name}", backend.scheme);
            trials.push(match &location {
                Ok(location) => {
                    let place = place(location.for_case(case.name));
                    Trial::test(name, move || run(case, place))
                }
                Err(missing) => {
                    let missing = Failed::from(missing);
                    Trial::test(name, move || Err(missing))
                        .with_ignored_flag(!is_missing_backend_failure())
                }
            });
        }
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    libtest_mimic::run(&arguments, trials)
}

fn run(case: Case, place: Arc<dyn TestBackend>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(case.run(place));
    Ok(())
}

/// Where the cases of a backend run.
enum Location {
    /// All in one database, each with its own prefix.
    Shared(Arc<dyn TestBackend>),
    /// Each in its own container of the blob store, because a search without a prefix lists all blobs of a container.
    Separate,
}

impl Location {
    fn for_case(&self, name: &str) -> Arc<dyn TestBackend> {
        match self {
            Self::Shared(place) => place.clone(),
            Self::Separate => Arc::new(Container(name.replace('_', "-"))),
        }
    }
}

/// Returns where the cases of a backend run, or what is missing.
fn locate(scheme: &str, folder: &TempDir) -> Result<Location, String> {
    let place: Arc<dyn TestBackend> = match scheme {
        "memory" => Arc::new(SharedStore(OnceCell::new())),
        "sqlite" => {
            let file = folder.path().join("leases.db");
            Arc::new(Url(format!("sqlite:{}", file.display())))
        }
        server => match leasehold_testbed::installed(server) {
            Ok(()) if server == "azblob" => return Ok(Location::Separate),
            Ok(()) => Arc::new(Server(server.to_owned())),
            Err(missing) => return Err(missing.to_string()),
        },
    };
    Ok(Location::Shared(place))
}

/// Returns whether a missing backend is a failure.
fn is_missing_backend_failure() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

/// A database. Each opened store has its own connections.
struct Url(String);

#[async_trait]
impl TestBackend for Url {
    async fn store(&self) -> Result<Arc<dyn Store>> {
        store::open(&self.0).await
    }
}

/// A server that this process has started, or the one in `LEASEHOLD_TEST_<SCHEME>`.
struct Server(String);

#[async_trait]
impl TestBackend for Server {
    async fn store(&self) -> Result<Arc<dyn Store>> {
        let url = leasehold_testbed::url(&self.0).await;
        store::open(&url.expect("it is installed")).await
    }
}

/// How long Azurite may take to answer: several seconds on a busy machine. Error timeouts are tested on stores that
/// are not the bottleneck.
const AZURITE_TIMEOUT: Duration = Duration::from_secs(60);

/// A container of the blob store.
struct Container(String);

#[async_trait]
impl TestBackend for Container {
    async fn store(&self) -> Result<Arc<dyn Store>> {
        let url = leasehold_testbed::url("azblob").await;
        let url = url.expect("it is installed");
        let url = url.replace("/leases?", &format!("/{}?", self.0));
        store::open(&format!("{url}&timeout={}s", AZURITE_TIMEOUT.as_secs())).await
    }

    fn config(&self) -> Config {
        let mut config = Config::default();
        config.timeout = AZURITE_TIMEOUT;
        config
    }
}

/// A store in memory, opened once because each `memory:` is a separate store.
struct SharedStore(OnceCell<Arc<dyn Store>>);

#[async_trait]
impl TestBackend for SharedStore {
    async fn store(&self) -> Result<Arc<dyn Store>> {
        let opened = self.0.get_or_try_init(|| store::open("memory:"));
        opened.await.cloned()
    }
}
