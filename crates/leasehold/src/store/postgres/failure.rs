//! Classifies PostgreSQL's errors.

use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::Error;

/// Whether a statement that was sent and not answered is ambiguous.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ambiguity {
    /// It only reads.
    None,
    /// It may have written.
    MayHaveWritten,
}

/// Converts an error that occurred while connecting, before any statement was sent.
pub(super) fn while_connecting(location: &str, error: &tokio_postgres::Error) -> Error {
    let message = describe(error);
    let Some(code) = error.code() else {
        let details = format!("{error}: {message}");
        return if details.contains("TLS") || details.contains("certificate") {
            Error::Denied(format!(
                "PostgreSQL at {location}: {message}: set `sslmode` in the store URL to what the server offers (disable, \
                 prefer, require, verify-ca, verify-full), and `sslrootcert` to its authority"
            ))
        } else if details.contains("password") {
            Error::Denied(format!(
                "PostgreSQL at {location} requires a password: set it in the store URL or in PGPASSWORD"
            ))
        } else {
            Error::Unavailable(format!(
                "cannot connect to PostgreSQL at {location}: {message}: check that it is running, and the host and port in the store URL"
            ))
        };
    };
    let class = &code.code()[..2];
    let fix = match class {
        "28" if message.contains("no encryption") => {
            "if the server requires TLS, set `sslmode=require` in the store URL; otherwise check user and database, and the server's pg_hba.conf"
        }
        "28" => {
            "check user and password in the store URL (or PGPASSWORD), and the server's pg_hba.conf"
        }
        "3D" => "name another database in the store URL, or create this one",
        "42" => "ask an administrator to grant this user the right to connect",
        _ => {
            return Error::Unavailable(format!(
                "PostgreSQL at {location} refuses connections: {message}"
            ));
        }
    };
    Error::Denied(format!("PostgreSQL at {location}: {message}: {fix}"))
}

/// Converts an error that the server returned for a statement.
pub(super) fn from_server(error: &tokio_postgres::Error, ambiguity: Ambiguity) -> Error {
    match error.as_db_error() {
        Some(database) => refused(
            database.code().code(),
            database.message(),
            is_rolled_back(database),
            ambiguity,
        ),
        None => unanswered(
            format!("the connection to PostgreSQL was lost: {}", describe(error)),
            ambiguity,
        ),
    }
}

/// Returns whether an error only ended its statement. An error that ends the session may occur during or after the
/// commit.
fn is_rolled_back(error: &DbError) -> bool {
    match error.parsed_severity() {
        Some(severity) => severity == Severity::Error,
        // Poolers omit the parsed severity. In another language the word differs, and the outcome counts as
        // ambiguous.
        None => error.severity() == "ERROR",
    }
}

fn refused(code: &str, message: &str, is_rolled_back: bool, ambiguity: Ambiguity) -> Error {
    match code {
        "25006" => Error::Denied(format!(
            "PostgreSQL: {message}: this server is read-only; use the primary in the store URL"
        )),
        "42501" => Error::Denied(format!(
            "PostgreSQL: {message}: grant select, insert, update and delete on the table leasehold_records to this user"
        )),
        "42P01" | "42703" | "3F000" => Error::Denied(format!(
            "PostgreSQL: {message}: the table is missing or of another version; run `leasehold init`"
        )),
        "22021" | "22P05" => Error::Denied(format!(
            "PostgreSQL: {message}: the database's encoding must be UTF8"
        )),
        "23514" | "23505" | "XX001" | "XX002" => Error::Corrupt(format!("PostgreSQL: {message}")),
        // Distributed databases and poolers report an unknown outcome like this.
        "40003" => unanswered(format!("PostgreSQL: {message} ({code})"), ambiguity),
        other if other.starts_with("57P") || other.starts_with("08") => unanswered(
            format!("PostgreSQL ended the session: {message}"),
            ambiguity,
        ),
        // Any other error of a single statement has rolled it back.
        _ if is_rolled_back => Error::Unavailable(format!("PostgreSQL: {message} ({code})")),
        _ => unanswered(
            format!("PostgreSQL ended the session: {message} ({code})"),
            ambiguity,
        ),
    }
}

/// Returns the error for a lost connection, or for an answer that did not arrive.
pub(super) fn unanswered(problem: String, ambiguity: Ambiguity) -> Error {
    match ambiguity {
        Ambiguity::None => Error::Unavailable(problem),
        Ambiguity::MayHaveWritten => Error::Indeterminate(problem),
    }
}

/// Returns the error for a standby: its records may be stale.
pub(super) fn standby() -> Error {
    Error::Denied(
        "this PostgreSQL server is a standby, whose records may be stale: use the primary in the store URL".into(),
    )
}

/// Converts an error about a column of an unexpected type.
pub(super) fn unexpected_column(error: tokio_postgres::Error) -> Error {
    Error::Corrupt(format!(
        "the table in PostgreSQL is not as `leasehold init` creates it: {error}: {}",
        describe(&error)
    ))
}

/// Returns whether the statement can succeed if it is sent again, with a newer snapshot.
pub(super) fn is_retryable(error: &tokio_postgres::Error) -> bool {
    matches!(
        error.code(),
        Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED)
    )
}

/// Returns whether another transaction kept a row locked until the timeout.
pub(super) fn is_locked(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// Returns whether a prepared statement is missing in the session, or its name is taken. Nothing was executed.
pub(super) fn is_unknown(error: &tokio_postgres::Error) -> bool {
    let Some(database) = error.as_db_error() else {
        return false;
    };
    match *database.code() {
        SqlState::INVALID_SQL_STATEMENT_NAME | SqlState::DUPLICATE_PSTATEMENT => true,
        // Poolers use the same code for a server that went away, whose outcome is ambiguous.
        SqlState::PROTOCOL_VIOLATION => database.message().starts_with("bind message"),
        _ => false,
    }
}

/// Returns whether a prepared statement's result types have changed. Nothing was executed.
pub(super) fn is_outdated(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED)
}

/// Returns the server's message, or else the root cause of the connection error.
fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(database) = error.as_db_error() {
        return database.message().to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_is_unavailable_only_if_it_was_rolled_back() {
        for (code, is_rolled_back, is_ambiguous) in [
            ("40001", true, false), // serialization_failure
            ("53100", true, false), // disk_full, of the table
            ("53100", false, true), // disk_full, of the log: a panic
            ("57014", true, false), // query_canceled
            ("25P03", false, true), // idle_in_transaction_session_timeout
            ("58030", false, true), // io_error, of the log: a panic
            ("08007", true, true),  // transaction_resolution_unknown
            ("08P01", false, true), // a pooler's server went away
            ("40003", true, true),  // statement_completion_unknown
            ("57P01", false, true), // admin_shutdown
        ] {
            let write = refused(code, "no", is_rolled_back, Ambiguity::MayHaveWritten);
            assert_eq!(
                matches!(write, Error::Indeterminate(_)),
                is_ambiguous,
                "{code}"
            );
            let read = refused(code, "no", is_rolled_back, Ambiguity::None);
            assert!(matches!(read, Error::Unavailable(_)), "{code}");
        }
    }
}
