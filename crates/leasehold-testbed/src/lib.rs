//! Real database servers for tests: on loopback, on free ports, in temporary folders, removed with the test.
//!
//! ```no_run
//! # async fn example() -> Result<(), leasehold_testbed::Missing> {
//! use leasehold_testbed::{Proxy, Server};
//!
//! let redis = Server::start("redis").await?;
//! println!("{}", redis.url()); // a store URL
//! redis.kill().await; // kill -9
//! redis.restart().await; // on the same data and port
//!
//! let proxy = Proxy::to(redis.port()).await;
//! println!("{}", redis.url_at(proxy.port()));
//! proxy.blackhole();
//! # Ok(())
//! # }
//! ```
//!
//! `testbed/install` installs what the servers need; [`Missing`] names what is missing. However a test ends (a panic,
//! a signal, `kill -9`), its servers end and their folders are removed: each is run by a shell that holds the other
//! end of a pipe.

mod clock;
mod cluster;
#[cfg(feature = "cosmos")]
mod cosmos;
mod keeper;
mod ports;
mod probe;
mod programs;
mod proxy;
mod recipe;
mod recipes;
mod server;
mod shared;
mod start;
mod tls;

pub use clock::wall_clock_off_by;
pub use cluster::Cluster;
#[cfg(feature = "cosmos")]
pub use cosmos::Cosmos;
pub use programs::Missing;
pub use proxy::{Proxy, Traffic};
pub use recipes::SERVERS;
pub use server::{Builder, Server};
pub use shared::{installed, shared, url};
pub use tls::{certificates, self_signed, tls_only};
