//! DynamoDB, in `TransactWriteItems`.
//!
//! ```no_run
//! # #[cfg(feature = "dynamodb")] {
//! use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
//! use leasehold::{Lease, fence};
//!
//! # async fn example(db: aws_sdk_dynamodb::Client, update: Update, lease: &Lease) -> Result<(), aws_sdk_dynamodb::Error> {
//! let check = fence::dynamodb::check(lease).on("leases");
//! db.transact_write_items()
//!     .transact_items(TransactWriteItem::builder().update(update).build())
//!     .transact_items(TransactWriteItem::builder().condition_check(check).build())
//!     .send()
//!     .await?; // `TransactionCanceledException` with `ConditionalCheckFailed`, and nothing was written
//! # Ok(()) }
//! # }
//! ```
//!
//! A conflict with a renewal cancels a transaction with `TransactionConflict`: do it again.

#[cfg(feature = "dynamodb")]
use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, Update};

use super::Bearer;

/// A condition on the item of a lease, with the value that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The item's key: the attribute `id`, a string.
    pub id: String,
    /// The `ConditionExpression`.
    pub condition: &'static str,
    /// The string `:entry` in it.
    pub entry: String,
}

/// Where the leases are in DynamoDB, in the same account and region: holds if this fence still holds the lease. Nobody else
/// is granted it before the transaction is done.
pub fn check<'a>(lease: impl Into<Bearer<'a>>) -> Check {
    let bearer = lease.into();
    Check {
        id: bearer.id(),
        condition: "contains(holders, :entry)",
        entry: format!(r#"{{"fence":{},"#, bearer.fence),
    }
}

#[cfg(feature = "dynamodb")]
impl Check {
    /// On the store's table.
    pub fn on(self, table: impl Into<String>) -> ConditionCheck {
        ConditionCheck::builder()
            .table_name(table)
            .key("id", AttributeValue::S(self.id))
            .condition_expression(self.condition)
            .expression_attribute_values(":entry", AttributeValue::S(self.entry))
            .build()
            .expect("all that it needs is there")
    }
}

/// A write to the item of a name in a table of fences, with the value that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The item's key: the attribute `id`, a string.
    pub id: String,
    /// The `UpdateExpression`.
    pub update: &'static str,
    /// The `ConditionExpression`.
    pub condition: &'static str,
    /// The number `:fence` in both.
    pub fence: u64,
}

/// Where the leases are elsewhere: an update that happens unless a higher fence was here. For exclusive leases.
///
/// A transaction of DynamoDB reads nothing. So a new holder writes its fence once by itself, then reads what it is going to
/// write, and then has this in every transaction.
pub fn guard<'a>(lease: impl Into<Bearer<'a>>) -> Guard {
    let bearer = lease.into();
    Guard {
        id: bearer.id(),
        update: "SET fence = :fence",
        condition: "attribute_not_exists(fence) OR fence <= :fence",
        fence: bearer.fence.get(),
    }
}

#[cfg(feature = "dynamodb")]
impl Guard {
    /// On a table of yours, whose key is the string `id`.
    pub fn on(self, table: impl Into<String>) -> Update {
        Update::builder()
            .table_name(table)
            .key("id", AttributeValue::S(self.id))
            .update_expression(self.update)
            .condition_expression(self.condition)
            .expression_attribute_values(":fence", AttributeValue::N(self.fence.to_string()))
            .build()
            .expect("all that it needs is there")
    }
}
