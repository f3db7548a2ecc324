//! Several leases at once, and work items.

use leasehold_core::{BootTime, Name, Text};
use serde::{Deserialize, Serialize};

use super::Lease;
use crate::Claimed;

/// A lease that is the caller's, with its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedLease {
    /// The name.
    pub name: Text,
    /// The lease, its members beside the name.
    #[serde(flatten)]
    pub lease: Lease,
}

impl NamedLease {
    /// What a request sent at this moment was answered with; `None` if this answers something else.
    pub fn into_claimed(self, sent: BootTime) -> Option<Claimed> {
        Some(Claimed {
            name: Name::lock(&self.name).ok()?,
            hold: self.lease.into_hold(sent)?,
        })
    }
}

/// The names of several leases that are wanted, all or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Names {
    /// Them, in any order.
    pub names: Vec<Text>,
}

/// The answer to taking several leases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedLeases {
    /// All of them, in the order of their names.
    pub leases: Vec<NamedLease>,
}

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Items {
    /// The items that are now the caller's; none if there was none.
    pub items: Vec<NamedLease>,
}

/// The answer to putting a work item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// It is there (now, or by this same put before).
    pub stored: bool,
}

/// The answer to removing a work item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// It is there no more.
    pub removed: bool,
}
