//! Leases with fencing tokens on the database you already run.
//!
//! A *lease* is a lock that a crash cannot leave locked. Its holder renews it. If the holder dies, the next one takes over
//! after the *ttl*, with a higher *fence*, and with the *body* that the last holder wrote.
//!
//! ```
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> leasehold::Result<()> {
//! let client = leasehold::connect("memory:").await?; // or `sqlite:leases.db`, or `http://localhost:12345`
//!
//! let lease = client
//!     .lease("nightly-report")
//!     .ttl(Duration::from_secs(30))
//!     .wait(Duration::from_secs(10))
//!     .acquire()
//!     .await?;
//! let step = lease.body(); // where the last holder stopped
//! # assert_eq!(&*step, "");
//! lease.update("step 3").await?; // the next holder resumes here
//! lease.release().await?;
//! client.close().await; // at the end of the program
//! # Ok(()) }
//! ```
//!
//! # Holding a lease
//!
//! A [`Lease`] is renewed in the background until it is released, dropped or lost. Dropping the guard releases the lease in
//! the background, and [`Client::close`] waits for that. The holder must stop its work when [`lost`](Lease::lost) completes:
//! a local timer fires before another client can acquire the lease, even if the network hangs.
//! [`run`](LeaseBuilder::run) does that automatically.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> leasehold::Result<()> {
//! # let client = leasehold::connect("memory:").await?;
//! # async fn work(_: &leasehold::Lease) -> u32 { 3 }
//! let lease = client.lease("nightly-report").acquire().await?;
//! let done = tokio::select! {
//!     done = work(&lease) => Ok(done),
//!     reason = lease.lost() => Err(reason),
//! };
//! lease.release().await?;
//! # assert_eq!(done, Ok(3));
//!
//! // The same, in one call:
//! let done = client.lease("nightly-report").run(|lease| async move { work(&lease).await }).await?;
//! # assert_eq!(done, 3);
//! # Ok(()) }
//! ```
//!
//! # Fences
//!
//! A process that was paused may continue to write before its timer fires. The fence protects against that: each grant has
//! a higher fence than all earlier grants. A resource that stores the highest fence it has seen, and refuses lower ones, is
//! safe from every zombie. [`fence`] provides such checks for the transactions of several databases.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> leasehold::Result<()> {
//! # let client = leasehold::connect("memory:").await?;
//! let first = client.lease("x").acquire().await?;
//! let fence = first.fence();
//! first.release().await?;
//! let second = client.lease("x").acquire().await?;
//! assert!(second.fence() > fence);
//! # Ok(()) }
//! ```
//!
//! # Contention
//!
//! If a lease is held, the error is [`Error::Held`], which contains the owner of the holder. Each other variant of [`Error`]
//! calls for a different reaction. This example uses a shared lease with at most two holders.
//!
//! ```
//! use leasehold::Error;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> leasehold::Result<()> {
//! # let client = leasehold::connect("memory:").await?;
//! let _one = client.lease("gpu").shared(2).owner("alice").acquire().await?;
//! let _two = client.lease("gpu").shared(2).owner("bob").acquire().await?;
//! match client.lease("gpu").shared(2).acquire().await {
//!     Err(Error::Held(held)) => assert_eq!(&*held.owner, "alice"),
//!     other => panic!("{other:?}"),
//! }
//! # Ok(()) }
//! ```
//!
//! # Recipes
//!
//! A *gate* lets one call pass per period, across all processes. An action that fails opens it again.
//!
//! ```
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> leasehold::Result<()> {
//! # let client = leasehold::connect("memory:").await?;
//! # async fn notify() -> leasehold::Result<()> { Ok(()) }
//! let gate = client.gate("device-42").every(Duration::from_secs(60));
//! let gated = gate.run(notify).await?;
//! gated.if_throttled(|retry_after| println!("again in {retry_after:?}"));
//! # Ok(()) }
//! ```
//!
//! *Work items* have a state. Workers claim leases on the oldest items in a state, and move them to the next state. Other
//! workers take over the items of a dead worker.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> leasehold::Result<()> {
//! # let client = leasehold::connect("memory:").await?;
//! client.put("order-17").state("REQUESTED").body("3 apples").await?;
//! for item in client.claim("REQUESTED").limit(10).await? {
//!     println!("packs {}", item.body());
//!     item.complete().state("DONE").await?;
//! }
//! # Ok(()) }
//! ```
//!
//! There are also [semaphores](Client::semaphore), [reader-writer locks](Client::rw_lock),
//! [leader election](Client::election), and [several leases, all or none](Client::lease_all).
//!
//! # Features
//!
//! | feature | URL | by default |
//! |---|---|---|
//! | `sqlite` | `sqlite:PATH` | yes |
//! | `http` | `http://…`, `https://…`: a running service | yes |
//! | `postgres` | `postgres://…` | |
//! | `redis` | `redis://…`, `rediss://…` | |
//! | `mysql`, `mongodb`, `dynamodb`, `etcd`, `azblob`, `cosmos` | the scheme has the name of the feature | |
//! | `conformance` | the suite that every store passes | |
//!
//! `memory:` is always available. (The command `leasehold` also has `postgres` and `redis` by default.)
//!
//! # Modules
//!
//! | purpose | module |
//! |---|---|
//! | acquire, hold and release leases; recipes | [`client`] |
//! | the interface between the client and the engine or the service | [`Leases`] |
//! | refuse stale holders in the database of the data | [`fence`] |
//! | batch operations, queue waiters | [`engine`] |
//! | the stores of the records; custom stores | [`store`] |
//! | the records, and all decisions about them | [`core`] |
//! | clocks and random numbers, for simulations | [`host`] |
//! | counters and histograms | [`measure`] |

pub mod client;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod duration;
pub mod engine;
mod error;
pub mod fence;
pub mod health;
pub mod host;
mod join_all;
mod json_size;
mod leases;
pub mod measure;
#[cfg(doctest)]
mod pages;
#[cfg(feature = "http")]
mod remote;
#[doc(hidden)]
pub mod spin;
pub mod store;
#[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
mod tls;
#[cfg(any(
    feature = "etcd",
    feature = "http",
    feature = "postgres",
    feature = "redis"
))]
mod trust;
#[cfg(feature = "http")]
pub mod wire;

pub use client::{Client, GateOutcome, Lease, LeaseBuilder, connect};
pub use error::{Error, Result};
#[doc(hidden)]
pub use join_all::join_all;
#[doc(hidden)]
pub use json_size::json_bytes;
pub use leasehold_core as core;
pub use leases::{
    AcquireAllOutcome, AcquireAllRequest, AcquireOutcome, AcquireRequest, BreakOutcome,
    BreakRequest, ClaimRequest, Hold, HolderKey, Leases, ListRequest, Listing, NamedHold,
    PutRequest, RenewRequest, RenewedHold, UpdateOutcome, UpdateRequest,
};
#[cfg(feature = "http")]
pub use remote::{Remote, RemoteEvents};
