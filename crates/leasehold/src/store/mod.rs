//! Where records are kept: the [`Store`] trait, and the table of backends that drives URLs, help and tests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Kind, Name, Record, Stamp, Text, Time};
use tokio::sync::mpsc;

use crate::{Error, Result};

#[cfg(feature = "azblob")]
pub mod azblob;
#[cfg(any(feature = "azblob", feature = "cosmos"))]
mod azure;
mod backends;
mod check;
#[cfg(feature = "cosmos")]
pub mod cosmos;
#[cfg(any(feature = "azblob", feature = "cosmos", feature = "etcd"))]
mod date;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
#[cfg(feature = "etcd")]
pub mod etcd;
mod examine;
#[cfg(any(feature = "azblob", feature = "cosmos", feature = "etcd"))]
mod json;
pub mod memory;
#[cfg(feature = "mongodb")]
pub mod mongodb;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
// What of it is used depends on which stores are built.
#[cfg(any(
    feature = "cosmos",
    feature = "dynamodb",
    feature = "mongodb",
    feature = "mysql",
    feature = "postgres",
    feature = "redis"
))]
#[cfg_attr(not(feature = "postgres"), allow(dead_code))]
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub(crate) mod url;
#[cfg(any(feature = "etcd", feature = "postgres"))]
mod watched;

pub use backends::{BACKENDS, Backend, open};
pub use check::{Check, Level};
pub use examine::examine;
pub use url::{has_secret, key_file, redacted};

/// A database that keeps records. It decides nothing: it loads, swaps if unchanged, and finds.
///
/// Every answer carries the store's own time. A store must be linearizable for single records.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What an engine needs to know to use it well.
    fn facts(&self) -> Facts;

    /// The records under these names, in the same order. With no names it only tells the time.
    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>>;

    /// Writes or deletes each record whose version still matches, in the same order; each stands alone. A write that
    /// expects a version never inserts; one that expects none never overwrites. No name comes twice in a batch. A
    /// loser gets the current record back.
    ///
    /// `Err` is about the whole batch: [`Error::Unavailable`] only when surely nothing was written.
    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>>;

    /// Records by prefix, state and availability, in pages: with a state oldest first, otherwise by name.
    async fn find(&self, query: &Query) -> Result<Answer<Page>>;

    /// A stream of names that may have changed, opened before anything is loaded. A hint, never a promise; without
    /// one, the engine polls.
    fn changes(&self) -> Option<Changes> {
        None
    }

    /// When this store last resumed a clock of its own after an interruption of unknown length, such as a reboot.
    /// Holders outlive that, so each keeps a whole ttl from then on. `None` for a store whose clock runs elsewhere.
    fn restarted_at(&self) -> Option<Time> {
        None
    }

    /// Somebody watches all names: for the next minute [`changes`](Self::changes) should hint at every write of others,
    /// not only at those that somebody may wait for. Called again while that is so.
    fn watch(&self) {}

    /// Sends the hints that are still queued, when an engine on it closes: so other processes hear of the changes of a
    /// short-lived one.
    async fn close(&self) {}

    /// Whether a call keeps its thread until it is answered. The engine then lets everybody who is ready come along.
    fn blocks(&self) -> bool {
        false
    }

    /// Whether a write costs so much, as a commit to a local disk does, that renewals should wait a moment for company, and
    /// that whoever has company leaves the call to a thread of the engine's.
    fn is_dear(&self) -> bool {
        false
    }

    /// Whether its records lie in this process's memory. An engine then remembers few that are free:
    /// looking again costs less.
    fn is_near(&self) -> bool {
        false
    }

    /// Makes sure that tables, indexes and the like are there. Idempotent.
    async fn init(&self) -> Result<()> {
        Ok(())
    }

    /// What makes leases safe or unsafe on this database as it is set up, each with its fix. Changes nothing. What
    /// holds for every store is [`examine`]'s.
    async fn check(&self) -> Result<Vec<Check>> {
        Ok(Vec::new())
    }
}

/// Names that may have changed. Ends when the store is closed.
pub type Changes = mpsc::Receiver<Name>;

/// What an engine needs to know of a store.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// What the store's clock may step by when another of its nodes answers.
    pub margin: Duration,
    /// The most writes or names in one call.
    pub batch: usize,
    /// How many calls may be under way at once. One, where a second could only queue up behind the first.
    pub in_flight: usize,
    /// How often to look at names that somebody waits for.
    pub poll: Duration,
}

/// An answer of a store, with its time.
#[derive(Clone, Debug)]
pub struct Answer<T> {
    /// What was asked for.
    pub value: T,
    /// The store's time while it answered.
    pub stamp: Stamp,
}

/// A random 128-bit id chosen by the writer of a version. Never reused, so it *is* the version.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WriteId(pub u128);

impl WriteId {
    /// The id that [`Display`](fmt::Display) wrote like this: 32 hexadecimal digits.
    pub fn parse(hex: &str) -> Option<Self> {
        (hex.len() == 32)
            .then(|| u128::from_str_radix(hex, 16).ok().map(Self))
            .flatten()
    }
}

impl fmt::Display for WriteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for WriteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which version of a record this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The id of the write that made it.
    pub write: WriteId,
    /// What the store wants to be told of it again: an ETag, a revision, where it lies. Nobody else reads it.
    pub tag: Option<Text>,
}

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its version.
    pub version: Version,
    /// The record, shared with whoever has read or written it.
    pub record: Arc<Record>,
}

impl Stored {
    /// A record that was read.
    pub fn new(version: Version, record: Record) -> Self {
        let record = Arc::new(record);
        Self { version, record }
    }
}

/// One write of a batch.
#[derive(Clone, Debug)]
pub struct Write {
    /// Which record.
    pub name: Name,
    /// The version that it must still have; `None`: there must be none.
    pub expect: Option<Version>,
    /// What to put in its place, under which id; `None` deletes it.
    pub put: Option<(WriteId, Arc<Record>)>,
    /// Whether the body differs from the expected version's. If not, it need not be moved.
    pub body_changed: bool,
}

/// What became of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// It is durable. With the new version's tag.
    Written {
        /// The tag.
        tag: Option<Text>,
    },
    /// The version did not match. This is the current record.
    Conflict(Option<Stored>),
    /// This one failed, whatever the others did: [`Error::Unavailable`] if surely nothing was written.
    Failed(Error),
}

/// Which records to find.
#[derive(Clone, Debug)]
pub struct Query {
    /// Locks or gates.
    pub kind: Kind,
    /// Names that start like this.
    pub prefix: String,
    /// Only items in this state, oldest `state.since` first (then by name).
    pub state: Option<Text>,
    /// Skip what is surely not wanted. A hint: the store may return more, since only the core knows what is live.
    pub availability: Option<Availability>,
    /// Go on after a page.
    pub cursor: Option<String>,
    /// At most so many.
    pub limit: usize,
}

impl Query {
    /// All of a kind.
    pub fn all(kind: Kind) -> Self {
        Self {
            kind,
            prefix: String::new(),
            state: None,
            availability: None,
            cursor: None,
            limit: 100,
        }
    }
}

/// Whether records that somebody holds are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// Those without a holder whose expiry is at or after this.
    Free(Time),
    /// Those with one.
    Held(Time),
}

/// A page of records.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The records.
    pub records: Vec<(Name, Stored)>,
    /// Where to go on; `None` at the end. Only the store that made it can read it.
    pub cursor: Option<String>,
}

/// The latest expiry of any holder: what stores index for [`Availability`]. Zero when nobody holds it.
pub fn held_until(record: &Record) -> Time {
    record
        .holders
        .iter()
        .map(|holder| holder.expires_at)
        .max()
        .unwrap_or_default()
}
