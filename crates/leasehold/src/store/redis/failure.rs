//! What a failure of Redis means for a lease.

use redis::{ConnectionAddr, ErrorKind, RedisError, ServerErrorKind};

use crate::Error;

/// A failure to connect.
pub(super) fn connecting(place: &ConnectionAddr, error: &RedisError) -> Error {
    let said = said(error);
    let is_tls = matches!(place, ConnectionAddr::TcpTls { .. });
    if let Some(refused) = refused(error) {
        return refused;
    }
    // Certificates that are not trusted, and bytes that are no TLS.
    if is_tls && (said.contains("certificate") || said.contains("message") || said.contains("TLS"))
    {
        return Error::Denied(format!(
            "Redis at {place}: {said}: let `ca`, `cert` and `key` in the store URL match what the server has and wants, or say \
             `redis://` if it has no TLS"
        ));
    }
    if said.contains("switch database") {
        return Error::Denied(format!(
            "Redis at {place}: {said}: name another database in the store URL, from 0 to the server's `databases` less 1"
        ));
    }
    let other = match is_tls {
        true => "`redis://` if it has no TLS",
        false => "`rediss://` if it wants TLS",
    };
    Error::Unavailable(format!(
        "Redis at {place} cannot be reached: {said}: is it running, and are host and port right ({other})?"
    ))
}

/// A failure before anything was sent, or of something that changes nothing.
pub(super) fn harmless(error: &RedisError) -> Error {
    refused(error)
        .unwrap_or_else(|| Error::Unavailable(format!("Redis does not answer: {}", said(error))))
}

/// A failure of a write that was sent.
pub(super) fn of_write(error: &RedisError) -> Error {
    refused(error).unwrap_or_else(|| {
        let said = said(error);
        Error::Indeterminate(format!("the connection to Redis was lost: {said}"))
    })
}

/// A server that was a primary when it was connected to, and takes no writes now: nothing was written.
pub(super) fn demoted() -> Error {
    Error::Unavailable(
        "this Redis has become a replica, whose records may be old: use the URL of the new primary, or promote this one"
            .into(),
    )
}

/// Whether a replica refused to write. In a script, Redis 6 puts its own words before the code.
pub(super) fn is_read_only(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || error.to_string().contains("READONLY")
}

/// What the server itself refused: then nothing was written.
fn refused(error: &RedisError) -> Option<Error> {
    let denied = |what: &str| Some(Error::Denied(format!("{what} ({})", said(error))));
    let unavailable = |what: &str| Some(Error::Unavailable(format!("{what} ({})", said(error))));
    match error.kind() {
        ErrorKind::AuthenticationFailed => {
            denied("Redis refuses the user or password of the store URL")
        }
        ErrorKind::Server(ServerErrorKind::NoPerm) => denied(
            "the user lacks a right: `ACL SETUSER USER ~leasehold:* &leasehold:* +@hash +@sortedset +@scripting +@pubsub +@connection +del +time +info +wait`",
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
            "MISCONF" => unavailable("Redis cannot persist, and refuses writes: look at its log"),
            "BUSY" => unavailable("Redis is busy with somebody's script"),
            _ => None,
        },
    }
}

/// What went wrong, in one line; the driver's errors name no passwords.
fn said(error: &RedisError) -> String {
    error
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}
