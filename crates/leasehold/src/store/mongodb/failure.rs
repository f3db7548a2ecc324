//! What MongoDB's errors mean to a caller.

use mongodb::bson::Document;
use mongodb::error::{Error as Driver, ErrorKind, SYSTEM_OVERLOADED_ERROR};

use crate::{Error, Result};

/// What a command that was sent and not answered may have done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Nothing: it only reads.
    None,
    /// It may have written.
    MayHaveWritten,
}

/// What is said of a write that another one got in the way of: nothing was written, and the next try sees it.
pub(super) const IN_THE_WAY: &str = "another write to the same document got in the way";

/// Codes with which a server refuses before it writes. Any other may follow a write.
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

/// An error while a connection is made, or options are read: nothing was asked yet.
pub(super) fn connecting(error: &Driver) -> Error {
    answered(error, Doubt::None)
}

/// The hosts of a `mongodb+srv:` URL could not be looked up.
pub(super) fn unresolved(said: &str) -> Error {
    Error::Unavailable(format!(
        "the hosts of the store URL cannot be looked up: {said}: `mongodb+srv://HOST` needs the DNS to have SRV records of \
         _mongodb._tcp.HOST; otherwise name the hosts yourself by `mongodb://`"
    ))
}

/// An error in place of an answer.
pub(super) fn answered(error: &Driver, doubt: Doubt) -> Error {
    let unreachable = |said: &str| {
        Error::Unavailable(format!(
            "MongoDB cannot be reached, or has no primary: {said}: is it running, and are hosts, ports, `replicaSet` and \
             `tls` right?"
        ))
    };
    match &*error.kind {
        ErrorKind::Authentication { .. } => Error::Denied(
            "MongoDB refuses the user or password: check them, and `authSource`, in the store URL".into(),
        ),
        ErrorKind::InvalidTlsConfig { message, .. } => encryption(message),
        // Certificates that are not trusted, and bytes that are no TLS.
        ErrorKind::ServerSelection { message, .. }
            if message.contains("certificate") || message.contains("corrupt message") =>
        {
            encryption(reason(message))
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
        ErrorKind::Command(told) => {
            let said = format!("MongoDB: {} ({})", told.message, told.code_name);
            command(told.code, said, doubt)
        }
        _ => lost(format!("MongoDB did not answer: {}", error.kind), doubt),
    }
}

/// Whether the error ended an attempt to connect, so that no command was sent.
///
/// Its kind alone is ambiguous: a monitor that misses its server also interrupts commands in flight, with
/// `ConnectionPoolCleared`. The driver puts this label on network errors while it connects, and never later.
fn is_connecting(error: &Driver) -> bool {
    let is_network = matches!(
        &*error.kind,
        ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. }
    );
    is_network && error.contains_label(SYSTEM_OVERLOADED_ERROR)
}

fn encryption(said: &str) -> Error {
    Error::Denied(format!(
        "MongoDB: {said}: let `tls`, `tlsCAFile` and `tlsCertificateKeyFile` in the store URL match what the server has and \
         wants"
    ))
}

/// What is wrong with the first server, of a description of them all.
fn reason(topology: &str) -> &str {
    let Some((_, reason)) = topology.split_once("Error: ") else {
        return topology;
    };
    let reason = reason.split(", labels").next().unwrap_or(reason);
    reason.strip_prefix("Kind: ").unwrap_or(reason)
}

fn command(code: i32, said: String, doubt: Doubt) -> Error {
    match code {
        // A unique key that is there already, or a conflict in the storage engine.
        11_000 | 112 => Error::Unavailable(IN_THE_WAY.into()),
        13 => Error::Denied(format!(
            "{said}: grant this user the role `readWrite` on the database of the store URL"
        )),
        18 => Error::Denied(format!(
            "{said}: check user, password and `authSource` in the store URL"
        )),
        refusal if REFUSALS.contains(&refusal) => Error::Unavailable(said),
        _ => lost(said, doubt),
    }
}

/// A connection that is gone, or an answer that did not come.
pub(super) fn lost(problem: String, doubt: Doubt) -> Error {
    match doubt {
        Doubt::None => Error::Unavailable(problem),
        Doubt::MayHaveWritten => Error::Indeterminate(problem),
    }
}

/// A majority that has not acknowledged a write in time may never have it.
pub(super) fn check_concern(answer: &Document, is_written: bool) -> Result<()> {
    let Ok(concern) = answer.get_document("writeConcernError") else {
        return Ok(());
    };
    let said = concern.get_str("errmsg").unwrap_or_default();
    let doubt = match is_written {
        true => Doubt::MayHaveWritten,
        false => Doubt::None,
    };
    let problem = format!("a majority of the replica set did not acknowledge in time: {said}");
    Err(lost(problem, doubt))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use mongodb::bson::{deserialize_from_document, doc};

    use super::*;

    fn refused(code: i32) -> Driver {
        let told = doc! { "code": code, "codeName": "Name", "errmsg": "said" };
        ErrorKind::Command(deserialize_from_document(told).expect("an error")).into()
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
            let write = answered(&error, Doubt::MayHaveWritten);
            assert!(
                matches!(write, Error::Indeterminate(_)),
                "{error}: {write:?}"
            );
            let read = answered(&error, Doubt::None);
            assert!(matches!(read, Error::Unavailable(_)), "{error}: {read:?}");
        }
    }

    #[test]
    fn refusal_before_the_write_is_unavailable() {
        for code in REFUSALS.into_iter().chain([112, 11_000]) {
            let write = answered(&refused(code), Doubt::MayHaveWritten);
            assert!(matches!(write, Error::Unavailable(_)), "{code}: {write:?}");
        }
    }
}
