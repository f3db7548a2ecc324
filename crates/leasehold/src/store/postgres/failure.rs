//! What PostgreSQL's errors mean to a caller.

use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::Error;

/// What a statement that was sent and not answered may have done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Nothing: it only reads.
    None,
    /// It may have written.
    MayHaveWritten,
}

/// An error while a connection is made: nothing was asked yet.
pub(super) fn connecting(place: &str, error: &tokio_postgres::Error) -> Error {
    let said = told(error);
    let Some(code) = error.code() else {
        let told = format!("{error}: {said}");
        return if told.contains("TLS") || told.contains("certificate") {
            Error::Denied(format!(
                "PostgreSQL at {place}: {said}: let `sslmode` in the store URL match what the server offers (disable, \
                 prefer, require, verify-ca, verify-full), and `sslrootcert` its authority"
            ))
        } else if told.contains("password") {
            Error::Denied(format!(
                "PostgreSQL at {place} wants a password: give it in the store URL or in PGPASSWORD"
            ))
        } else {
            Error::Unavailable(format!(
                "PostgreSQL at {place} cannot be reached: {said}: is it running, and are host and port right?"
            ))
        };
    };
    let class = &code.code()[..2];
    let mend = match class {
        "28" if said.contains("no encryption") => {
            "if it wants TLS, `sslmode=require` in the store URL; otherwise check user and database, and the server's pg_hba.conf"
        }
        "28" => {
            "check user and password in the store URL (or PGPASSWORD), and the server's pg_hba.conf"
        }
        "3D" => "name another database in the store URL, or create this one",
        "42" => "have an administrator grant this user the right to connect",
        _ => {
            return Error::Unavailable(format!(
                "PostgreSQL at {place} refuses connections: {said}"
            ));
        }
    };
    Error::Denied(format!("PostgreSQL at {place}: {said}: {mend}"))
}

/// An error in answer to a statement.
pub(super) fn answered(error: &tokio_postgres::Error, doubt: Doubt) -> Error {
    match error.as_db_error() {
        Some(said) => refused(said.code().code(), said.message(), is_undone(said), doubt),
        None => lost(
            format!("the connection to PostgreSQL was lost: {}", told(error)),
            doubt,
        ),
    }
}

/// Whether an error only ended its statement. One that ends the session may come while, or after, it commits.
fn is_undone(said: &DbError) -> bool {
    match said.parsed_severity() {
        Some(severity) => severity == Severity::Error,
        // Poolers leave it out. In the server's language the word may be another one: then it is ambiguous.
        None => said.severity() == "ERROR",
    }
}

fn refused(code: &str, said: &str, is_undone: bool, doubt: Doubt) -> Error {
    match code {
        "25006" => Error::Denied(format!(
            "PostgreSQL: {said}: this server takes no writes; name the primary in the store URL"
        )),
        "42501" => Error::Denied(format!(
            "PostgreSQL: {said}: grant select, insert, update and delete on the table leasehold_records to this user"
        )),
        "42P01" | "42703" | "3F000" => Error::Denied(format!(
            "PostgreSQL: {said}: the set-up is missing or of another version; run `leasehold init`"
        )),
        "22021" | "22P05" => Error::Denied(format!(
            "PostgreSQL: {said}: the database's encoding must be UTF8"
        )),
        "23514" | "23505" | "XX001" | "XX002" => Error::Corrupt(format!("PostgreSQL: {said}")),
        // What they mean is that the outcome is unknown: distributed databases and poolers say so.
        "40003" => lost(format!("PostgreSQL: {said} ({code})"), doubt),
        other if other.starts_with("57P") || other.starts_with("08") => {
            lost(format!("PostgreSQL broke off: {said}"), doubt)
        }
        // Any other error of a single statement has undone it.
        _ if is_undone => Error::Unavailable(format!("PostgreSQL: {said} ({code})")),
        _ => lost(format!("PostgreSQL broke off: {said} ({code})"), doubt),
    }
}

/// A connection that is gone, or an answer that did not come.
pub(super) fn lost(problem: String, doubt: Doubt) -> Error {
    match doubt {
        Doubt::None => Error::Unavailable(problem),
        Doubt::MayHaveWritten => Error::Indeterminate(problem),
    }
}

/// A server that only follows another one: what it shows may be old.
pub(super) fn standby() -> Error {
    Error::Denied(
        "this PostgreSQL server is a standby, whose records may be old: name the primary in the store URL".into(),
    )
}

/// A column that is not of the type it should have.
pub(super) fn answered_oddly(error: tokio_postgres::Error) -> Error {
    Error::Corrupt(format!(
        "the table in PostgreSQL is not as `leasehold init` makes it: {error}: {}",
        told(&error)
    ))
}

/// Whether the same statement will do on a newer view of the table.
pub(super) fn is_outrun(error: &tokio_postgres::Error) -> bool {
    matches!(
        error.code(),
        Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED)
    )
}

/// Whether somebody's lock did not go away in time.
pub(super) fn is_locked(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// Whether a prepared statement is not in the session, or another one has its name. Nothing was done.
pub(super) fn is_unknown(error: &tokio_postgres::Error) -> bool {
    let Some(said) = error.as_db_error() else {
        return false;
    };
    match *said.code() {
        SqlState::INVALID_SQL_STATEMENT_NAME | SqlState::DUPLICATE_PSTATEMENT => true,
        // Poolers use the same code for a server that went away, which may have done it.
        SqlState::PROTOCOL_VIOLATION => said.message().starts_with("bind message"),
        _ => false,
    }
}

/// Whether a prepared statement would now answer in other types. Nothing was done.
pub(super) fn is_outdated(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED)
}

/// What the server said, or else what happened to the connection.
fn told(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return said.message().to_owned();
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
    fn write_is_unavailable_only_if_it_was_undone() {
        for (code, is_undone, in_doubt) in [
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
            let write = refused(code, "no", is_undone, Doubt::MayHaveWritten);
            assert_eq!(matches!(write, Error::Indeterminate(_)), in_doubt, "{code}");
            let read = refused(code, "no", is_undone, Doubt::None);
            assert!(matches!(read, Error::Unavailable(_)), "{code}");
        }
    }
}
