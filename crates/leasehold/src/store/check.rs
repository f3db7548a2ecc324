//! What `leasehold doctor` found out about a store.

use serde::Serialize;

/// One thing that was looked at, and what to do about it.
///
/// ```
/// use leasehold::store::{Check, Level};
///
/// let check = Check::red(
///     "keys may be evicted: maxmemory-policy is allkeys-lru",
///     "CONFIG SET maxmemory-policy noeviction",
/// );
/// assert_eq!(check.level, Level::Red);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// How bad it is.
    pub level: Level,
    /// What was found, in one line, without secrets.
    pub what: String,
    /// What to run or to change. `None` where nothing is wrong, or where `what` says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Check {
    /// All is well.
    pub fn green(what: impl Into<String>) -> Self {
        Self {
            level: Level::Green,
            what: what.into(),
            fix: None,
        }
    }

    /// Leases are safe, but less durable, slower or more fragile than they could be.
    pub fn yellow(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            level: Level::Yellow,
            what: what.into(),
            fix: Some(fix.into()),
        }
    }

    /// Leases are not safe like this: two may hold one, or what was acknowledged may be forgotten.
    pub fn red(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            level: Level::Red,
            what: what.into(),
            fix: Some(fix.into()),
        }
    }
}

/// How bad it is. Worse is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// All is well.
    Green,
    /// Safe, but worth a thought.
    Yellow,
    /// Unsafe.
    Red,
}
