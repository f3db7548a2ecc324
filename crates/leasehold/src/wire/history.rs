//! The history of a name, and the totals of a service.

use leasehold_core::{Fence, Text, Time};
use serde::{Deserialize, Serialize};

use super::{EndKind, ModeKind, rfc3339};

/// The holders of a name, as far as a service has observed them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// When the service began to observe the name.
    #[serde(with = "rfc3339")]
    pub since: Time,
    /// When the service responded, in store time.
    #[serde(with = "rfc3339")]
    pub time: Time,
    /// The hold periods, ordered by fence. The oldest ones are dropped.
    pub tenures: Vec<HoldPeriod>,
}

/// The time for which one holder held a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldPeriod {
    /// The fencing token.
    pub fence: Fence,
    /// The owner.
    pub owner: Text,
    /// Exclusive or shared.
    pub mode: ModeKind,
    /// When the period began.
    #[serde(with = "rfc3339")]
    pub from: Time,
    /// When the period ended; absent if the end is unknown.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "rfc3339::option"
    )]
    pub until: Option<Time>,
    /// How the period ended; absent if the record does not contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<EndKind>,
}

/// The present load of a service, and its load in the last hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// When the service started, in store time.
    #[serde(with = "rfc3339")]
    pub since: Time,
    /// When the service responded.
    #[serde(with = "rfc3339")]
    pub time: Time,
    /// The number of held leases among the cached names.
    pub held: u64,
    /// The number of waiters in all queues.
    pub waiters: u64,
    /// The last minutes, up to 60. The last one is incomplete.
    pub minutes: Vec<Minute>,
}

/// The counts of one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Minute {
    /// The number of granted leases.
    pub grants: u64,
    /// The number of requests that were refused because the lease was held or the gate was shut.
    pub refusals: u64,
    /// The number of answered requests that allowed a wait.
    pub waits: u64,
    /// The total duration of those requests, in milliseconds.
    pub waited: u64,
}
