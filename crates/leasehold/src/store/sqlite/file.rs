//! The database file: created, recognised or refused, and opened.

use std::fs::{self, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, MAIN_DB, OpenFlags, TransactionBehavior};

use super::{connection_queue, failure};
use crate::host::{Host as _, Machine};
use crate::{Error, Result};

/// Marks a file as Leasehold's: `LsHd`.
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"LsHd");
/// The version of the tables. A file with a higher version is refused.
const SCHEMA_VERSION: i32 = 2;
const SCHEMA: &str = include_str!("schema.sql");
/// Migrates version 1, which did not record the restart of its clock. It certainly was before the last commit.
const FROM_VERSION_1: &str = "\
    alter table clock add column restarted_us integer; \
    update clock set restarted_us = high_water_us";

/// A log of more bytes is emptied when the file is opened: reading it again takes some milliseconds.
const LONG_LOG: u64 = 1 << 20;

/// How long another process may keep the file locked before that is an error.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest pause between two attempts to lock. SQLite's own pauses grow to 100 ms, which starves the process that
/// backs off longest.
const MAX_RETRY_PAUSE: Duration = Duration::from_millis(5);

/// A file that is known to be Leasehold's.
pub(super) struct File {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl File {
    /// Creates or opens the file, and returns a first connection to it.
    pub(super) fn open(path: &Path) -> Result<(Self, Connection)> {
        let found = find_or_create(path)?;
        let path = fs::canonicalize(path).map_err(|error| unwritable(path, &error))?;
        let file = Self {
            path,
            device: found.dev(),
            inode: found.ino(),
        };
        let mut connection = file.connect()?;
        file.check_writable(&connection)?;
        file.set_up(&mut connection)?;
        file.shorten_log(&mut connection)
            .map_err(|error| failure::while_opening(&file.path, &error))?;
        // The first connection becomes the writer's, whose cache holds the pages of 100,000 records.
        { connection.execute_batch("pragma cache_size = -65536") }
            .map_err(|error| failure::while_opening(&file.path, &error))?;
        Ok((file, connection))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Fails if SQLite has opened the file for reading only, as on a read-only disk.
    fn check_writable(&self, connection: &Connection) -> Result<()> {
        match connection.is_readonly(MAIN_DB) {
            Ok(false) => Ok(()),
            Ok(true) => Err(unwritable(
                &self.path,
                &ErrorKind::ReadOnlyFilesystem.into(),
            )),
            Err(error) => Err(failure::while_opening(&self.path, &error)),
        }
    }

    /// Opens another connection.
    pub(super) fn connect(&self) -> Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connect = || {
            let mut connection = Connection::open_with_flags(&self.path, flags)?;
            connection.busy_handler(Some(lock_retry_handler()))?;
            // Closing the last connection would copy the log and sync three files. A program that runs for a moment would
            // do that each time.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            // Commits are durable. A commit checkpoints the log itself only if the log has grown so long that the
            // checkpointer must be failing. The log shrinks after a burst. The cache is small: the pages that a reading
            // connection has cached are outdated by the writer's next commit.
            connection.execute_batch(
                "pragma synchronous = full; pragma wal_autocheckpoint = 65536; pragma journal_size_limit = 67108864; \
                 pragma trusted_schema = off; pragma cache_size = -8192",
            )?;
            Ok(connection)
        };
        connect().map_err(|error| failure::while_opening(&self.path, &error))
    }

    /// Begins a transaction that may write, after waiting for other processes' transactions.
    pub(super) fn begin<'c>(&self, connection: &'c mut Connection) -> Result<Transaction<'c>> {
        Transaction::begin(connection, "begin immediate")
            .map_err(|error| self.before_commit(&error))
    }

    /// Commits a transaction.
    pub(super) fn commit(&self, transaction: Transaction<'_>) -> Result<()> {
        let committed = transaction.execute("commit");
        committed.map_err(|error| failure::at_commit(&self.path, &error))
    }

    /// Converts an error that occurred before the commit.
    pub(super) fn before_commit(&self, error: &rusqlite::Error) -> Error {
        failure::before_commit(&self.path, error)
    }

    /// Fails if the path no longer leads to this file: other processes would create a new file there, and neither
    /// would see the other's leases.
    pub(super) fn check_in_place(&self) -> Result<()> {
        match fs::metadata(&self.path) {
            Ok(found) if found.dev() == self.device && found.ino() == self.inode => Ok(()),
            _ => Err(Error::Denied(format!(
                "`{}` was moved, replaced or deleted while in use: restart this process",
                self.path.display()
            ))),
        }
    }

    /// Empties the log if programs that ran for a moment have left a long one, unless another process uses it.
    fn shorten_log(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        if fs::metadata(log).is_ok_and(|log| log.len() > LONG_LOG) {
            checkpoint_log(connection);
            // It does not wait for other processes.
            let emptied = connection
                .busy_handler(None::<fn(i32) -> bool>)
                .and_then(|()| {
                    connection.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))
                });
            if let Err(error) = emptied {
                tracing::debug!(%error, "cannot empty the log");
            }
            connection.busy_handler(Some(lock_retry_handler()))?;
        }
        Ok(())
    }

    /// Creates the tables if they are missing. Several processes may do so at once.
    fn set_up(&self, connection: &mut Connection) -> Result<()> {
        let opening = |error| failure::while_opening(&self.path, &error);
        let mut may_retry = lock_retry_handler();
        let mut tries = 0;
        // Switching to the write-ahead log does not invoke the busy handler.
        loop {
            match self.try_set_up(connection) {
                Ok(refused) => return refused,
                Err(error) if failure::is_busy(&error) && may_retry(tries) => tries += 1,
                Err(error) => return Err(opening(error)),
            }
        }
    }

    /// The outer `Err` is SQLite's and may be transient; `Ok(Err)` is a refusal.
    fn try_set_up(&self, connection: &mut Connection) -> rusqlite::Result<Result<()>> {
        let mut owner = owner(connection)?;
        if let Err(refusal) = self.check_owner(&owner) {
            return Ok(Err(refusal));
        }
        if owner == Owner::New {
            // A change writes whole pages to the log, and a record is small.
            connection.execute_batch("pragma page_size = 1024")?;
        }
        let mode: String =
            connection.query_row("pragma journal_mode = wal", [], |row| row.get(0))?;
        if mode != "wal" {
            return Ok(Err(Error::Denied(format!(
                "`{}` cannot use a write-ahead log (its journal is `{mode}`): put it on a local disk",
                self.path.display()
            ))));
        }
        if matches!(owner, Owner::New | Owner::Leasehold(1)) {
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            owner = self::owner(&tx)?;
            let set_up = match owner {
                Owner::New => Some(SCHEMA),
                Owner::Leasehold(1) => Some(FROM_VERSION_1),
                _ => None,
            };
            if let Some(set_up) = set_up {
                tx.execute_batch(set_up)?;
                tx.pragma_update(None, "application_id", APPLICATION_ID)?;
                tx.pragma_update(None, "user_version", SCHEMA_VERSION)?;
                owner = Owner::Leasehold(SCHEMA_VERSION);
            }
            tx.commit()?;
        }
        Ok(self.check_owner(&owner))
    }

    fn check_owner(&self, owner: &Owner) -> Result<()> {
        let path = self.path.display();
        match owner {
            Owner::New | Owner::Leasehold(1..=SCHEMA_VERSION) => Ok(()),
            Owner::Leasehold(version) if *version > SCHEMA_VERSION => Err(Error::Denied(format!(
                "`{path}` was created by a newer Leasehold (its tables have version {version}, this program knows \
                 {SCHEMA_VERSION}): upgrade this program"
            ))),
            Owner::Leasehold(version) => Err(Error::Corrupt(format!(
                "`{path}` has tables of the unknown version {version}"
            ))),
            Owner::Other => Err(Error::Denied(format!(
                "`{path}` is a database of another program: choose a path of its own for Leasehold"
            ))),
        }
    }
}

/// A transaction that is rolled back unless it was committed. Its statements are cached: preparing `begin` takes as
/// long as writing a record.
pub(super) struct Transaction<'c>(&'c Connection);

impl<'c> Transaction<'c> {
    pub(super) fn begin(
        connection: &'c mut Connection,
        begin: &'static str,
    ) -> rusqlite::Result<Self> {
        let transaction = Self(connection);
        transaction.execute(begin)?;
        Ok(transaction)
    }

    fn execute(&self, statement: &'static str) -> rusqlite::Result<()> {
        self.0.prepare_cached(statement)?.raw_execute().map(drop)
    }
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SQLite may have rolled back itself, for example when the disk is full.
        if !self.0.is_autocommit() {
            let _ = self.execute("rollback");
        }
    }
}

/// The program that a database file belongs to.
#[derive(PartialEq)]
enum Owner {
    New,
    Leasehold(i32),
    Other,
}

fn owner(connection: &Connection) -> rusqlite::Result<Owner> {
    let (id, version, tables) = connection.query_row(
        "select (select application_id from pragma_application_id), \
                (select user_version from pragma_user_version), \
                (select count(*) from sqlite_schema)",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?)),
    )?;
    Ok(match (id, version, tables) {
        (APPLICATION_ID, version, _) => Owner::Leasehold(version),
        (0, 0, 0) => Owner::New,
        _ => Owner::Other,
    })
}

/// Finds the file, or creates an empty one that only its owner may read.
fn find_or_create(path: &Path) -> Result<Metadata> {
    // Closing a file drops all locks that this process has on it, including SQLite's. So no thread may lock the file
    // through SQLite while another thread that has just created it still has it open.
    static CREATING: Mutex<()> = Mutex::new(());
    let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)
            .and_then(|file| file.metadata()),
        found => found,
    };
    let found = found.map_err(|error| unwritable(path, &error))?;
    if !found.is_file() {
        let what = if found.is_dir() {
            "a folder"
        } else {
            "not a regular file"
        };
        return Err(Error::Denied(format!(
            "`{}` is {what}: give the path of a file, such as `sqlite:leases.db`",
            path.display()
        )));
    }
    Ok(found)
}

/// How often to try to checkpoint all of the log, because writers may be faster.
const CHECKPOINT_TRIES: usize = 8;

/// Copies as much of the log to the file as other readers and writers allow. SQLite syncs the copy only when it is
/// complete, so this is tried several times. Failures are left to the next checkpoint, or at last to a commit.
pub(super) fn checkpoint_log(connection: &mut Connection) {
    let copy = |row: &rusqlite::Row<'_>| -> rusqlite::Result<bool> {
        let (pages, copied): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok(copied == pages)
    };
    for _ in 0..CHECKPOINT_TRIES {
        match connection.query_row("pragma wal_checkpoint(passive)", [], copy) {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => return tracing::debug!(%error, "cannot checkpoint the log"),
        }
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Error {
    let shown = path.display();
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    match error.kind() {
        ErrorKind::NotFound if !folder.exists() => Error::Denied(format!(
            "the folder `{0}` of `{shown}` does not exist: create it with `mkdir -p {0}`",
            folder.display()
        )),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::Unavailable(format!(
            "the disk of `{shown}` is full: nothing was written; free some space"
        )),
        _ => Error::Denied(format!(
            "cannot create or open `{shown}` ({error}): make its folder writable for this user, or choose \
             another path"
        )),
    }
}

/// Returns a busy handler: it decides whether to retry a refused lock, after a short sleep.
fn lock_retry_handler() -> impl FnMut(i32) -> bool + Send + 'static {
    let mut since = Instant::now();
    move |refusals| {
        if !connection_queue::can_wait() {
            return false;
        }
        if refusals == 0 {
            since = Instant::now();
        }
        let pause = MAX_RETRY_PAUSE
            .min(Duration::from_micros(200) * 2_u32.pow(refusals.clamp(0, 5).cast_unsigned()));
        // Randomise the pause, so that waiting processes do not retry in step.
        let share = 0.25 + 0.75 * (Machine.random() as u32 as f64 / f64::from(u32::MAX));
        std::thread::sleep(pause.mul_f64(share));
        since.elapsed() < LOCK_TIMEOUT
    }
}
