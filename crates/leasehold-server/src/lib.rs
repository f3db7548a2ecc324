//! Leasehold as an HTTP service: [`serve`] an engine on a listener.
//!
//! The service keeps nothing of its own that a lease depends on. Every route is described in `docs/reference/http.md`; what is
//! said on the wire is in [`leasehold::wire`].
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
mod awake;
mod body;
mod connections;
mod dashboard;
mod entitlement;
mod events;
mod follow;
mod history;
mod hold;
mod host;
mod http1;
mod look;
mod metrics;
mod openapi;
mod origin;
mod purge;
mod query;
mod readiness;
mod refused;
mod release;
mod requests;
mod route;
mod serve;
mod service;
mod session;
mod tls;
mod traces;
mod work;

use std::time::Duration;

pub use audit::{Audit, AuditOptions, OnFailure};
pub use serve::serve;
pub use tls::{Tls, TlsFiles};
pub use traces::Traces;

/// The port that the service listens on by default.
pub const DEFAULT_PORT: u16 = 12345;

/// How the service works, and its limits. Everything is bounded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// What the store is called in the metrics: its scheme.
    pub store: String,
    /// The ttl of an acquire that names none.
    pub default_ttl: Duration,
    /// The ttl of a claim that names none.
    pub default_claim_ttl: Duration,
    /// For how long a record must have been free and empty before it is deleted, by itself and in the background:
    /// an hour at least. `None` deletes nothing.
    pub purge: Option<Duration>,
    /// Who may do what; `None`: anybody may do everything.
    pub access: Option<access::Access>,
    /// Host names that requests may be meant for, beside loopback's; `*` allows any. Empty: a service on loopback without
    /// access control allows loopback's names and addresses only, every other service any.
    pub allowed_hosts: Vec<String>,
    /// How much each token or certificate may ask for.
    pub limits: access::Limits,
    /// Where to record who asked for which change, and who was refused.
    pub audit: Option<Audit>,
    /// Speak TLS, and nothing else.
    pub tls: Option<Tls>,
    /// Whom to tell what became of each request. Closed when the service ends.
    pub traces: Option<Traces>,
    /// Connections at once. When there are more, idle ones are closed: those of the address that has most, the longest idle
    /// first. While all are busy, only `/healthz`, `/readyz` and `/metrics` are answered on further connections.
    pub max_connections: usize,
    /// Connections of one address at once, where an IPv6 address counts by its /64 network; `None`: half of
    /// [`max_connections`](Self::max_connections). Behind a proxy all callers have the proxy's address.
    pub max_connections_per_address: Option<usize>,
    /// Subscribers of `/events` at once, at most half of [`max_connections`](Self::max_connections). One address may have the
    /// same share of them as of the connections.
    pub max_subscribers: usize,
    /// Bytes of a request's head.
    pub max_head: usize,
    /// How long a connection may be idle, or take to send a request's head.
    pub head_timeout: Duration,
    /// How long a request's body may take to arrive.
    pub body_timeout: Duration,
    /// How long a client may leave what it is sent unread before its connection is closed.
    pub write_timeout: Duration,
    /// How often a subscriber of `/events` hears something when nothing happens.
    pub heartbeat: Duration,
    /// How long `/readyz` waits for the store.
    pub ready_timeout: Duration,
    /// How long requests may take to finish once the service shuts down.
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
