//! The conformance suite over HTTP: what an engine promises, through a real service and [`Remote`], on every backend.

#[path = "../../leasehold/tests/places/mod.rs"]
mod places;

use std::sync::Arc;

use async_trait::async_trait;
use leasehold::conformance::{Layer, TestBackend, cases};
use leasehold::engine::Engine;
use leasehold::host::Machine;
use leasehold::store::Store;
use leasehold::{Leases, Remote, Result};
use leasehold_server::Config;
use tokio::net::TcpListener;

fn main() {
    let cases = cases().filter(|case| case.layer == Layer::Leases);
    let named = cases.map(|case| (format!("http::{}", case.name), case));
    places::run_suite(named, |place| Arc::new(Served(place))).exit();
}

/// A place whose leases are reached through services, each with an engine and a port of its own.
struct Served(Arc<dyn TestBackend>);

#[async_trait]
impl TestBackend for Served {
    async fn store(&self) -> Result<Arc<dyn Store>> {
        self.0.store().await
    }

    fn config(&self) -> leasehold::engine::Config {
        self.0.config()
    }

    async fn leases(&self) -> Result<Arc<dyn Leases>> {
        let store = self.store().await?;
        let engine = Engine::start_with(store, Machine::shared(), self.config()).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        // It ends with the case's runtime.
        let shutdown = std::future::pending();
        tokio::spawn(leasehold_server::serve(
            listener,
            engine,
            Config::default(),
            shutdown,
        ));
        Ok(Arc::new(Remote::connect(&url)?))
    }
}
