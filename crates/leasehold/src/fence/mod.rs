//! Fence checks for the resource: a stale holder's write fails in its own transaction.
//!
//! A process that was paused may wake up and write although its lease has long passed to another holder. No timer of
//! its own can prevent that, but the resource can. Each check here consists of a text and a few values, for any
//! driver and any language: [`postgres`], [`mysql`], [`sqlite`], [`mongodb`], [`dynamodb`], [`redis`], [`cosmos`],
//! [`azblob`]; and the [`Register`], for everything else.
//!
//! There are two kinds, depending on where the leases are.
//!
//! | | leases in the same database: `check` | leases elsewhere: `guard` |
//! |---|---|---|
//! | condition | this fence still holds the lease | no higher fence was seen |
//! | when to run it | **last**, just before the commit | **first**, before anything is read |
//! | leases | exclusive and shared | exclusive only: of the holders of a shared lease all but the newest would be refused |
//! | setup | none | a table of fences |
//!
//! # The guarantee of a check
//!
//! If it passes and the transaction commits, then no lease that conflicts with this fence was granted before that
//! commit. It requires no clock: a grant removes the holders that it replaces from the record, and while the
//! transaction is open, the record cannot be written. A holder that has expired but was not replaced passes, because
//! it overlaps with no other holder. One that was released or broken does not pass.
//!
//! A renewal writes the record too, and therefore waits for the transaction. Hence *last*: a transaction that stays
//! open for long after its check loses its own lease.
//!
//! # The guarantee of a guard
//!
//! It lets a fence pass unless a higher one has passed before, and blocks other transactions until this one ends. A
//! new holder is therefore safe from its predecessors from its own guard on, not from its grant on: what it read
//! before may since have been written by a zombie. Hence *first*.
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

/// The holder of a fence for a name, which is about to write. A [`Lease`] converts to it, and so do a name and a fence
/// from another source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bearer<'a> {
    /// The lease's name.
    pub name: &'a Name,
    /// The fence.
    pub fence: Fence,
}

impl Bearer<'_> {
    /// Returns the key of the lease in stores whose key contains kind and name.
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
