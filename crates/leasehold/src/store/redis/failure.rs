//! Classifies the errors of Redis.

use redis::{ConnectionAddr, ErrorKind, RedisError, ServerErrorKind};

use crate::Error;

/// Converts an error that occurred while connecting.
pub(super) fn while_connecting(address: &ConnectionAddr, error: &RedisError) -> Error {
    let message = describe(error);
    let is_tls = matches!(address, ConnectionAddr::TcpTls { .. });
    if let Some(refused) = refused(error) {
        return refused;
    }
    // Untrusted certificates, and a server without TLS.
    if is_tls
        && (message.contains("certificate")
            || message.contains("message")
            || message.contains("TLS"))
    {
        return Error::Denied(format!(
            "Redis at {address}: {message}: set `ca`, `cert` and `key` in the store URL to match the server, or use \
             `redis://` if it has no TLS"
        ));
    }
    if message.contains("switch database") {
        return Error::Denied(format!(
            "Redis at {address}: {message}: use another database in the store URL, from 0 to the server's `databases` minus 1"
        ));
    }
    let other = match is_tls {
        true => "`redis://` if it has no TLS",
        false => "`rediss://` if it requires TLS",
    };
    Error::Unavailable(format!(
        "cannot connect to Redis at {address}: {message}: check that it is running, and the host and port in the store URL ({other})"
    ))
}

/// Converts an error before anything was sent, or of a call that changes nothing.
pub(super) fn unambiguous(error: &RedisError) -> Error {
    refused(error).unwrap_or_else(|| {
        Error::Unavailable(format!("Redis does not answer: {}", describe(error)))
    })
}

/// Converts an error of a write that was sent.
pub(super) fn of_write(error: &RedisError) -> Error {
    refused(error).unwrap_or_else(|| {
        let message = describe(error);
        Error::Indeterminate(format!("the connection to Redis was lost: {message}"))
    })
}

/// Returns the error for a server that was a primary and now is read-only: nothing was written.
pub(super) fn demoted() -> Error {
    Error::Unavailable(
        "this Redis has become a replica, whose records may be stale: use the URL of the new primary, or promote this one"
            .into(),
    )
}

/// Returns whether a replica refused to write. In scripts, Redis 6 prefixes the error code with other text.
pub(super) fn is_read_only(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || error.to_string().contains("READONLY")
}

/// Converts an error by which the server refused a command: nothing was written.
fn refused(error: &RedisError) -> Option<Error> {
    let denied = |what: &str| Some(Error::Denied(format!("{what} ({})", describe(error))));
    let unavailable =
        |what: &str| Some(Error::Unavailable(format!("{what} ({})", describe(error))));
    match error.kind() {
        ErrorKind::AuthenticationFailed => {
            denied("Redis refuses the user or password of the store URL")
        }
        ErrorKind::Server(ServerErrorKind::NoPerm) => denied(
            "the user lacks a right: run `ACL SETUSER USER ~leasehold:* &leasehold:* +@hash +@sortedset +@scripting +@pubsub +@connection +del +time +info +wait`",
        ),
        ErrorKind::Server(
            ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::CrossSlot,
        ) => denied(
            "this is a Redis Cluster, whose scripts cannot write a batch: use a single primary",
        ),
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ClusterDown,
        ) => unavailable("Redis is not ready"),
        _ => match error.code()? {
            "NOAUTH" | "WRONGPASS" => denied("Redis refuses the user or password of the store URL"),
            "OOM" => unavailable("Redis has no memory left for writes: raise `maxmemory`"),
            "NOREPLICAS" => unavailable("Redis has fewer replicas than `min-replicas-to-write`"),
            "MISCONF" => unavailable("Redis cannot persist, and refuses writes: check its log"),
            "BUSY" => unavailable("Redis is busy running a script"),
            _ => None,
        },
    }
}

/// Returns the first line of an error. The driver's errors contain no passwords.
fn describe(error: &RedisError) -> String {
    error
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}
