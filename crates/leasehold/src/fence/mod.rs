//! Checks for the resource's side: a stale holder's write fails in the transaction that makes it.
//!
//! A process that was paused may wake up and write although its lease has long passed to somebody else. No timer of its
//! own prevents that; whoever keeps the data can. Each check here is a text and a few values, for any driver and any
//! language: [`postgres`], [`mysql`], [`sqlite`], [`mongodb`], [`dynamodb`], [`redis`], [`cosmos`], [`azblob`]; and the
//! [`Register`], for everything else.
//!
//! There are two kinds, by where the leases are.
//!
//! | | the leases are in the same database: `check` | they are elsewhere: `guard` |
//! |---|---|---|
//! | what it asks | does this fence still hold the lease? | was a higher fence here? |
//! | when to run it | **last**, just before the commit | **first**, before anything is read |
//! | leases | exclusive and shared | exclusive only: of the holders of a shared lease all but the newest would be refused |
//! | set-up | none | a table of fences |
//!
//! # What a check promises
//!
//! If it passes and the transaction commits, then nobody in conflict with this fence was granted the lease before that
//! commit. It needs no clock: whoever is granted a lease removes from its record all whom that replaces, and while the
//! transaction is open, nobody can write the record. A holder whose time is over, but whom nobody has replaced,
//! passes: it overlaps with nobody. One that was released or broken does not pass.
//!
//! A renewal writes the record, too, and so waits for the transaction. Hence *last*: a transaction that stays open
//! behind its check for long loses its own lease.
//!
//! # What a guard promises
//!
//! It lets a fence pass unless a higher one has passed before, and keeps others out until the transaction ends. A new
//! holder is therefore safe from its predecessors from its own guard on, not from its grant on: what it read before
//! may since have been written by a zombie. Hence *first*.
//!
//! ```
//! use leasehold::fence;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> leasehold::Result<()> {
//! # let client = leasehold::connect("memory:").await?;
//! let lease = client.lease("nightly").acquire().await?;
//! let check = fence::postgres::check(&lease);
//! assert!(check.sql().ends_with("for share"));
//! assert_eq!(check.values(), ("nightly", lease.fence().get() as i64)); // $1 and $2
//! # Ok(()) }
//! ```

pub mod azblob;
#[cfg(feature = "cosmos")]
pub mod cosmos;
pub mod dynamodb;
#[cfg(feature = "mongodb")]
pub mod mongodb;
pub mod mysql;
pub mod postgres;
pub mod redis;
mod register;
mod sql;
pub mod sqlite;

use leasehold_core::{Fence, Name};

pub use register::{Admitted, Register};
pub use sql::Statement;

use crate::{Error, Lease, Result};

/// Refuses a fence below the highest one so far.
fn admit(fence: Fence, highest: Fence) -> Result<()> {
    match fence < highest {
        true => Err(Error::Fenced),
        false => Ok(()),
    }
}

/// Who wants to write: whoever was granted this fence under this name. A [`Lease`] is one; so are a name and a fence
/// that came from somewhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bearer<'a> {
    /// The lease's name.
    pub name: &'a Name,
    /// The fence.
    pub fence: Fence,
}

impl Bearer<'_> {
    /// The key of the lease in stores that keep kind and name in one.
    fn id(&self) -> String {
        format!("{}:{}", self.name.kind().as_str(), self.name)
    }
}

impl<'a> From<&'a Lease> for Bearer<'a> {
    fn from(lease: &'a Lease) -> Self {
        (lease.name(), lease.fence()).into()
    }
}

impl<'a> From<(&'a Name, Fence)> for Bearer<'a> {
    fn from((name, fence): (&'a Name, Fence)) -> Self {
        Self { name, fence }
    }
}
