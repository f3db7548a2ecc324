//! Leases with fencing tokens on the database you already run.

pub mod client;
pub mod duration;
pub mod engine;
mod error;
pub mod host;
mod leases;
pub mod store;
#[cfg(feature = "http")]
pub mod wire;

pub use client::{Client, Lease, LeaseBuilder, connect};
pub use error::{Error, Result};
pub use leasehold_core as core;
pub use leases::{
    AcquireRequest, Acquired, BreakRequest, Broke, Hold, Holding, Leases, ListRequest, Listing,
    RenewRequest, Renewed, UpdateRequest, Updated,
};
