//! The [`Store`] trait, which every database implements, and the table of backends that drives URLs, help and tests.

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
// Which items are used depends on the enabled stores.
#[cfg(any(feature = "etcd", feature = "postgres"))]
mod notification_request;
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

pub use backends::{BACKENDS, Backend, open};
pub use check::{Check, Level};
pub use examine::examine;
pub use url::{has_secret, key_file, redacted};

/// A database that keeps records. It takes no decisions: it loads, swaps if unchanged, and finds.
///
/// Every answer carries the store's own time. A store must be linearizable for single records.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Returns the properties that an engine needs in order to schedule calls.
    fn facts(&self) -> Facts;

    /// Loads the records under these names, in the same order. With no names it only reads the store's time.
    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>>;

    /// Writes or deletes each record whose version still matches, and returns the results in the same order.
    ///
    /// The writes are independent. A write that expects a version never inserts; a write that expects none never
    /// overwrites. A batch has no name twice. A write that conflicts returns the current record.
    ///
    /// An `Err` concerns the whole batch. It is [`Error::Unavailable`] only if certainly nothing was written.
    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>>;

    /// Finds records by prefix, state and availability, in pages: oldest first if a state is given, otherwise by
    /// name.
    async fn find(&self, query: &Query) -> Result<Answer<Page>>;

    /// Returns a stream of names that may have changed. It is opened before anything is loaded.
    ///
    /// A hint, not a guarantee. Without it, the engine polls.
    fn changes(&self) -> Option<Changes> {
        None
    }

    /// Returns when this store last resumed a clock of its own after an interruption of unknown length, such as a
    /// reboot.
    ///
    /// Holders survive the interruption, so each gets a full ttl from that time. `None` if the store's clock runs
    /// elsewhere.
    fn restarted_at(&self) -> Option<Time> {
        None
    }

    /// Reports that a subscriber watches all names: for the next minute [`changes`](Self::changes) should include
    /// every write of other processes, not only those that may free a name. Called repeatedly while that is so.
    fn watch(&self) {}

    /// Sends the queued change notifications when an engine closes, so that other processes see the changes of a
    /// short-lived one.
    async fn close(&self) {}

    /// Returns whether a call occupies its thread until it is answered. The engine then batches all operations that
    /// are ready.
    fn blocks(&self) -> bool {
        false
    }

    /// Returns whether commits are expensive enough (such as those to a local disk) that renewals should be batched,
    /// and that batches should run on a dedicated thread of the engine.
    fn has_expensive_commits(&self) -> bool {
        false
    }

    /// Returns whether records are in this process's memory. An engine then caches few free records, because loading
    /// them again is cheap.
    fn is_in_process(&self) -> bool {
        false
    }

    /// Creates missing tables, indexes and the like. Idempotent.
    async fn init(&self) -> Result<()> {
        Ok(())
    }

    /// Checks the settings of this database that make leases safe or unsafe, each with its fix. Changes nothing.
    ///
    /// [`examine`] adds the checks that apply to every store.
    async fn check(&self) -> Result<Vec<Check>> {
        Ok(Vec::new())
    }
}

/// A stream of names that may have changed. It ends when the store is closed.
pub type Changes = mpsc::Receiver<Name>;

/// The properties of a store that an engine needs.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// How far the store's clock may step when another of its nodes answers.
    pub margin: Duration,
    /// The maximum number of writes or names in one call.
    pub batch: usize,
    /// The maximum number of concurrent calls. One if a second call would only queue behind the first.
    pub in_flight: usize,
    /// How often to poll names that have waiters.
    pub poll: Duration,
}

/// A store's answer, with its time.
#[derive(Clone, Debug)]
pub struct Answer<T> {
    /// The result.
    pub value: T,
    /// The store's time when it answered.
    pub stamp: Stamp,
}

/// A random 128-bit id chosen by the writer of a version. It is never reused, so it *is* the version.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WriteId(pub u128);

impl WriteId {
    /// Parses the 32 hexadecimal digits that [`Display`](fmt::Display) writes.
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

/// The version of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The id of the write that created it.
    pub write: WriteId,
    /// What the store needs in order to find the version again: an ETag, a revision, a row id. Opaque to callers.
    pub tag: Option<Text>,
}

/// A stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its version.
    pub version: Version,
    /// The record, shared between readers and writers.
    pub record: Arc<Record>,
}

impl Stored {
    /// Wraps a record that was read.
    pub fn new(version: Version, record: Record) -> Self {
        let record = Arc::new(record);
        Self { version, record }
    }
}

/// One write of a batch.
#[derive(Clone, Debug)]
pub struct Write {
    /// The record's name.
    pub name: Name,
    /// The version that the record must have; `None` if it must not exist.
    pub expect: Option<Version>,
    /// The new record and its write id; `None` deletes the record.
    pub put: Option<(WriteId, Arc<Record>)>,
    /// Whether the body differs from the expected version's. If not, it need not be sent.
    pub body_changed: bool,
}

/// The result of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// The write is durable.
    Written {
        /// The tag of the new version.
        tag: Option<Text>,
    },
    /// The version did not match. Contains the current record.
    Conflict(Option<Stored>),
    /// This write failed, independently of the others: [`Error::Unavailable`] if certainly nothing was written.
    Failed(Error),
}

/// A search for records.
#[derive(Clone, Debug)]
pub struct Query {
    /// Locks or gates.
    pub kind: Kind,
    /// The prefix of the names.
    pub prefix: String,
    /// Restricts the search to items in this state, oldest `state.since` first, then by name.
    pub state: Option<Text>,
    /// Restricts the search to free or held records. A hint: the store may return more, because only the core knows
    /// which holders are live.
    pub availability: Option<Availability>,
    /// Continues after an earlier page.
    pub cursor: Option<String>,
    /// The maximum number of records.
    pub limit: usize,
}

impl Query {
    /// Finds all records of a kind.
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

/// Whether to find free or held records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// Records without a holder that expires at or after this time.
    Free(Time),
    /// Records with such a holder.
    Held(Time),
}

/// A page of records.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The records.
    pub records: Vec<(Name, Stored)>,
    /// Where the next page starts; `None` at the end. Only the store that created it can read it.
    pub cursor: Option<String>,
}

/// Returns the latest expiry of any holder, which stores index for [`Availability`]. Zero if there is none.
pub fn held_until(record: &Record) -> Time {
    record
        .holders
        .iter()
        .map(|holder| holder.expires_at)
        .max()
        .unwrap_or_default()
}
