//! MongoDB, in a transaction of a replica set.
//!
//! ```no_run
//! use leasehold::{Error, Lease, fence};
//! use mongodb::bson::{Document, doc};
//!
//! # async fn example(db: mongodb::Database, lease: &Lease) -> Result<(), Box<dyn std::error::Error>> {
//! let mut session = db.client().start_session().await?;
//! session.start_transaction().await?;
//! let accounts = db.collection::<Document>("accounts");
//! accounts
//!     .update_one(doc! { "_id": 1 }, doc! { "$inc": { "balance": -10 } })
//!     .session(&mut session)
//!     .await?;
//! let check = fence::mongodb::check(lease);
//! let leases = db.collection::<Document>("leases");
//! let checked = leases.update_one(check.filter, check.update).session(&mut session).await?;
//! if checked.matched_count == 0 {
//!     return Err(Error::Fenced.into()); // dropped, the session aborts the transaction
//! }
//! session.commit_transaction().await?;
//! # Ok(()) }
//! ```
//!
//! A conflict with a renewal is a `TransientTransactionError`: retry it, as with any other. Commit with the write
//! concern `majority`, which is the default; otherwise the loss of a primary may roll back the write.

use mongodb::bson::{Document, doc};

use super::Bearer;

/// An update of one document. If it **matches none**, this fence may not write: abort.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// Selects the document.
    pub filter: Document,
    /// The changes.
    pub update: Document,
}

/// Returns the check for leases in the same replica set: an update of the store's collection (`leases`, unless its
/// URL says otherwise) that matches if this fence still holds the lease. Until the transaction ends, the lease is not
/// granted again. Run it **last**.
pub fn check<'a>(lease: impl Into<Bearer<'a>>) -> Update {
    let bearer = lease.into();
    let entry = format!(r#"\{{"fence":{},"#, bearer.fence);
    Update {
        filter: doc! { "_id": bearer.id(), "holders": { "$regex": entry } },
        update: counted(),
    }
}

/// Returns the guard for leases in another place: an **upsert** of a collection of fences. It fails with a duplicate
/// key if a higher fence was written before, and blocks other transactions until this one ends. Run it **first**. For
/// exclusive leases.
pub fn guard<'a>(lease: impl Into<Bearer<'a>>) -> Update {
    let bearer = lease.into();
    let fence = bearer.fence.get().cast_signed();
    let mut update = counted();
    update.insert("$set", doc! { "fence": fence });
    Update {
        filter: doc! { "_id": bearer.id(), "fence": { "$lte": fence } },
        update,
    }
}

/// Only a change of a document keeps other transactions from changing it.
fn counted() -> Document {
    doc! { "$inc": { "checks": 1_i64 } }
}
