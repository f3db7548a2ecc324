//! The results of `leasehold doctor` for a store.

use serde::Serialize;

/// One finding, and how to fix it.
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
    /// The severity.
    pub level: Level,
    /// The finding, in one line, without secrets.
    pub what: String,
    /// The command to run or the setting to change. `None` if nothing is wrong, or if `what` contains the fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Check {
    /// Creates a finding without a problem.
    pub fn green(what: impl Into<String>) -> Self {
        Self {
            level: Level::Green,
            what: what.into(),
            fix: None,
        }
    }

    /// Creates a finding that leases are safe, but less durable, slower or more fragile than they could be.
    pub fn yellow(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            level: Level::Yellow,
            what: what.into(),
            fix: Some(fix.into()),
        }
    }

    /// Creates a finding that leases are unsafe: a lease may have two holders, or acknowledged writes may be lost.
    pub fn red(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            level: Level::Red,
            what: what.into(),
            fix: Some(fix.into()),
        }
    }
}

/// The severity of a finding. Worse is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No problem.
    Green,
    /// Safe, but not optimal.
    Yellow,
    /// Unsafe.
    Red,
}
