//! Classifies MongoDB's errors.

use mongodb::bson::Document;
use mongodb::error::{Error as Driver, ErrorKind, SYSTEM_OVERLOADED_ERROR};

use crate::{Error, Result};

/// Whether a command that was sent and not answered is ambiguous.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ambiguity {
    /// It only reads.
    None,
    /// It may have written.
    MayHaveWritten,
}

/// The error of a write that conflicted with a concurrent one: nothing was written, and a retry sees the other write.
pub(super) const WRITE_CONFLICT: &str = "a concurrent write to the same document conflicted";

/// Codes of errors that occur before a write. Any other error may occur after it.
const REFUSALS: [i32; 8] = [
    2,      // BadValue
    9,      // FailedToParse
    20,     // IllegalOperation
    72,     // InvalidOptions
    121,    // DocumentValidationFailure
    10_107, // NotWritablePrimary
    13_435, // NotPrimaryNoSecondaryOk
    13_436, // NotPrimaryOrSecondary
];

/// Converts an error of the options or the connection, before any command was sent.
pub(super) fn while_connecting(error: &Driver) -> Error {
    from_driver(error, Ambiguity::None)
}

/// Returns the error for hosts of a `mongodb+srv:` URL that cannot be looked up.
pub(super) fn unresolved(message: &str) -> Error {
    Error::Unavailable(format!(
        "cannot look up the hosts of the store URL: {message}: `mongodb+srv://HOST` requires DNS SRV records of \
         _mongodb._tcp.HOST; otherwise list the hosts in a `mongodb://` URL"
    ))
}

/// Converts an error of a command.
pub(super) fn from_driver(error: &Driver, ambiguity: Ambiguity) -> Error {
    let unreachable = |message: &str| {
        Error::Unavailable(format!(
            "cannot connect to MongoDB, or it has no primary: {message}: check that it is running, and hosts, ports, `replicaSet` and \
             `tls` in the store URL"
        ))
    };
    match &*error.kind {
        ErrorKind::Authentication { .. } => Error::Denied(
            "MongoDB refuses the user or password: check them, and `authSource`, in the store URL".into(),
        ),
        ErrorKind::InvalidTlsConfig { message, .. } => tls_error(message),
        // Untrusted certificates, and a server without TLS.
        ErrorKind::ServerSelection { message, .. }
            if message.contains("certificate") || message.contains("corrupt message") =>
        {
            tls_error(reason(message))
        }
        ErrorKind::IncompatibleServer { message, .. } => Error::Denied(format!("MongoDB: {message}")),
        ErrorKind::InvalidArgument { message, .. } => {
            Error::invalid(format!("the store URL: {message}"))
        }
        ErrorKind::ServerSelection { message, .. } if message.contains("uthentication") => {
            Error::Denied(
                "MongoDB refuses the user or password: check them, and `authSource`, in the store URL".into(),
            )
        }
        ErrorKind::ServerSelection { message, .. } => unreachable(reason(message)),
        ErrorKind::DnsResolve { message, .. } => unreachable(message),
        kind if is_connecting(error) => unreachable(&kind.to_string()),
        ErrorKind::Command(error_reply) => {
            let message = format!("MongoDB: {} ({})", error_reply.message, error_reply.code_name);
            command(error_reply.code, message, ambiguity)
        }
        _ => unanswered(format!("MongoDB did not answer: {}", error.kind), ambiguity),
    }
}

/// Returns whether the error occurred while connecting, so that no command was sent.
///
/// Its kind alone is ambiguous: a monitor that loses its server also interrupts commands in flight, with
/// `ConnectionPoolCleared`. The driver adds this label only to network errors while it connects.
fn is_connecting(error: &Driver) -> bool {
    let is_network = matches!(
        &*error.kind,
        ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. }
    );
    is_network && error.contains_label(SYSTEM_OVERLOADED_ERROR)
}

fn tls_error(message: &str) -> Error {
    Error::Denied(format!(
        "MongoDB: {message}: set `tls`, `tlsCAFile` and `tlsCertificateKeyFile` in the store URL to match the server"
    ))
}

/// Extracts the first server's error from the description of a topology.
fn reason(topology: &str) -> &str {
    let Some((_, reason)) = topology.split_once("Error: ") else {
        return topology;
    };
    let reason = reason.split(", labels").next().unwrap_or(reason);
    reason.strip_prefix("Kind: ").unwrap_or(reason)
}

fn command(code: i32, message: String, ambiguity: Ambiguity) -> Error {
    match code {
        // A duplicate key, or a conflict in the storage engine.
        11_000 | 112 => Error::Unavailable(WRITE_CONFLICT.into()),
        13 => Error::Denied(format!(
            "{message}: grant this user the role `readWrite` on the database of the store URL"
        )),
        18 => Error::Denied(format!(
            "{message}: check user, password and `authSource` in the store URL"
        )),
        refusal if REFUSALS.contains(&refusal) => Error::Unavailable(message),
        _ => unanswered(message, ambiguity),
    }
}

/// Returns the error for a lost connection, or for an answer that did not arrive.
pub(super) fn unanswered(problem: String, ambiguity: Ambiguity) -> Error {
    match ambiguity {
        Ambiguity::None => Error::Unavailable(problem),
        Ambiguity::MayHaveWritten => Error::Indeterminate(problem),
    }
}

/// Checks the write concern: a write that a majority has not acknowledged in time may be lost.
pub(super) fn check_concern(answer: &Document, is_written: bool) -> Result<()> {
    let Ok(concern) = answer.get_document("writeConcernError") else {
        return Ok(());
    };
    let message = concern.get_str("errmsg").unwrap_or_default();
    let ambiguity = match is_written {
        true => Ambiguity::MayHaveWritten,
        false => Ambiguity::None,
    };
    let problem = format!("a majority of the replica set did not acknowledge in time: {message}");
    Err(unanswered(problem, ambiguity))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use mongodb::bson::{deserialize_from_document, doc};

    use super::*;

    fn refused(code: i32) -> Driver {
        let error = doc! { "code": code, "codeName": "Name", "errmsg": "said" };
        ErrorKind::Command(deserialize_from_document(error).expect("an error")).into()
    }

    fn network(kind: io::ErrorKind) -> Driver {
        ErrorKind::Io(Arc::new(kind.into())).into()
    }

    #[test]
    fn write_that_may_have_landed_is_indeterminate() {
        let codes = [
            6,      // HostUnreachable, as mongos passes it on
            50,     // MaxTimeMSExpired
            64,     // WriteConcernFailed
            89,     // NetworkTimeout
            91,     // ShutdownInProgress
            189,    // PrimarySteppedDown
            211,    // KeyNotFound: answers are signed, too
            262,    // ExceededTimeLimit
            462,    // IngressRequestRateLimitExceeded
            11_600, // InterruptedAtShutdown
            11_602, // InterruptedDueToReplStateChange
        ];
        let network = [
            io::ErrorKind::ConnectionRefused,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::TimedOut,
            io::ErrorKind::UnexpectedEof,
        ];
        let errors = codes.map(refused).into_iter();
        for error in errors.chain(network.map(self::network)) {
            let write = from_driver(&error, Ambiguity::MayHaveWritten);
            assert!(
                matches!(write, Error::Indeterminate(_)),
                "{error}: {write:?}"
            );
            let read = from_driver(&error, Ambiguity::None);
            assert!(matches!(read, Error::Unavailable(_)), "{error}: {read:?}");
        }
    }

    #[test]
    fn refusal_before_the_write_is_unavailable() {
        for code in REFUSALS.into_iter().chain([112, 11_000]) {
            let write = from_driver(&refused(code), Ambiguity::MayHaveWritten);
            assert!(matches!(write, Error::Unavailable(_)), "{code}: {write:?}");
        }
    }
}
