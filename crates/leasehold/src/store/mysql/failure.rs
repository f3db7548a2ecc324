//! What the server's errors mean to a caller.

use mysql_async::{DriverError, Error as Failure, IoError};

use crate::Error;

/// What a batch of statements may have done when it fails.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Nothing: it only reads, or nothing was committed yet.
    None,
    /// It may have written.
    MayHaveWritten,
}

/// Waiting for a lock took too long.
const LOCKED: u16 = 1205;
/// Two transactions waited for each other, or, in a cluster, came from two nodes at once. This one is undone.
const OUTRUN: u16 = 1213;

const TLS: &str = "let `ssl-mode` in the store URL match what the server offers (disabled, required, verify_ca, \
    verify_identity), and `ssl-ca` its authority";

/// An error while a connection is made: nothing was asked yet.
pub(super) fn connecting(place: &str, error: &Failure) -> Error {
    let mend = match error {
        Failure::Server(said) => match said.code {
            1044 | 1045 | 1698 => {
                "check user and password in the store URL (or MYSQL_PWD), that this host may log in as that user, and \
                 whether that takes TLS (`ssl-mode=required`)"
            }
            3159 => "it wants TLS: add `ssl-mode=required` to the store URL",
            1049 => "name another database in the store URL, or create this one",
            _ => {
                return Error::Unavailable(format!(
                    "the server at {place} refuses connections: {}",
                    said.message
                ));
            }
        },
        Failure::Io(IoError::Tls(_)) | Failure::Driver(DriverError::NoClientSslFlagFromServer) => {
            TLS
        }
        // So it comes from underneath, too.
        Failure::Io(_) if told(error).contains("certificate") => TLS,
        Failure::Driver(DriverError::UnknownAuthPlugin { .. }) => {
            "let this user log in with a password (mysql_native_password, caching_sha2_password)"
        }
        _ => {
            return Error::Unavailable(format!(
                "the server at {place} cannot be reached: {}: is it running, and are host and port right?",
                told(error)
            ));
        }
    };
    Error::Denied(format!("the server at {place}: {}: {mend}", told(error)))
}

/// An error in answer to statements.
pub(super) fn answered(error: &Failure, doubt: Doubt) -> Error {
    let Failure::Server(said) = error else {
        return lost(
            format!("the connection to the database was lost: {}", told(error)),
            doubt,
        );
    };
    let said_so = &said.message;
    match said.code {
        1142 | 1143 | 1044 | 1370 => Error::Denied(format!(
            "{said_so}: run `grant select, insert, update, delete on leasehold_records to …`"
        )),
        1146 | 1054 | 1049 => Error::Denied(format!(
            "{said_so}: the set-up is missing or of another version; run `leasehold init`"
        )),
        1290 | 1792 | 1836 => read_only(),
        1153 | 1301 => Error::Denied(format!(
            "{said_so}: raise the server's max_allowed_packet to 64M"
        )),
        1264 | 1366 | 1406 => Error::Corrupt(format!("the database refuses a record: {said_so}")),
        // Undone, however far it came.
        LOCKED | OUTRUN => {
            Error::Unavailable(format!("another transaction was in the way: {said_so}"))
        }
        code => lost(format!("the database: {said_so} ({code})"), doubt),
    }
}

/// A server that takes no writes: what it shows may be old.
pub(super) fn read_only() -> Error {
    Error::Denied(
        "this server is read-only, such as a replica, whose records may be old: name the primary in the store URL"
            .into(),
    )
}

/// Classifies an error of the reads behind a commit, such as that the server accepts no writes any more.
pub(super) fn after_commit(error: Error) -> Error {
    Error::Indeterminate(format!("committed, but the answer cannot be used: {error}"))
}

/// A connection that is gone, or an answer that did not come.
pub(super) fn lost(problem: String, doubt: Doubt) -> Error {
    match doubt {
        Doubt::None => Error::Unavailable(problem),
        Doubt::MayHaveWritten => Error::Indeterminate(problem),
    }
}

/// Whether the statements were undone because of somebody else's, and will do later.
pub(super) fn is_in_the_way(error: &Failure) -> bool {
    matches!(error, Failure::Server(said) if matches!(said.code, LOCKED | OUTRUN))
}

/// What the server said, or else what happened to the connection.
fn told(error: &Failure) -> String {
    if let Failure::Server(said) = error {
        return said.message.clone();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
