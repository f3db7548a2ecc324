//! Classifies the server's errors.

use mysql_async::{DriverError, Error as Failure, IoError};

use crate::Error;

/// Whether a failed batch of statements is ambiguous.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ambiguity {
    /// It only reads, or nothing was committed yet.
    None,
    /// It may have written.
    MayHaveWritten,
}

/// A lock wait timed out.
const LOCK_TIMEOUT: u16 = 1205;
/// A deadlock, or in a cluster a conflict of two nodes. This transaction was rolled back.
const DEADLOCK: u16 = 1213;

const TLS: &str = "set `ssl-mode` in the store URL to what the server offers (disabled, required, verify_ca, \
    verify_identity), and `ssl-ca` to its authority";

/// Converts an error that occurred while connecting, before any statement was sent.
pub(super) fn while_connecting(location: &str, error: &Failure) -> Error {
    let fix = match error {
        Failure::Server(server) => match server.code {
            1044 | 1045 | 1698 => {
                "check user and password in the store URL (or MYSQL_PWD), that the user may log in from this host, and \
                 whether the server requires TLS (`ssl-mode=required`)"
            }
            3159 => "the server requires TLS: add `ssl-mode=required` to the store URL",
            1049 => "name another database in the store URL, or create this one",
            _ => {
                return Error::Unavailable(format!(
                    "the server at {location} refuses connections: {}",
                    server.message
                ));
            }
        },
        Failure::Io(IoError::Tls(_)) | Failure::Driver(DriverError::NoClientSslFlagFromServer) => {
            TLS
        }
        // Certificate errors also occur as I/O errors.
        Failure::Io(_) if describe(error).contains("certificate") => TLS,
        Failure::Driver(DriverError::UnknownAuthPlugin { .. }) => {
            "let this user log in with a password (mysql_native_password, caching_sha2_password)"
        }
        _ => {
            return Error::Unavailable(format!(
                "cannot connect to the server at {location}: {}: check that it is running, and the host and port in the store URL",
                describe(error)
            ));
        }
    };
    Error::Denied(format!(
        "the server at {location}: {}: {fix}",
        describe(error)
    ))
}

/// Converts an error that the server returned for statements.
pub(super) fn from_server(error: &Failure, ambiguity: Ambiguity) -> Error {
    let Failure::Server(server) = error else {
        return unanswered(
            format!(
                "the connection to the database was lost: {}",
                describe(error)
            ),
            ambiguity,
        );
    };
    let message = &server.message;
    match server.code {
        1142 | 1143 | 1044 | 1370 => Error::Denied(format!(
            "{message}: run `grant select, insert, update, delete on leasehold_records to …`"
        )),
        1146 | 1054 | 1049 => Error::Denied(format!(
            "{message}: the table is missing or of another version; run `leasehold init`"
        )),
        1290 | 1792 | 1836 => read_only(),
        1153 | 1301 => Error::Denied(format!(
            "{message}: raise the server's max_allowed_packet to 64M"
        )),
        1264 | 1366 | 1406 => Error::Corrupt(format!("the database refuses a record: {message}")),
        // The whole transaction was rolled back.
        LOCK_TIMEOUT | DEADLOCK => {
            Error::Unavailable(format!("blocked by another transaction: {message}"))
        }
        code => unanswered(format!("the database: {message} ({code})"), ambiguity),
    }
}

/// Returns the error for a read-only server: its records may be stale.
pub(super) fn read_only() -> Error {
    Error::Denied(
        "this server is read-only, such as a replica, whose records may be stale: use the primary in the store URL"
            .into(),
    )
}

/// Converts an error of the reads after a commit, for example because the server has become read-only.
pub(super) fn after_commit(error: Error) -> Error {
    Error::Indeterminate(format!("committed, but the answer cannot be used: {error}"))
}

/// Returns the error for a lost connection, or for an answer that did not arrive.
pub(super) fn unanswered(problem: String, ambiguity: Ambiguity) -> Error {
    match ambiguity {
        Ambiguity::None => Error::Unavailable(problem),
        Ambiguity::MayHaveWritten => Error::Indeterminate(problem),
    }
}

/// Returns whether the statements were rolled back because of another transaction, and can be retried.
pub(super) fn is_blocked(error: &Failure) -> bool {
    matches!(error, Failure::Server(server) if matches!(server.code, LOCK_TIMEOUT | DEADLOCK))
}

/// Returns the server's message, or else the root cause of the connection error.
fn describe(error: &Failure) -> String {
    if let Failure::Server(server) = error {
        return server.message.clone();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
