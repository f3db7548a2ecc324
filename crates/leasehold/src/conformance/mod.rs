//! The suite that every store passes, for stores of your own.
//!
//! A [`Place`] is where a store under test keeps its records. Each [`Case`] runs on any place, takes names that nobody
//! else uses, and panics when a promise is broken: so cases run in parallel, on a store that is in use, and there is
//! nothing to wipe afterwards.
//!
//! ```
//! use std::sync::Arc;
//! use leasehold::conformance::{cases, Layer, Place};
//! use leasehold::store::{memory::Memory, Store};
//!
//! struct Here(Arc<Memory>);
//!
//! #[async_trait::async_trait]
//! impl Place for Here {
//!     async fn store(&self) -> leasehold::Result<Arc<dyn Store>> {
//!         Ok(self.0.clone())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let here = Arc::new(Here(Arc::default()));
//! for case in cases().filter(|case| case.layer == Layer::Store).take(3) {
//!     case.run(here.clone()).await;
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

mod bench;
mod claims;
mod differential;
mod engine;
mod engine_claims;
mod engine_repeated;
mod engine_waiting;
mod gates;
mod holding;
mod items;
mod letting_go;
mod races;
mod random;
mod recipes;
mod shared;
mod showing;
mod store_find;
mod store_kit;
mod store_names;
mod store_races;
mod store_records;
mod store_swap;
mod time;
mod told;
mod waiting;
mod writing;

use bench::Bench;
pub use random::Random;

/// Where a store under test keeps its records.
#[async_trait]
pub trait Place: Send + Sync + 'static {
    /// The store. All that a place opens have the same records; where the database allows it, each has a connection
    /// of its own.
    async fn store(&self) -> Result<Arc<dyn Store>>;

    /// The limits of engines on this place: longer ones for a server that is slow, such as an emulator on a busy machine.
    fn config(&self) -> Config {
        Config::default()
    }

    /// Leases on this place, each time through another engine or another service.
    async fn leases(&self) -> Result<Arc<dyn Leases>> {
        Ok(Arc::new(start(self).await?))
    }
}

/// An engine on a place, on a store of its own.
async fn start(place: &(impl Place + ?Sized)) -> Result<Engine> {
    Engine::start_with(place.store().await?, Machine::shared(), place.config()).await
}

/// What a case goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// The [`Store`] itself.
    Store,
    /// An [`Engine`] on the store.
    Engine,
    /// Whatever [`Place::leases`] gives: an engine, or a service over HTTP.
    Leases,
}

/// One promise, as a test.
#[derive(Clone, Copy)]
pub struct Case {
    /// What is promised, as an identifier.
    pub name: &'static str,
    /// What it goes through.
    pub layer: Layer,
    run: fn(Bench) -> Running,
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Longer than any case takes on the slowest store: a case that hangs fails.
const PATIENCE: Duration = Duration::from_secs(180);

impl Case {
    /// Runs it on a place.
    ///
    /// # Panics
    /// When the promise is broken, or nothing came of it within three minutes.
    pub async fn run(&self, place: Arc<dyn Place>) {
        let running = (self.run)(Bench::new(place));
        if tokio::time::timeout(PATIENCE, running).await.is_err() {
            panic!("`{}` still runs after {PATIENCE:?}", self.name);
        }
    }
}

/// Every case, in the order of the layers.
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
        writing::CASES,
        letting_go::CASES,
        showing::CASES,
        shared::CASES,
        time::CASES,
        waiting::CASES,
        claims::CASES,
        gates::CASES,
        races::CASES,
        differential::CASES,
    ];
    ALL.iter().copied().flatten().copied()
}

/// The cases of a file: `promises!(Store: function, function)`. A function that is not listed is dead code, which the
/// compiler reports: no case can be forgotten.
macro_rules! promises {
    ($layer:ident: $($function:ident),+ $(,)?) => {
        pub(super) const CASES: &[super::Case] = &[$(super::Case {
            name: stringify!($function),
            layer: super::Layer::$layer,
            run: |bench| Box::pin($function(bench)),
        }),+];
    };
}
use promises;
