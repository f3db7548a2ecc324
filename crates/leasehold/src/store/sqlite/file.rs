//! The file: made, recognised or refused, and connected to.

use std::fs::{self, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::{failure, lane};
use crate::host::{Host as _, Machine};
use crate::{Error, Result};

/// Marks a file as Leasehold's: `LsHd`.
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"LsHd");
/// The version of the tables. A file with a higher one is refused.
const SCHEMA_VERSION: i32 = 2;
const SCHEMA: &str = include_str!("schema.sql");
/// From version 1, which did not keep when its clock was restarted: before its last commit, that much is certain.
const FROM_VERSION_1: &str = "\
    alter table clock add column restarted_us integer; \
    update clock set restarted_us = high_water_us";

/// How long another process may keep the file locked before that is an error.
const LOCKED_AT_MOST: Duration = Duration::from_secs(5);
/// The longest pause between two tries for the lock. SQLite's own grow to 100 ms, which starves the polite.
const PAUSE_AT_MOST: Duration = Duration::from_millis(5);

/// A file that is known to be ours.
pub(super) struct File {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl File {
    /// Makes sure that the file is there and ours, with a first connection to it.
    pub(super) fn open(path: &Path) -> Result<(Self, Connection)> {
        let found = make(path)?;
        let path = fs::canonicalize(path).map_err(|error| unwritable(path, &error))?;
        let file = Self {
            path,
            device: found.dev(),
            inode: found.ino(),
        };
        let mut connection = file.connect()?;
        file.set_up(&mut connection)?;
        // It becomes the writer's: room for the pages of 100,000 records.
        { connection.execute_batch("pragma cache_size = -65536") }
            .map_err(|error| failure::opening(&file.path, &error))?;
        Ok((file, connection))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Another connection.
    pub(super) fn connect(&self) -> Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connect = || {
            let mut connection = Connection::open_with_flags(&self.path, flags)?;
            connection.busy_handler(Some(patience()))?;
            // Lasting commits; a log that a commit itself copies to the file only when it has become so long that nobody
            // else can have done it, and that shrinks again after a burst. Little room for pages: what a connection that reads
            // has cached is outdated by the next commit of the writer.
            connection.execute_batch(
                "pragma synchronous = full; pragma wal_autocheckpoint = 65536; pragma journal_size_limit = 67108864; \
                 pragma trusted_schema = off; pragma cache_size = -8192",
            )?;
            Ok(connection)
        };
        connect().map_err(|error| failure::opening(&self.path, &error))
    }

    /// Begins a transaction that may write, once no other process is at it.
    pub(super) fn begin<'c>(&self, connection: &'c mut Connection) -> Result<Transaction<'c>> {
        Transaction::begin(connection, "begin immediate")
            .map_err(|error| self.before_commit(&error))
    }

    /// Makes a transaction last.
    pub(super) fn commit(&self, transaction: Transaction<'_>) -> Result<()> {
        let committed = transaction.execute("commit");
        committed.map_err(|error| failure::at_commit(&self.path, &error))
    }

    /// What an error means before anything was committed.
    pub(super) fn before_commit(&self, error: &rusqlite::Error) -> Error {
        failure::before_commit(&self.path, error)
    }

    /// Fails if the path no longer leads to this file: others would make a new one there and know of none of our
    /// leases, nor we of theirs.
    pub(super) fn check_in_place(&self) -> Result<()> {
        match fs::metadata(&self.path) {
            Ok(found) if found.dev() == self.device && found.ino() == self.inode => Ok(()),
            _ => Err(Error::Denied(format!(
                "`{}` was moved, replaced or deleted while in use: restart",
                self.path.display()
            ))),
        }
    }

    /// Makes the tables unless they are there. Any number of processes may do so at once.
    fn set_up(&self, connection: &mut Connection) -> Result<()> {
        let opening = |error| failure::opening(&self.path, &error);
        let mut pause = patience();
        let mut tries = 0;
        // Changing to the write-ahead log does not wait for the lock by itself.
        loop {
            match self.try_set_up(connection) {
                Ok(refused) => return refused,
                Err(error) if failure::is_busy(&error) && pause(tries) => tries += 1,
                Err(error) => return Err(opening(error)),
            }
        }
    }

    /// `Err` is SQLite's, which may pass; `Ok(Err)` is a refusal.
    fn try_set_up(&self, connection: &mut Connection) -> rusqlite::Result<Result<()>> {
        let mut owner = owner(connection)?;
        if let Err(refusal) = self.check_owner(&owner) {
            return Ok(Err(refusal));
        }
        if owner == Owner::Nobody {
            // A change goes to the log as a whole page, and a record is small.
            connection.execute_batch("pragma page_size = 1024")?;
        }
        let mode: String =
            connection.query_row("pragma journal_mode = wal", [], |row| row.get(0))?;
        if mode != "wal" {
            return Ok(Err(Error::Denied(format!(
                "`{}` cannot have a write-ahead log (its journal is `{mode}`): put it on a local disk",
                self.path.display()
            ))));
        }
        if matches!(owner, Owner::Nobody | Owner::Leasehold(1)) {
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            owner = self::owner(&tx)?;
            let set_up = match owner {
                Owner::Nobody => Some(SCHEMA),
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
            Owner::Nobody | Owner::Leasehold(1..=SCHEMA_VERSION) => Ok(()),
            Owner::Leasehold(version) if *version > SCHEMA_VERSION => Err(Error::Denied(format!(
                "`{path}` was made by a newer Leasehold (its tables have version {version}, this program knows \
                 {SCHEMA_VERSION}): upgrade this program"
            ))),
            Owner::Leasehold(version) => Err(Error::Corrupt(format!(
                "`{path}` says that its tables have version {version}, which never was"
            ))),
            Owner::Other => Err(Error::Denied(format!(
                "`{path}` is a database of another program: choose a path of its own for Leasehold"
            ))),
        }
    }
}

/// A transaction, which is rolled back unless it was committed. Its statements are kept: to read `begin` anew each time takes
/// as long as to write a record.
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
        // SQLite may have done so itself, as when a disk is full.
        if !self.0.is_autocommit() {
            let _ = self.execute("rollback");
        }
    }
}

/// Whose database a file is.
#[derive(PartialEq)]
enum Owner {
    Nobody,
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
        (0, 0, 0) => Owner::Nobody,
        _ => Owner::Other,
    })
}

/// Finds the file, or makes an empty one that only its owner may read.
fn make(path: &Path) -> Result<Metadata> {
    // Closing a file drops all locks that this process has on it, SQLite's included: so nobody may have got as far as
    // SQLite while somebody else has just made the file and still has it open.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
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
            "no ordinary file"
        };
        return Err(Error::Denied(format!(
            "`{}` is {what}: give the path of a file, such as `sqlite:leases.db`",
            path.display()
        )));
    }
    Ok(found)
}

/// How often the log is copied until all of it is: whoever writes may be faster.
const COPIES: usize = 8;

/// Copies as much of the log to the file as others who read and write leave it. Only when that is all of it does SQLite
/// have the disk keep what was copied, so it is tried until it is. What fails is tried again, by a commit at last.
pub(super) fn copy_log(connection: &mut Connection) {
    let copy = |row: &rusqlite::Row<'_>| -> rusqlite::Result<bool> {
        let (pages, copied): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok(copied == pages)
    };
    for _ in 0..COPIES {
        match connection.query_row("pragma wal_checkpoint(passive)", [], copy) {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => return tracing::debug!(%error, "the log could not be copied"),
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
            "there is no folder `{0}` for `{shown}`: make it with `mkdir -p {0}`",
            folder.display()
        )),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::Unavailable(format!(
            "the disk of `{shown}` is full: nothing was written; free some space"
        )),
        _ => Error::Denied(format!(
            "`{shown}` cannot be made or reached ({error}): make its folder writable for this user, or choose \
             another path"
        )),
    }
}

/// Whether to try once more for a lock that was refused so many times before; sleeps for a moment first.
fn patience() -> impl FnMut(i32) -> bool + Send + 'static {
    let mut since = Instant::now();
    move |refusals| {
        if !lane::may_wait() {
            return false;
        }
        if refusals == 0 {
            since = Instant::now();
        }
        let pause = PAUSE_AT_MOST
            .min(Duration::from_micros(200) * 2_u32.pow(refusals.clamp(0, 5).cast_unsigned()));
        // Somewhere between a quarter and the whole of it, so that waiting processes do not march in step.
        let share = 0.25 + 0.75 * (Machine.random() as u32 as f64 / f64::from(u32::MAX));
        std::thread::sleep(pause.mul_f64(share));
        since.elapsed() < LOCKED_AT_MOST
    }
}
