//! Leases with fencing tokens on the database you already run.
//!
//! A *lease* is a lock that no crash leaves locked: its holder renews it, and when that dies, the next one takes over
//! after the *ttl*, with a higher *fence*, and with the *body* that the last holder left behind.
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
//! lease.update("step 3").await?; // where the next one resumes
//! lease.release().await?;
//! client.close().await; // at the end of the program
//! # Ok(()) }
//! ```
//!
//! # Holding a lease
//!
//! A [`Lease`] is renewed in the background until it is released, dropped or lost. A guard that is dropped releases its
//! lease in the background, and [`Client::close`] waits for that. A holder stops its work when
//! [`lost`](Lease::lost) returns: a local timer fires before anybody else can take the lease, even when the network
//! hangs. [`run`](LeaseBuilder::run) does that for you.
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
//! A process that was paused may wake up and go on writing before its timer fires. Hence the fence: each grant has a
//! higher one than every grant before it. A resource that remembers the highest fence it has seen, and refuses lower
//! ones, is safe from every zombie. [`fence`] has such checks for the databases' own transactions.
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
//! Who does not get a lease is told who has it: contention is [`Error::Held`], everything else in [`Error`] says what
//! to do next. Here with a shared lease, of which there are two.
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
//! A *gate* lets one call pass per period, over all processes; an action that fails opens it again.
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
//! *Work items* have a state. Workers claim leases on the oldest of a state, and move them on; what a dead worker had
//! goes to the others.
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
//! And: one of at most so many ([`semaphore`](Client::semaphore)), many readers or one writer
//! ([`rw_lock`](Client::rw_lock)), one who leads ([`election`](Client::election)), several leases, all or none
//! ([`lease_all`](Client::lease_all)).
//!
//! # Features
//!
//! | feature | URL | by default |
//! |---|---|---|
//! | `sqlite` | `sqlite:PATH` | yes |
//! | `http` | `http://…`, `https://…`: a running service | yes |
//! | `postgres` | `postgres://…` | |
//! | `redis` | `redis://…`, `rediss://…` | |
//! | `mysql`, `mongodb`, `dynamodb`, `etcd`, `azblob`, `cosmos` | named like the feature | |
//! | `conformance` | the suite that every store passes | |
//!
//! `memory:` is always there. (The command `leasehold` has other defaults: `postgres` and `redis` as well.)
//!
//! # Where things are
//!
//! | idea | module |
//! |---|---|
//! | take, keep, lose and release leases; recipes | [`client`] |
//! | the waist between what uses leases and what provides them | [`Leases`] |
//! | refuse stale holders where the data is | [`fence`] |
//! | combine operations, keep waiters in line | [`engine`] |
//! | where records are kept; a store of your own | [`store`] |
//! | what a lease is, and every decision about it | [`core`] |
//! | clocks and random numbers, for simulations | [`host`] |
//! | counters and histograms | [`measure`] |

#[doc(hidden)]
pub mod awake;
pub mod client;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod duration;
pub mod engine;
mod error;
pub mod fence;
pub mod health;
pub mod host;
mod leases;
pub mod measure;
#[cfg(doctest)]
mod pages;
#[cfg(feature = "http")]
mod remote;
mod side_by_side;
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

pub use client::{Client, Gated, Lease, LeaseBuilder, connect};
pub use error::{Error, Result};
pub use leasehold_core as core;
pub use leases::{
    AcquireAllRequest, AcquireRequest, Acquired, AcquiredAll, BreakRequest, Broke, ClaimRequest,
    Claimed, Hold, Holding, Leases, ListRequest, Listing, PutRequest, RenewRequest, Renewed,
    UpdateRequest, Updated,
};
#[cfg(feature = "http")]
pub use remote::{Remote, RemoteEvents};
#[doc(hidden)]
pub use side_by_side::side_by_side;
