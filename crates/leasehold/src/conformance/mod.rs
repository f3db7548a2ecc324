//! The conformance suite that every store passes, also for stores outside this repository.
//!
//! A [`TestBackend`] opens the store under test. Each [`Case`] runs on any backend, uses unique names, and panics if the
//! store breaks its contract. So cases run in parallel, also on a store that is in use, and require no cleanup.
//!
//! ```
//! use std::sync::Arc;
//! use leasehold::conformance::{cases, Layer, TestBackend};
//! use leasehold::store::{memory::Memory, Store};
//!
//! struct InMemory(Arc<Memory>);
//!
//! #[async_trait::async_trait]
//! impl TestBackend for InMemory {
//!     async fn store(&self) -> leasehold::Result<Arc<dyn Store>> {
//!         Ok(self.0.clone())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let backend = Arc::new(InMemory(Arc::default()));
//! for case in cases().filter(|case| case.layer == Layer::Store).take(3) {
//!     case.run(backend.clone()).await;
//! }
//! # }
//! ```

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::engine::{Config, Engine};
use crate::host::Machine;
use crate::store::Store;
use crate::{Leases, Result};

mod calls;
mod claims;
mod context;
mod engine;
mod engine_claims;
mod engine_repeated;
mod engine_waiting;
mod gates;
mod holding;
mod inspecting;
mod items;
mod races;
mod random_numbers;
mod random_operations;
mod recipes;
mod releasing;
mod shared;
mod store_find;
mod store_helpers;
mod store_names;
mod store_races;
mod store_records;
mod store_swap;
mod time;
mod updating;
mod waiting;

use context::TestContext;
pub use random_numbers::Random;

/// A backend under test.
#[async_trait]
pub trait TestBackend: Send + Sync + 'static {
    /// Opens the store. All stores of a backend share their records. Where the database allows it, each has its own
    /// connection.
    async fn store(&self) -> Result<Arc<dyn Store>>;

    /// Returns the configuration of engines on this backend, such as longer timeouts for a slow emulator.
    fn config(&self) -> Config {
        Config::default()
    }

    /// Opens leases on this backend, each time through a new engine or service.
    async fn leases(&self) -> Result<Arc<dyn Leases>> {
        Ok(Arc::new(start(self).await?))
    }
}

/// Starts an engine on a new store of the backend.
async fn start(backend: &(impl TestBackend + ?Sized)) -> Result<Engine> {
    Engine::start_with(backend.store().await?, Machine::shared(), backend.config()).await
}

/// The interface that a case tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// The [`Store`] itself.
    Store,
    /// An [`Engine`] on the store, with features that [`Leases`] lacks.
    Engine,
    /// The [`Leases`] of [`TestBackend::leases`]: an engine, or a service over HTTP.
    Leases,
}

/// A test of one property.
#[derive(Clone, Copy)]
pub struct Case {
    /// The property, as an identifier of at most 63 characters: some backends name a container after it.
    pub name: &'static str,
    /// The interface that it tests.
    pub layer: Layer,
    run: fn(TestContext) -> CaseFuture,
}

type CaseFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The time limit of a case: more than any case takes on the slowest store.
const CASE_TIMEOUT: Duration = Duration::from_secs(180);

impl Case {
    /// Runs the case on a backend.
    ///
    /// # Panics
    /// If the property does not hold, or the case takes more than three minutes.
    pub async fn run(&self, backend: Arc<dyn TestBackend>) {
        let running = (self.run)(TestContext::new(backend));
        if tokio::time::timeout(CASE_TIMEOUT, running).await.is_err() {
            panic!("`{}` did not end within {CASE_TIMEOUT:?}", self.name);
        }
    }
}

/// Returns every case, ordered by layer.
pub fn cases() -> impl Iterator<Item = Case> + Clone {
    const ALL: &[&[Case]] = &[
        store_swap::CASES,
        store_records::CASES,
        store_names::CASES,
        store_find::CASES,
        store_races::CASES,
        engine::CASES,
        items::CASES,
        engine_claims::CASES,
        engine_repeated::CASES,
        recipes::CASES,
        engine_waiting::CASES,
        holding::CASES,
        updating::CASES,
        releasing::CASES,
        inspecting::CASES,
        shared::CASES,
        time::CASES,
        waiting::CASES,
        claims::CASES,
        gates::CASES,
        races::CASES,
        random_operations::CASES,
    ];
    ALL.iter().copied().flatten().copied()
}

/// Declares the cases of a file: `define_cases!(Store: function, function)`. The compiler reports an unlisted function
/// as dead code, so no case can be forgotten.
macro_rules! define_cases {
    ($layer:ident: $($function:ident),+ $(,)?) => {
        pub(super) const CASES: &[super::Case] = &[$(super::Case {
            name: stringify!($function),
            layer: super::Layer::$layer,
            run: |context| Box::pin($function(context)),
        }),+];
    };
}
use define_cases;
