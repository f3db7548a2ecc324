//! Files that may change while the service runs.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often they are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Files, as they were when they were last looked at.
pub(crate) struct Followed {
    paths: Vec<PathBuf>,
    seen: Mutex<Vec<Option<Stamp>>>,
}

impl Followed {
    /// As they are now. To be called before they are read, so that no change is missed.
    pub(crate) fn new(paths: Vec<PathBuf>) -> Self {
        let seen = Mutex::new(stamps(&paths));
        Self { paths, seen }
    }

    /// Whether one of them has changed since the last look.
    pub(crate) fn have_changed(&self) -> bool {
        let now = stamps(&self.paths);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = *seen != now;
        *seen = now;
        changed
    }
}

/// Reads a file. One that is not regular is refused: opening a named pipe waits for its writer, perhaps for ever.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    std::fs::read(path)
}

/// Looks again and again for as long as it is polled, where nobody has to wait for a slow disk.
pub(crate) async fn keep_looking(look: impl Fn() + Clone + Send + 'static) {
    loop {
        tokio::time::sleep(LOOK).await;
        let _ = tokio::task::spawn_blocking(look.clone()).await;
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
    paths.iter().map(|path| Stamp::of(path)).collect()
}

/// Which file it is and when it was changed: another one after every change, in place, of its mode, or by replacing it.
#[derive(PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    changed: (i64, i64),
    bytes: u64,
}

impl Stamp {
    /// `None` if it is not there.
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self {
            file: (metadata.dev(), metadata.ino()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            bytes: metadata.len(),
        })
    }
}
