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
//! A conflict with a renewal cancels the transaction with `TransactionConflict`: retry it.

#[cfg(feature = "dynamodb")]
use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, Update};

use super::Bearer;

/// A condition on the item of a lease, with its parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The key of the item: the attribute `id`, a string.
    pub id: String,
    /// The `ConditionExpression`.
    pub condition: &'static str,
    /// The string parameter `:entry`.
    pub entry: String,
}

/// Returns the check for leases in DynamoDB, in the same account and region. It passes if this fence still holds the
/// lease, which is not granted again before the transaction is done.
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
    /// Builds the condition check on the store's table.
    pub fn on(self, table: impl Into<String>) -> ConditionCheck {
        ConditionCheck::builder()
            .table_name(table)
            .key("id", AttributeValue::S(self.id))
            .condition_expression(self.condition)
            .expression_attribute_values(":entry", AttributeValue::S(self.entry))
            .build()
            .expect("all required fields are set")
    }
}

/// A write to the item of a name in a table of fences, with its parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The key of the item: the attribute `id`, a string.
    pub id: String,
    /// The `UpdateExpression`.
    pub update: &'static str,
    /// The `ConditionExpression`.
    pub condition: &'static str,
    /// The numeric parameter `:fence` of both.
    pub fence: u64,
}

/// Returns the guard for leases in another place: the update fails if a higher fence was written before. For
/// exclusive leases.
///
/// A DynamoDB write transaction reads nothing. So a new holder runs the guard once by itself, then reads what it is
/// going to write, and then includes the guard in every transaction.
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
    /// Builds the update of a table of your own, whose key is the string `id`.
    pub fn on(self, table: impl Into<String>) -> Update {
        Update::builder()
            .table_name(table)
            .key("id", AttributeValue::S(self.id))
            .update_expression(self.update)
            .condition_expression(self.condition)
            .expression_attribute_values(":fence", AttributeValue::N(self.fence.to_string()))
            .build()
            .expect("all required fields are set")
    }
}
