//! Classifies SQLite's errors.

use std::path::Path;

use rusqlite::ErrorCode;

use crate::Error;

/// Returns whether another process held a lock.
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

/// Converts an error that occurred while opening the file.
pub(super) fn while_opening(path: &Path, error: &rusqlite::Error) -> Error {
    let path = path.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => Error::Denied(format!(
            "`{path}` is not a SQLite database: choose another path, where a new one is created"
        )),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            Error::Denied(format!(
                "`{path}` cannot be written ({error}): make the file and its folder writable for this user, or \
                 choose another path"
            ))
        }
        _ => classify(&path, error),
    }
}

/// Converts an error before the commit: certainly nothing was written.
pub(super) fn before_commit(path: &Path, error: &rusqlite::Error) -> Error {
    classify(&path.display(), error)
}

/// Converts an error of `COMMIT` itself.
pub(super) fn at_commit(path: &Path, error: &rusqlite::Error) -> Error {
    // A full disk fails before the frame of the log that commits is written.
    if is_busy(error) || error.sqlite_error_code() == Some(ErrorCode::DiskFull) {
        return before_commit(path, error);
    }
    Error::Indeterminate(format!(
        "`{}`: the commit failed, and may have taken effect: {error}",
        path.display()
    ))
}

fn classify(path: &std::path::Display<'_>, error: &rusqlite::Error) -> Error {
    if is_busy(error) {
        return Error::Unavailable(format!(
            "`{path}` is locked by another process: nothing was written, try again"
        ));
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::Unavailable(format!(
            "the disk of `{path}` is full: nothing was written; free some space"
        )),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Error::Corrupt(format!(
            "`{path}` is damaged ({error}): stop, and inspect it with `sqlite3 FILE 'pragma integrity_check'`"
        )),
        _ => Error::Unavailable(format!("`{path}`: nothing was written: {error}")),
    }
}
