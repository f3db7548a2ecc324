//! Redis or Valkey, with a script. Scripts run one at a time, so a check in the first lines is valid for the rest.
//!
//! ```no_run
//! # #[cfg(feature = "redis")] {
//! use leasehold::{Lease, fence};
//!
//! # async fn example(mut db: redis::aio::MultiplexedConnection, lease: &Lease) -> redis::RedisResult<()> {
//! let check = fence::redis::check(lease);
//! let script = redis::Script::new(&check.before("return redis.call('DECRBY', KEYS[1], ARGV[1])"));
//! let left: i64 = script
//!     .key("balance")
//!     .key(check.key()) // the check's own come last
//!     .arg(10)
//!     .arg(check.fence())
//!     .invoke_async(&mut db)
//!     .await?; // an error with the code `FENCED`, and nothing was written
//! # Ok(()) }
//! # }
//! ```

use leasehold_core::Fence;

use super::Bearer;

/// The first lines of a script, with the last key and the last argument for its call. They remove both, so that the
/// numbering of the script's own keys and arguments is unchanged.
///
/// If the fence may not write, the script ends there, with an error whose code is `FENCED`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prelude {
    lua: &'static str,
    place: String,
    prefix: String,
    fence: Fence,
}

impl Prelude {
    /// Sets the prefix of the store's keys: the value of `?prefix=` in its URL.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Returns the script with the check before it.
    pub fn before(&self, script: &str) -> String {
        format!("{}{script}", self.lua)
    }

    /// Returns the last key of the call.
    pub fn key(&self) -> String {
        format!("{}:{}", self.prefix, self.place)
    }

    /// Returns the last argument of the call.
    pub fn fence(&self) -> u64 {
        self.fence.get()
    }
}

/// Returns the check for leases in the same Redis and database: the script continues if this fence still holds the
/// lease.
pub fn check<'a>(lease: impl Into<Bearer<'a>>) -> Prelude {
    prelude(include_str!("check.lua"), "", lease.into())
}

/// Returns the guard for leases in another place: the script continues unless a higher fence was seen. Data must also
/// be read by the script, or after a script that the same fence has passed. For exclusive leases.
pub fn guard<'a>(lease: impl Into<Bearer<'a>>) -> Prelude {
    prelude(include_str!("guard.lua"), "fence:", lease.into())
}

fn prelude(lua: &'static str, within: &str, bearer: Bearer<'_>) -> Prelude {
    Prelude {
        lua,
        place: format!("{within}{}", bearer.id()),
        prefix: "leasehold".into(),
        fence: bearer.fence,
    }
}
