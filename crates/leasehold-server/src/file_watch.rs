//! Watches files that may change while the service runs.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often the files are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Files and what identified their contents at the last check.
pub(crate) struct WatchedFiles {
    paths: Vec<PathBuf>,
    stamps: Mutex<Vec<Option<Stamp>>>,
}

impl WatchedFiles {
    /// Records the files' current stamps. Must be called before they are read, so that no change is missed.
    pub(crate) fn new(paths: Vec<PathBuf>) -> Self {
        let stamps = Mutex::new(stamps_of(&paths));
        Self { paths, stamps }
    }

    /// Returns whether one of them has changed since the last check.
    pub(crate) fn have_changed(&self) -> bool {
        let current = stamps_of(&self.paths);
        let mut last = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = *last != current;
        *last = current;
        changed
    }
}

/// Reads a regular file. Others are refused, because opening a named pipe blocks until there is a writer.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    std::fs::read(path)
}

/// Runs `check` periodically while this future is polled, on a blocking thread, because disks may be slow.
pub(crate) async fn run_periodically(check: impl Fn() + Clone + Send + 'static) {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let _ = tokio::task::spawn_blocking(check.clone()).await;
    }
}

fn stamps_of(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
    paths.iter().map(|path| Stamp::of(path)).collect()
}

/// Identifies a version of a file. Differs after every write, change of mode or replacement.
#[derive(PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    changed: (i64, i64),
    bytes: u64,
}

impl Stamp {
    /// Returns the file's stamp; `None` if it does not exist.
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self {
            file: (metadata.dev(), metadata.ino()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            bytes: metadata.len(),
        })
    }
}
