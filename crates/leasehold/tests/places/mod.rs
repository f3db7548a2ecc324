//! Where each backend keeps what the tests write, and how the suite runs on it.
#![allow(unreachable_pub)]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::Result;
use leasehold::conformance::{Case, Place};
use leasehold::engine::Config;
use leasehold::store::{self, BACKENDS, Store};
use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// Cases at once, on however few cores: most of the time they wait, for a lease to expire or for a server.
const THREADS: usize = 8;

/// Runs these cases on every backend of the table, by what a case is called there and where it runs.
pub fn run_suite(
    cases: impl Iterator<Item = (String, Case)> + Clone,
    place: impl Fn(Arc<dyn Place>) -> Arc<dyn Place>,
) -> Conclusion {
    let folder = TempDir::new().expect("a temporary folder");
    let mut trials = Vec::new();
    for backend in BACKENDS.iter().filter(|backend| backend.is_built()) {
        let found = at(backend.scheme, &folder);
        for (name, case) in cases.clone() {
            let name = format!("{}::{name}", backend.scheme);
            trials.push(match &found {
                Ok(found) => {
                    let place = place(found.for_case(case.name));
                    Trial::test(name, move || run(case, place))
                }
                Err(missing) => {
                    let missing = Failed::from(missing);
                    Trial::test(name, move || Err(missing)).with_ignored_flag(!all_are_needed())
                }
            });
        }
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    libtest_mimic::run(&arguments, trials)
}

fn run(case: Case, place: Arc<dyn Place>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(case.run(place));
    Ok(())
}

/// Where the cases of a backend run.
enum Found {
    /// All in one place, each under a prefix of its own.
    Together(Arc<dyn Place>),
    /// Each in a container of its own of the blob store: a search without a prefix lists all blobs of one.
    Apart,
}

impl Found {
    fn for_case(&self, name: &str) -> Arc<dyn Place> {
        match self {
            Self::Together(place) => place.clone(),
            Self::Apart => Arc::new(Container(name.replace('_', "-"))),
        }
    }
}

/// Where the cases of a backend run; otherwise what is missing.
fn at(scheme: &str, folder: &TempDir) -> Result<Found, String> {
    let place: Arc<dyn Place> = match scheme {
        "memory" => Arc::new(Once(OnceCell::new())),
        "sqlite" => {
            let file = folder.path().join("leases.db");
            Arc::new(Url(format!("sqlite:{}", file.display())))
        }
        server => match leasehold_testbed::installed(server) {
            Ok(()) if server == "azblob" => return Ok(Found::Apart),
            Ok(()) => Arc::new(Server(server.to_owned())),
            Err(missing) => return Err(missing.to_string()),
        },
    };
    Ok(Found::Together(place))
}

/// Whether a backend that is not there is a failure.
fn all_are_needed() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

/// A database: each store that is opened has connections of its own.
struct Url(String);

#[async_trait]
impl Place for Url {
    async fn store(&self) -> Result<Arc<dyn Store>> {
        store::open(&self.0).await
    }
}

/// A server of this process's own, or the one that `LEASEHOLD_TEST_<SCHEME>` names.
struct Server(String);

#[async_trait]
impl Place for Server {
    async fn store(&self) -> Result<Arc<dyn Store>> {
        let url = leasehold_testbed::url(&self.0).await;
        store::open(&url.expect("it is installed")).await
    }
}

/// How long Azurite may take to answer: on a busy machine several seconds. How soon a caller learns that a store does not
/// answer is tested where the store is not the bottleneck.
const PATIENCE: Duration = Duration::from_secs(60);

/// A container of the blob store.
struct Container(String);

#[async_trait]
impl Place for Container {
    async fn store(&self) -> Result<Arc<dyn Store>> {
        let url = leasehold_testbed::url("azblob").await;
        let url = url.expect("it is installed");
        let url = url.replace("/leases?", &format!("/{}?", self.0));
        store::open(&format!("{url}&timeout={}s", PATIENCE.as_secs())).await
    }

    fn config(&self) -> Config {
        let mut config = Config::default();
        config.timeout = PATIENCE;
        config
    }
}

/// This process's memory: each `memory:` would be a store of its own.
struct Once(OnceCell<Arc<dyn Store>>);

#[async_trait]
impl Place for Once {
    async fn store(&self) -> Result<Arc<dyn Store>> {
        let opened = self.0.get_or_try_init(|| store::open("memory:"));
        opened.await.cloned()
    }
}
