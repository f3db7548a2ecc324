//! Classifies etcd's errors.

use serde_json::Value;

use crate::Error;

/// Whether a request that was sent and not answered is ambiguous.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ambiguity {
    /// It only reads.
    None,
    /// It may have written.
    MayHaveWritten,
}

/// A refusal from the gateway.
pub(super) struct Refusal {
    code: i64,
    message: String,
}

const INVALID_ARGUMENT: i64 = 3;
const PERMISSION_DENIED: i64 = 7;
const RESOURCE_EXHAUSTED: i64 = 8;
const FAILED_PRECONDITION: i64 = 9;
const UNIMPLEMENTED: i64 = 12;
const UNAUTHENTICATED: i64 = 16;

impl Refusal {
    pub(super) fn new(status: u16, answer: &Value) -> Self {
        let message = answer["message"].as_str().or(answer["error"].as_str());
        // An unknown path is answered by the HTTP server itself.
        let code = match status {
            404 => UNIMPLEMENTED,
            _ => answer["code"].as_i64().unwrap_or_default(),
        };
        Self {
            code,
            message: message.unwrap_or("no message").to_owned(),
        }
    }

    /// Returns whether the token has expired or is older than a change of rights. Nothing was done.
    pub(super) fn is_token_rejected(&self) -> bool {
        self.message.contains("invalid auth token") || self.message.contains("auth store is old")
    }

    pub(super) fn into_error(self, ambiguity: Ambiguity) -> Error {
        let Self { code, message } = self;
        if message.contains("user name is empty") {
            return Error::Denied(format!(
                "etcd: {message}: it requires a user: use `etcd://USER:PASSWORD@HOST`"
            ));
        }
        match code {
            INVALID_ARGUMENT if message.contains("authentication failed") => Error::Denied(format!(
                "etcd: {message}: check user and password in the store URL"
            )),
            FAILED_PRECONDITION if message.contains("authentication is not enabled") => Error::Denied(
                format!("etcd: {message}: remove user and password from the store URL"),
            ),
            PERMISSION_DENIED => Error::Denied(format!(
                "etcd: {message}: run `etcdctl role grant-permission ROLE readwrite --prefix=true leasehold/` (or the `prefix` \
                 of the store URL) for a role of this user"
            )),
            UNIMPLEMENTED => Error::Denied(
                "this is not etcd 3.4 or newer, or its JSON gateway is off (`--enable-grpc-gateway=false`): turn it on"
                    .into(),
            ),
            UNAUTHENTICATED => Error::Denied(format!(
                "etcd: {message}: check user and password in the store URL"
            )),
            RESOURCE_EXHAUSTED if message.contains("space") => Error::Unavailable(format!(
                "etcd: {message}: compact and defragment it, then `etcdctl alarm disarm`"
            )),
            RESOURCE_EXHAUSTED if message.contains("too many requests") => {
                Error::Unavailable(format!("etcd: {message}"))
            }
            INVALID_ARGUMENT | FAILED_PRECONDITION => Error::Unavailable(format!("etcd: {message}")),
            // Also a gateway that cannot process the answer, and members without a connection to each other.
            _ => unanswered(format!("etcd: {message}"), ambiguity),
        }
    }
}

/// Returns the error for a lost connection, or for an answer that did not arrive.
pub(super) fn unanswered(problem: String, ambiguity: Ambiguity) -> Error {
    match ambiguity {
        Ambiguity::None => Error::Unavailable(problem),
        Ambiguity::MayHaveWritten => Error::Indeterminate(problem),
    }
}

/// Returns the error for an unexpected answer.
pub(super) fn unexpected_answer() -> Error {
    Error::Corrupt("etcd returned an unexpected answer".into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn write_is_unavailable_only_if_it_was_refused_before_it_ran() {
        for (status, code, message, is_ambiguous) in [
            (429, 8, "etcdserver: mvcc: database space exceeded", false),
            (429, 8, "etcdserver: too many requests", false),
            (429, 8, "grpc: received message larger than max", true),
            (400, 3, "etcdserver: request is too large", false),
            (503, 14, "etcdserver: request timed out", true),
            (503, 14, "etcdserver: leader changed", true),
            (504, 4, "context deadline exceeded", true),
            (500, 15, "etcdserver: corrupt cluster", true),
            (500, 2, "etcdserver: unknown", true),
        ] {
            let refusal = || Refusal::new(status, &json!({ "code": code, "message": message }));
            let write = refusal().into_error(Ambiguity::MayHaveWritten);
            assert_eq!(
                matches!(write, Error::Indeterminate(_)),
                is_ambiguous,
                "{message}"
            );
            let read = refusal().into_error(Ambiguity::None);
            assert!(matches!(read, Error::Unavailable(_)), "{message}");
        }
        // The answer of a proxy has no code.
        let proxy = Refusal::new(502, &json!({})).into_error(Ambiguity::MayHaveWritten);
        assert!(matches!(proxy, Error::Indeterminate(_)), "{proxy:?}");
    }
}
