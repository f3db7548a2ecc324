//! What SQLite's errors mean to a caller.

use std::path::Path;

use rusqlite::ErrorCode;

use crate::Error;

/// Whether another process was merely in the way.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed
        )
    )
}

/// An error while the file is opened.
pub(super) fn opening(path: &Path, error: &rusqlite::Error) -> Error {
    let path = path.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => Error::Denied(format!(
            "`{path}` is not a SQLite database: choose another path, and it will be made"
        )),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            Error::Denied(format!(
                "`{path}` cannot be written ({error}): make the file and its folder writable for this user, or \
                 choose another path"
            ))
        }
        _ => reading(&path, error),
    }
}

/// An error before anything was committed: surely nothing was written.
pub(super) fn before_commit(path: &Path, error: &rusqlite::Error) -> Error {
    reading(&path.display(), error)
}

/// An error of `COMMIT` itself.
pub(super) fn at_commit(path: &Path, error: &rusqlite::Error) -> Error {
    // A full disk takes the write-ahead log's frames only up to some point before the one that commits.
    if is_busy(error) || error.sqlite_error_code() == Some(ErrorCode::DiskFull) {
        return before_commit(path, error);
    }
    Error::Indeterminate(format!(
        "`{}`: the commit failed, and may count or not: {error}",
        path.display()
    ))
}

fn reading(path: &std::path::Display<'_>, error: &rusqlite::Error) -> Error {
    if is_busy(error) {
        return Error::Unavailable(format!(
            "another process keeps `{path}` locked: nothing was done, try again"
        ));
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::Unavailable(format!(
            "the disk of `{path}` is full: nothing was written; free some space"
        )),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Error::Corrupt(format!(
            "`{path}` is damaged ({error}): stop, and look at it with `sqlite3 FILE 'pragma integrity_check'`"
        )),
        _ => Error::Unavailable(format!("`{path}`: nothing was written: {error}")),
    }
}
