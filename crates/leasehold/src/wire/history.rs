//! What was: who held a name, and how much there was to do.

use leasehold_core::{Fence, Text, Time};
use serde::{Deserialize, Serialize};

use super::{EndedAs, Sharing, rfc3339};

/// Who held a name, as far as a service knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Since when the service looks: what was before is not known.
    #[serde(with = "rfc3339")]
    pub since: Time,
    /// When this was told, in the store's time.
    #[serde(with = "rfc3339")]
    pub time: Time,
    /// Who, in the order of their fences. The oldest are forgotten.
    pub tenures: Vec<Tenure>,
}

/// One who held it, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenure {
    /// Its fencing token.
    pub fence: Fence,
    /// Who it was.
    pub owner: Text,
    /// How it held.
    pub mode: Sharing,
    /// From when.
    #[serde(with = "rfc3339")]
    pub from: Time,
    /// Until when; missing where no end is known.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "rfc3339::option"
    )]
    pub until: Option<Time>,
    /// What became of it; missing with an end: the record does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<EndedAs>,
}

/// How much a service has to do, and had to in the last hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// When it started, in the store's time.
    #[serde(with = "rfc3339")]
    pub since: Time,
    /// When this was told.
    #[serde(with = "rfc3339")]
    pub time: Time,
    /// Leases held, of the names that it has in its cache.
    pub held: u64,
    /// Who waits in line.
    pub waiters: u64,
    /// The last hour minute by minute, or as much of it as there was. The last minute is not over.
    pub minutes: Vec<Minute>,
}

/// What happened within a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Minute {
    /// Leases granted.
    pub grants: u64,
    /// Requests refused because somebody else had it, or because a gate was shut.
    pub refusals: u64,
    /// Requests answered that were ready to wait in line…
    pub waits: u64,
    /// …and how long they took together, in milliseconds.
    pub waited: u64,
}
