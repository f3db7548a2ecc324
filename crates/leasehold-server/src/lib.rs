//! Leasehold as an HTTP service: [`serve`] runs an engine on a listener.
//!
//! The service keeps no state that a lease depends on. `docs/reference/http.md` describes every route; the JSON documents are
//! the types of [`leasehold::wire`].
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::{engine::Engine, store};
//!
//! let engine = Engine::start(store::open("memory:").await?).await?;
//! let listener = tokio::net::TcpListener::bind(("127.0.0.1", leasehold_server::DEFAULT_PORT)).await?;
//! let shutdown = std::future::pending();
//! leasehold_server::serve(listener, engine, leasehold_server::Config::default(), shutdown).await;
//! # Ok(())
//! # }
//! ```

pub mod access;
mod acquire;
mod admission;
mod answer;
mod audit;
mod batch;
mod body;
mod budget;
mod busy_poll;
mod connections;
mod dashboard;
mod entitlement;
mod events;
mod file_watch;
mod history;
mod host;
mod http1;
mod items;
mod metrics;
mod openapi;
mod origin;
mod page;
mod purge;
mod query;
mod readiness;
mod rejection;
mod release;
mod renew;
mod route;
mod serve;
mod service;
mod session;
mod show;
mod tls;
mod traces;

use std::time::Duration;

pub use audit::{Audit, AuditOptions, OnFailure};
pub use serve::serve;
pub use tls::{Tls, TlsFiles};
pub use traces::Traces;

/// The service's default port.
pub const DEFAULT_PORT: u16 = 12345;

/// Options and limits of the service. Every resource is bounded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The store's label in the metrics: its URL scheme.
    pub store: String,
    /// The ttl of an acquire without `ttl`.
    pub default_ttl: Duration,
    /// The ttl of a claim without `ttl`.
    pub default_claim_ttl: Duration,
    /// How long a record must have been free and empty before the background purge deletes it: at least an hour. `None`
    /// disables the purge.
    pub purge: Option<Duration>,
    /// Access control; `None` gives every client all rights.
    pub access: Option<access::Access>,
    /// Host names that requests may name, in addition to loopback's; `*` allows any. If empty, a service on loopback without
    /// access control allows only loopback's names and addresses, and every other service allows any.
    pub allowed_hosts: Vec<String>,
    /// Rate and wait limits of each token or certificate.
    pub limits: access::Limits,
    /// The audit log of changes and refusals.
    pub audit: Option<Audit>,
    /// Serves TLS only; `None` serves plain HTTP.
    pub tls: Option<Tls>,
    /// Exports a trace of each request. Closed when the service ends.
    pub traces: Option<Traces>,
    /// The maximum number of connections. Beyond it, idle ones are closed: those of the address with the most connections, the
    /// longest idle first. While all are busy, further connections only get `/healthz`, `/readyz` and `/metrics`.
    pub max_connections: usize,
    /// The maximum number of connections of one address; an IPv6 address counts by its /64 network. `None` is half of
    /// [`max_connections`](Self::max_connections). Behind a proxy, all callers have the proxy's address.
    pub max_connections_per_address: Option<usize>,
    /// The maximum number of `/events` subscribers, at most half of [`max_connections`](Self::max_connections). One address may
    /// have the same share of them as of the connections.
    pub max_subscribers: usize,
    /// The maximum size in bytes of all pages, claims and batches of answers in progress or not read yet. Large answers about one
    /// name have a separate budget of half as many. One address may have the same share of them as of the connections. A
    /// request beyond it waits up to two seconds and is then refused.
    pub max_answer_bytes: usize,
    /// The maximum size in bytes of a request's head.
    pub max_head: usize,
    /// How long a connection may be idle, or take to send a request's head.
    pub head_timeout: Duration,
    /// How long a request's body may take to arrive.
    pub body_timeout: Duration,
    /// How long a write to a client may stall before its connection is closed.
    pub write_timeout: Duration,
    /// The interval of the heartbeats that `/events` subscribers get while there are no events.
    pub heartbeat: Duration,
    /// How long `/readyz` waits for the store.
    pub ready_timeout: Duration,
    /// How long requests may take to finish after the service begins to shut down.
    pub drain_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            store: "unknown".into(),
            default_ttl: Duration::from_secs(30),
            default_claim_ttl: Duration::from_secs(60),
            purge: Some(Duration::from_secs(24 * 60 * 60)),
            access: None,
            allowed_hosts: Vec::new(),
            limits: access::Limits::default(),
            audit: None,
            tls: None,
            traces: None,
            max_connections: 10_000,
            max_connections_per_address: None,
            max_subscribers: 2_500,
            max_answer_bytes: 48 * 1024 * 1024,
            max_head: 16 * 1024,
            head_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            heartbeat: Duration::from_secs(15),
            ready_timeout: Duration::from_secs(2),
            drain_timeout: Duration::from_secs(10),
        }
    }
}
