//! Cosmos DB, in a transactional batch of one logical partition.
//!
//! ```no_run
//! use leasehold::{Lease, fence};
//! use serde_json::{Value, json};
//!
//! # type Failure = Box<dyn std::error::Error>;
//! # trait Container {
//! #     async fn read(&self, partition: &str, id: &str) -> Result<Option<Value>, Failure>;
//! #     async fn batch(&self, partition: &str, operations: Value) -> Result<(), Failure>;
//! # }
//! # async fn example(container: impl Container, lease: &Lease) -> Result<(), Failure> {
//! let check = fence::cosmos::check(lease);
//! let account = json!({ "id": "account", "lease": check.id(), "balance": 90 });
//! let found = container.read(check.id(), check.id()).await?;
//! let operations = json!([
//!     check.operation(found)?, // `Error::Fenced`: write nothing
//!     { "operationType": "Upsert", "resourceBody": account },
//! ]);
//! container.batch(check.id(), operations).await?; // 412: the lease's item has changed since, read it again
//! # Ok(()) }
//! ```
//!
//! `container` stands for any client: the operations are JSON in the form of the REST API, and have the same parts in
//! every SDK (`replace item`, its id, its body, and `If-Match`).

use leasehold_core::{Fence, Record};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{Bearer, admit};
use crate::store::cosmos::record_id;
use crate::{Error, Result};

/// A condition on the item of a lease, as an operation of a batch in the item's logical partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    id: String,
    fence: Fence,
}

/// Returns the check for leases in the same container, and data in the lease's logical partition. It passes if this
/// fence still holds the lease, and until the batch is done the lease is not granted again.
///
/// The container must have the partition key `/lease`: items with the property `lease` = [`Check::id`] are in the
/// partition of that lease. A container with the key `/id`, which the store creates by default, does not support
/// this.
pub fn check<'a>(lease: impl Into<Bearer<'a>>) -> Check {
    let Bearer { name, fence } = lease.into();
    Check {
        id: record_id(name),
        fence,
    }
}

impl Check {
    /// Returns the id of the lease's item, which is also the value of its partition key.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the operation, given the lease's item as it was read, including `_etag`. It replaces the item by
    /// itself, on condition that it has not changed.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if this fence does not hold the lease: write nothing.
    pub fn operation(&self, found: Option<Value>) -> Result<Value> {
        let item = found.ok_or(Error::Fenced)?;
        let record = Record::deserialize(&item["record"]);
        let record = record.map_err(|error| corrupt(&self.id, &error.to_string()))?;
        if item["id"] != *self.id {
            return Err(corrupt(&self.id, "it is the item of another lease"));
        }
        match record.has_holder(self.fence) {
            true => replace(&self.id, item),
            false => Err(Error::Fenced),
        }
    }
}

/// A write to the item with the highest fence, as an operation of a batch in the data's logical partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    id: String,
    fence: Fence,
}

/// Returns the guard for leases in another place: the operation fails if a higher fence was written before. For
/// exclusive leases.
///
/// A batch cannot read values for its other operations. So a new holder runs the guard once in a separate batch, then
/// reads what it is going to write, and then includes the guard in every batch.
pub fn guard<'a>(lease: impl Into<Bearer<'a>>) -> Guard {
    let Bearer { name, fence } = lease.into();
    Guard {
        id: format!("fence.{}", record_id(name)),
        fence,
    }
}

impl Guard {
    /// Returns the id of the item with the fence. Each logical partition that is written to has one.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the operation, given that item as it was read, including `_etag`. If it does not exist yet, pass the
    /// properties of the partition key, such as `json!({ "tenant": "acme" })`.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if a higher fence was written before: write nothing.
    pub fn operation(&self, found: Value) -> Result<Value> {
        let Value::Object(mut item) = found else {
            return Err(corrupt(&self.id, "it is not an object"));
        };
        let is_new = !item.contains_key("_etag");
        if !is_new {
            let highest = item.get("fence").and_then(Value::as_u64);
            let highest = highest.and_then(Fence::new);
            let highest = highest.ok_or_else(|| corrupt(&self.id, "it has no fence"))?;
            admit(self.fence, highest)?;
        }
        item.insert("id".into(), json!(self.id));
        item.insert("fence".into(), json!(self.fence.get()));
        match is_new {
            true => Ok(json!({ "operationType": "Create", "resourceBody": item })),
            false => replace(&self.id, item.into()),
        }
    }
}

/// Returns an operation that replaces an item unless it has changed.
fn replace(id: &str, item: Value) -> Result<Value> {
    let etag = item["_etag"].as_str();
    let etag = etag.ok_or_else(|| corrupt(id, "it was read without its `_etag`"))?;
    Ok(json!({
        "operationType": "Replace",
        "id": id,
        "ifMatch": etag,
        "resourceBody": item,
    }))
}

fn corrupt(id: &str, problem: &str) -> Error {
    Error::Corrupt(format!(
        "cannot check a fence by the item `{id}`: {problem}"
    ))
}
