//! Leases in a SQLite file that the processes of one machine share.
//!
//! # Guarantee
//! Linearizable, over all processes that have the file open. What was acknowledged is on the disk: write-ahead log,
//! `synchronous=FULL`, one transaction for each batch. The store's time never runs backwards, whatever the wall
//! clock does and however often the machine boots. After a reboot every holder keeps a whole ttl.
//!
//! # Stored form
//! A row of the table `records` for each record: exact, with its lists as JSON. The view `leases` shows the same to
//! people: `sqlite3 leases.db 'select * from leases'`. The one row of `clock` says whose boot clock the time counts
//! from, and how far it has come.
//!
//! # Set-up
//! None: a missing file is made, readable for its owner only. Its folder must exist. A file of another program, or
//! of a newer Leasehold, is left alone and refused.
//!
//! # Options
//! None. `sqlite:PATH`, relative or absolute; `sqlite:///PATH` is absolute too. The path is taken as it stands,
//! without percent-decoding, and cannot contain `?`.
//!
//! # Limits
//! One machine: not for network file systems, and not for two machines that take turns. All processes share one
//! time namespace. One commit at a time, by whichever process. A short commit runs on the thread that asks for it, which in
//! company is one of the engine's: a disk that hangs keeps that thread until it answers, once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Name, Stamp, Time};

use super::{Answer, Check, Facts, Page, Query, Store, Stored, Swapped, Write, redacted};
use crate::{Error, Result};

mod check;
mod clock;
mod failure;
mod file;
mod lane;
mod row;
mod statements;

#[doc(hidden)]
pub use clock::Boot;
use clock::StoreClock;
use file::File;
use lane::Lane;

/// The most records that a caller's own thread reads or writes: a few milliseconds' worth.
const FEW: usize = 128;
/// After so many changed pages, about, the log is copied to the file…
const LOG_PAGES: usize = 2_048;
/// …and after so many copies it begins anew.
const LOG_COPIES: usize = 8;

/// Records in a SQLite file.
///
/// A short call is run on the thread that asks for it, because a commit to a fast disk takes less time than handing it
/// to another thread does. One that takes long is handed over.
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
    /// Swaps: the only connection that writes.
    writer: Lane,
    /// Loads: never behind a commit, nor behind a long search.
    reader: Lane,
    /// Searches.
    finder: Lane,
    /// Copies the log to the file, which may take a slow disk seconds.
    copier: Lane,
    /// About how many pages the log has got since it was opened.
    logged: AtomicUsize,
    clock: Arc<StoreClock>,
    file: Arc<File>,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(Sqlite::open(path_of(url)?).await?))
}

/// The path that a URL names.
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
    /// Opens this file; makes it if it is not there.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_on(path, Boot::current()?).await
    }

    /// The same on a machine of a test's own, to see it boot and its clocks step.
    #[doc(hidden)]
    pub async fn open_on(path: impl AsRef<Path>, boot: Boot) -> Result<Self> {
        let path = path.as_ref().to_owned();
        tokio::task::spawn_blocking(move || Self::open_blocking(&path, boot))
            .await
            .unwrap_or_else(|died| {
                Err(Error::Unavailable(format!("opening was cut short: {died}")))
            })
    }

    fn open_blocking(path: &Path, boot: Boot) -> Result<Self> {
        let (file, mut first) = File::open(path)?;
        let clock = StoreClock::adopt(&file, &mut first, boot)?;
        Ok(Self {
            writer: Lane::spawn("sqlite-writer", lane::Doubt::MayHaveWritten, first)?,
            reader: Lane::spawn("sqlite-reader", lane::Doubt::None, file.connect()?)?,
            finder: Lane::spawn("sqlite-finder", lane::Doubt::None, file.connect()?)?,
            copier: Lane::spawn("sqlite-copier", lane::Doubt::None, file.connect()?)?,
            logged: AtomicUsize::new(0),
            clock: Arc::new(clock),
            file: Arc::new(file),
        })
    }

    /// So many records are to be written, each on a page of its own. Has the log copied to the file when there is much in it, beside the writer. Now
    /// and then the writer stands still for what it has added meanwhile, since only then does the log begin anew.
    fn count_logged(&self, records: usize) {
        let before = self.logged.fetch_add(records, Ordering::Relaxed);
        let copies = (before + records) / LOG_PAGES;
        if copies == before / LOG_PAGES {
            return;
        }
        let begins_anew = copies.is_multiple_of(LOG_COPIES);
        let writer = self.writer.queue();
        self.copier.queue().put(move |connection| {
            file::copy_log(connection);
            if begins_anew {
                writer.put(file::copy_log);
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
        if names.len() <= FEW {
            let load = |connection: &mut _| statements::load(&self.file, connection, names);
            if let Some(Ok(records)) = self.reader.here(load) {
                return Ok(self.answer(records));
            }
        }
        let names = names.to_vec();
        let file = self.file.clone();
        let records = self
            .reader
            .run(move |connection| statements::load(&file, connection, &names))
            .await?;
        Ok(self.answer(records))
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        self.count_logged(writes.len());
        if writes.len() <= FEW {
            let swap =
                |connection: &mut _| statements::swap(&self.file, &self.clock, connection, &writes);
            match self.writer.here(swap) {
                // Nothing was written, perhaps because another process has the lock: the thread can wait for it.
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
        let page = self
            .finder
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

    fn is_dear(&self) -> bool {
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

    /// How many pages the log has.
    fn pages(connection: &mut rusqlite::Connection) -> Result<u32> {
        let pages = connection.query_row("pragma wal_checkpoint(passive)", [], |row| row.get(1));
        Ok(pages.expect("it has a log"))
    }

    #[tokio::test]
    async fn the_log_is_copied_to_the_file_and_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(folder.path().join("leases.db")).await.unwrap();
        // The last of these is the one after which it is to begin anew.
        let mut numbers = 0..;
        while store.logged.load(Ordering::Relaxed) < LOG_COPIES * LOG_PAGES {
            let writes = numbers.by_ref().take(100).map(write);
            store.swap(writes.collect()).await.unwrap();
        }
        // Both have done what was asked of them: the one has asked the other.
        store.copier.run(|_| Ok(())).await.unwrap();
        store.writer.run(|_| Ok(())).await.unwrap();
        store.swap(vec![write(1_000_000)]).await.unwrap();
        let pages = store.writer.run(pages).await.unwrap();
        assert!(pages < 20, "{pages} pages are in the log");
    }

    #[test]
    fn urls_name_paths_as_they_stand() {
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
    fn urls_that_name_no_path_say_what_to_write_instead() {
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
