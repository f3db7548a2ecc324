//! Leases in a SQLite file that the processes of one machine share.
//!
//! # Guarantee
//! Linearizable across all processes that have the file open. Acknowledged writes are on the disk: write-ahead log,
//! `synchronous=FULL`, one transaction for each batch. The store's time never runs backwards, whatever the wall clock
//! does and however often the machine reboots. After a reboot every holder gets a full ttl.
//!
//! # Stored form
//! One row of the table `records` per record, in full, with its lists as JSON. The view `leases` shows the records in
//! readable form: `sqlite3 leases.db 'select * from leases'`. The single row of `clock` identifies the boot clock
//! that the store's time follows, and keeps the time's high-water mark.
//!
//! # Set-up
//! None: a missing file is created, readable for its owner only. Its folder must exist. A file of another program, or
//! of a newer Leasehold, is refused and left unchanged.
//!
//! # Options
//! None. `sqlite:PATH`, relative or absolute; `sqlite:///PATH` is absolute too. The path is taken literally, without
//! percent-decoding, and cannot contain `?`.
//!
//! # Limits
//! One machine: not for network file systems, and not for several machines that use the file in turn. All processes
//! must be in one time namespace. One process commits at a time. Short commits run on the calling thread, or on the
//! engine's writer thread for a batch: a disk that hangs blocks that thread once, until it answers.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Name, Stamp, Time};

use super::{Answer, Check, Facts, Page, Query, Store, Stored, Swapped, Write, redacted};
use crate::{Error, Result};

mod check;
mod clock;
mod connection_queue;
mod failure;
mod file;
mod row;
mod statements;

#[doc(hidden)]
pub use clock::Boot;
use clock::StoreClock;
use connection_queue::{Ambiguity, ConnectionQueue};
use file::File;

/// The maximum number of records that a call handles on the caller's thread: a few milliseconds.
const INLINE_RECORDS: usize = 128;
/// The log is checkpointed after about this many changed pages…
const PAGES_PER_CHECKPOINT: usize = 2_048;
/// …and reset after this many checkpoints.
const CHECKPOINTS_PER_RESET: usize = 8;

/// A store in a SQLite file.
///
/// Short calls run on the caller's thread, because a commit to a fast disk takes less time than a switch to another
/// thread. Slow calls run on the connection's own thread.
///
/// ```
/// use leasehold::store::{Store as _, sqlite::Sqlite};
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # runtime.block_on(async {
/// # let folder = std::env::temp_dir().join(format!("leasehold-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// let store = Sqlite::open(folder.join("leases.db")).await?;
/// let name = leasehold::core::Name::lock("nightly-report")?;
/// assert_eq!(store.load(&[name]).await?.value, [None]);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<_, leasehold::Error>(())
/// # }).unwrap();
/// ```
pub struct Sqlite {
    /// Swaps. The only connection that writes.
    writer: ConnectionQueue,
    /// Loads, which therefore wait neither for a commit nor for a long search.
    reader: LazyQueue,
    /// Searches.
    finder: LazyQueue,
    /// Checkpoints the log, which may take seconds on a slow disk.
    checkpointer: LazyQueue,
    /// The approximate number of pages written to the log since the store was opened.
    logged_pages: AtomicUsize,
    clock: Arc<StoreClock>,
    file: Arc<File>,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(Sqlite::open(path_of(url)?).await?))
}

/// Returns the path that a URL names.
fn path_of(url: &str) -> Result<PathBuf> {
    let rest = url.strip_prefix("sqlite:").unwrap_or(url);
    let path = match rest.strip_prefix("//") {
        Some(absolute) if absolute.starts_with('/') => absolute,
        Some(_) => {
            let shown = redacted(url);
            let relative = shown.replacen("sqlite://", "sqlite:", 1);
            return Err(Error::invalid(format!(
                "invalid store URL `{shown}`: it names a host; use `{relative}` for a relative path, or `sqlite:///PATH`"
            )));
        }
        None => rest,
    };
    if path.contains('?') {
        return Err(Error::invalid(format!(
            "`{}`: `sqlite:` has no options, and its path cannot contain `?`",
            redacted(url)
        )));
    }
    match path {
        "" => Err(Error::invalid(
            "`sqlite:` needs a path, such as `sqlite:leases.db`",
        )),
        ":memory:" => Err(Error::invalid("use `memory:` to keep leases in memory")),
        path => Ok(path.into()),
    }
}

impl Sqlite {
    /// Opens this file, and creates it if it does not exist.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_on(path, Boot::current()?).await
    }

    /// Opens the file on a simulated machine, so that tests can reboot it and step its clocks.
    #[doc(hidden)]
    pub async fn open_on(path: impl AsRef<Path>, boot: Boot) -> Result<Self> {
        let path = path.as_ref().to_owned();
        tokio::task::spawn_blocking(move || Self::open_blocking(&path, boot))
            .await
            .unwrap_or_else(|died| {
                Err(Error::Unavailable(format!(
                    "opening the SQLite file was interrupted: {died}"
                )))
            })
    }

    fn open_blocking(path: &Path, boot: Boot) -> Result<Self> {
        let (file, mut first) = File::open(path)?;
        let clock = StoreClock::open(&file, &mut first, boot)?;
        Ok(Self {
            writer: ConnectionQueue::spawn("sqlite-writer", Ambiguity::MayHaveWritten, first)?,
            reader: LazyQueue::new("sqlite-reader"),
            finder: LazyQueue::new("sqlite-finder"),
            checkpointer: LazyQueue::new("sqlite-checkpt"),
            logged_pages: AtomicUsize::new(0),
            clock: Arc::new(clock),
            file: Arc::new(file),
        })
    }

    /// Counts records that are about to be written, each on a page of its own. Checkpoints the log when it has grown,
    /// concurrently with the writer. Now and then the writer checkpoints the rest itself, because the log is reset
    /// only when all of it has been copied.
    fn note_writes(&self, records: usize) {
        let before = self.logged_pages.fetch_add(records, Ordering::Relaxed);
        let checkpoints = (before + records) / PAGES_PER_CHECKPOINT;
        if checkpoints == before / PAGES_PER_CHECKPOINT {
            return;
        }
        let resets_log = checkpoints.is_multiple_of(CHECKPOINTS_PER_RESET);
        let writer = self.writer.sender();
        let checkpointer = match self.checkpointer.get(&self.file) {
            Ok(checkpointer) => checkpointer,
            Err(error) => return tracing::debug!(%error, "cannot checkpoint the log"),
        };
        checkpointer.sender().send(move |connection| {
            file::checkpoint_log(connection);
            if resets_log {
                writer.send(file::checkpoint_log);
            }
        });
    }

    fn answer<T>(&self, value: T) -> Answer<T> {
        Answer {
            value,
            stamp: Stamp {
                time: self.clock.now(),
                resolution: Duration::from_micros(1),
            },
        }
    }
}

/// A connection for reading, which is opened when it is used first: a program that runs for a moment needs one or none.
struct LazyQueue {
    name: &'static str,
    queue: OnceLock<ConnectionQueue>,
}

impl LazyQueue {
    fn new(name: &'static str) -> Self {
        let queue = OnceLock::new();
        Self { name, queue }
    }

    fn get(&self, file: &File) -> Result<&ConnectionQueue> {
        if let Some(queue) = self.queue.get() {
            return Ok(queue);
        }
        file.check_in_place()?;
        let connection = file.connect()?;
        // Again, because it may be a connection to another file.
        file.check_in_place()?;
        let queue = ConnectionQueue::spawn(self.name, Ambiguity::None, connection)?;
        // If two calls open one, the second is closed.
        Ok(self.queue.get_or_init(|| queue))
    }
}

#[async_trait]
impl Store for Sqlite {
    fn facts(&self) -> Facts {
        Facts {
            margin: Duration::ZERO,
            batch: 1024,
            in_flight: 1,
            poll: Duration::from_millis(20),
        }
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        let reader = self.reader.get(&self.file)?;
        if names.len() <= INLINE_RECORDS {
            let load = |connection: &mut _| statements::load(&self.file, connection, names);
            if let Some(Ok(records)) = reader.try_inline(load) {
                return Ok(self.answer(records));
            }
        }
        let names = names.to_vec();
        let file = self.file.clone();
        let records = reader
            .run(move |connection| statements::load(&file, connection, &names))
            .await?;
        Ok(self.answer(records))
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        self.note_writes(writes.len());
        if writes.len() <= INLINE_RECORDS {
            let swap =
                |connection: &mut _| statements::swap(&self.file, &self.clock, connection, &writes);
            match self.writer.try_inline(swap) {
                // Nothing was written, perhaps because another process holds the lock. The connection's thread can
                // wait for it.
                None | Some(Err(Error::Unavailable(_))) => {}
                Some(swapped) => return swapped.map(|swapped| self.answer(swapped)),
            }
        }
        let file = self.file.clone();
        let clock = self.clock.clone();
        let swapped = self
            .writer
            .run(move |connection| statements::swap(&file, &clock, connection, &writes))
            .await?;
        Ok(self.answer(swapped))
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        let query = query.clone();
        let file = self.file.clone();
        let finder = self.finder.get(&self.file)?;
        let page = finder
            .run(move |connection| statements::find(&file, connection, &query))
            .await?;
        Ok(self.answer(page))
    }

    fn restarted_at(&self) -> Option<Time> {
        self.clock.restarted_at()
    }

    fn blocks(&self) -> bool {
        true
    }

    fn has_expensive_commits(&self) -> bool {
        true
    }

    async fn check(&self) -> Result<Vec<Check>> {
        let file = self.file.clone();
        self.writer
            .run(move |connection| check::check(&file, connection))
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::WriteId;

    fn write(number: usize) -> Write {
        let record = serde_json::json!({ "fence": 1, "holders": [], "body": "" });
        Write {
            name: Name::lock(format!("{number:064}")).unwrap(),
            expect: None,
            put: Some((
                WriteId(number as u128),
                serde_json::from_value(record).unwrap(),
            )),
            body_changed: true,
        }
    }

    /// Returns the number of pages in the log.
    fn pages(connection: &mut rusqlite::Connection) -> Result<u32> {
        let pages = connection.query_row("pragma wal_checkpoint(passive)", [], |row| row.get(1));
        Ok(pages.expect("it has a log"))
    }

    #[tokio::test]
    async fn log_is_checkpointed_and_reset() {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(folder.path().join("leases.db")).await.unwrap();
        // Write until the log is to be reset.
        let mut numbers = 0..;
        while store.logged_pages.load(Ordering::Relaxed)
            < CHECKPOINTS_PER_RESET * PAGES_PER_CHECKPOINT
        {
            let writes = numbers.by_ref().take(100).map(write);
            store.swap(writes.collect()).await.unwrap();
        }
        // Wait for the checkpointer, and then for the writer's job that it queued.
        let checkpointer = store.checkpointer.get(&store.file).unwrap();
        checkpointer.run(|_| Ok(())).await.unwrap();
        store.writer.run(|_| Ok(())).await.unwrap();
        store.swap(vec![write(1_000_000)]).await.unwrap();
        let pages = store.writer.run(pages).await.unwrap();
        assert!(pages < 20, "{pages} pages are in the log");
    }

    #[tokio::test]
    async fn log_that_programs_leave_is_emptied_when_the_file_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let log_length = || {
            std::fs::metadata(path.with_extension("db-wal"))
                .unwrap()
                .len()
        };
        let mut longest = 0;
        for program in 0..60 {
            let store = Sqlite::open(&path).await.unwrap();
            let writes = (0..100).map(|number| write(100 * program + number));
            store.swap(writes.collect()).await.unwrap();
            drop(store);
            longest = longest.max(log_length());
        }
        // It is kept, because emptying it takes several syncs, and emptied in time.
        assert!((1 << 20..2 << 20).contains(&longest), "{longest} bytes");
        let store = Sqlite::open(&path).await.unwrap();
        let name = write(0).name;
        assert!(store.load(&[name]).await.unwrap().value[0].is_some());
    }

    #[test]
    fn url_path_is_taken_literally() {
        for (url, path) in [
            ("sqlite:leases.db", "leases.db"),
            ("sqlite:./a b/%20#é.db", "./a b/%20#é.db"),
            ("sqlite:/var/lib/leases.db", "/var/lib/leases.db"),
            ("sqlite:///var/lib/leases.db", "/var/lib/leases.db"),
        ] {
            assert_eq!(path_of(url).unwrap(), Path::new(path), "{url}");
        }
    }

    #[test]
    fn url_without_a_path_is_refused_with_a_hint() {
        for (url, hint) in [
            ("sqlite:", "sqlite:leases.db"),
            ("sqlite://leases.db", "sqlite:leases.db"),
            ("sqlite::memory:", "memory:"),
            ("sqlite:leases.db?mode=ro", "no options"),
        ] {
            let error = path_of(url).unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{url}");
            assert!(error.to_string().contains(hint), "{url}: {error}");
        }
    }
}
