//! Redis or Valkey, by a script: one runs at a time, so what its first lines have found holds for the rest.
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

/// The first lines of a script, with the last key and the last argument that it is to be called with. They take both away,
/// so the script's own are numbered as ever.
///
/// Where the fence may not write, the script ends there, with an error whose code is `FENCED`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prelude {
    lua: &'static str,
    place: String,
    prefix: String,
    fence: Fence,
}

impl Prelude {
    /// The store's keys begin like this: what its URL says as `?prefix=`, if it does.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The script, with the check before it.
    pub fn before(&self, script: &str) -> String {
        format!("{}{script}", self.lua)
    }

    /// The last of its keys.
    pub fn key(&self) -> String {
        format!("{}:{}", self.prefix, self.place)
    }

    /// The last of its arguments.
    pub fn fence(&self) -> u64 {
        self.fence.get()
    }
}

/// Where the leases are in the same Redis and database: the script goes on if this fence still holds the lease.
pub fn check<'a>(lease: impl Into<Bearer<'a>>) -> Prelude {
    prelude(include_str!("check.lua"), "", lease.into())
}

/// Where the leases are elsewhere: the script goes on unless a higher fence was here. What is written must also be read by the
/// script, or behind one that the same fence has passed. For exclusive leases.
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
