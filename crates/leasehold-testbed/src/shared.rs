//! One server for all tests of a process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::OnceCell;

use crate::{Missing, Server, recipes};

type Shared = Arc<OnceCell<Arc<Server>>>;

/// Returns this process's server for a store URL's scheme, started at the first call. It ends with the process.
///
/// For tests that do not change the server, and use names of their own.
pub async fn shared(scheme: &str) -> Result<Arc<Server>, Missing> {
    static SERVERS: OnceLock<Mutex<HashMap<String, Shared>>> = OnceLock::new();
    let cell = SERVERS
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .entry(scheme.to_owned())
        .or_default()
        .clone();
    let server = cell.get_or_try_init(|| async { Server::start(scheme).await.map(Arc::new) });
    server.await.cloned()
}

/// Returns a store URL to test on: `LEASEHOLD_TEST_<SCHEME>` if that is set, otherwise that of the [`shared`] server.
pub async fn url(scheme: &str) -> Result<String, Missing> {
    match configured_url(scheme) {
        Some(url) => Ok(url),
        None if scheme == "cosmos" => cosmos().await,
        None => Ok(shared(scheme).await?.url()),
    }
}

/// Checks what [`url()`] requires, without starting anything.
pub fn installed(scheme: &str) -> Result<(), Missing> {
    match configured_url(scheme) {
        Some(_) => Ok(()),
        None if scheme == "cosmos" && cfg!(feature = "cosmos") => Ok(()),
        None if scheme == "cosmos" => Err(Missing::Feature("cosmos")),
        None => recipes::of(scheme)?.installed(),
    }
}

fn configured_url(scheme: &str) -> Option<String> {
    std::env::var(format!("LEASEHOLD_TEST_{}", scheme.to_uppercase())).ok()
}

/// Returns the store URL of this process's emulator.
#[cfg(feature = "cosmos")]
async fn cosmos() -> Result<String, Missing> {
    static EMULATOR: OnceCell<crate::Cosmos> = OnceCell::const_new();
    Ok(EMULATOR.get_or_init(crate::Cosmos::start).await.url())
}

#[cfg(not(feature = "cosmos"))]
async fn cosmos() -> Result<String, Missing> {
    Err(Missing::Feature("cosmos"))
}
