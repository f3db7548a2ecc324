//! Several leases at once, and work items.

use leasehold_core::{BootTime, Name, Text};
use serde::{Deserialize, Serialize};

use super::Lease;
use crate::NamedHold;

/// A lease that the caller holds, with its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedLease {
    /// The name.
    pub name: Text,
    /// The lease. In JSON, its members are beside the name.
    #[serde(flatten)]
    pub lease: Lease,
}

impl NamedLease {
    /// Converts the response to a request that was sent at `sent`; `None` if it responds to another request.
    pub fn into_claimed(self, sent: BootTime) -> Option<NamedHold> {
        Some(NamedHold {
            name: Name::lock(&self.name).ok()?,
            hold: self.lease.into_hold(sent)?,
        })
    }
}

/// The names of several leases to acquire, all or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Names {
    /// The names, in any order.
    pub names: Vec<Text>,
}

/// The response to the acquisition of several leases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedLeases {
    /// The leases, in the order of their names.
    pub leases: Vec<NamedLease>,
}

/// The response to a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Items {
    /// The claimed items; empty if there was none.
    pub items: Vec<NamedLease>,
}

/// The response to a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutResponse {
    /// Whether the item was put, by this request or by an earlier delivery of it.
    pub stored: bool,
}

/// The response to a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveResponse {
    /// Whether the item is removed.
    pub removed: bool,
}
