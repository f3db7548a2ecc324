//! What etcd's errors mean to a caller.

use serde_json::Value;

use crate::Error;

/// What a request that was sent and not answered may have done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Nothing: it only reads.
    None,
    /// It may have written.
    MayHaveWritten,
}

/// A refusal, as the gateway tells it.
pub(super) struct Refusal {
    code: i64,
    said: String,
}

const INVALID_ARGUMENT: i64 = 3;
const PERMISSION_DENIED: i64 = 7;
const RESOURCE_EXHAUSTED: i64 = 8;
const FAILED_PRECONDITION: i64 = 9;
const UNIMPLEMENTED: i64 = 12;
const UNAUTHENTICATED: i64 = 16;

impl Refusal {
    pub(super) fn new(status: u16, answer: &Value) -> Self {
        let said = answer["message"].as_str().or(answer["error"].as_str());
        // A path that nobody serves is answered by the HTTP server itself.
        let code = match status {
            404 => UNIMPLEMENTED,
            _ => answer["code"].as_i64().unwrap_or_default(),
        };
        Self {
            code,
            said: said.unwrap_or("it said nothing").to_owned(),
        }
    }

    /// Whether it is only that our token has run out, or is older than a change of rights. Nothing was done.
    pub(super) fn wants_a_new_token(&self) -> bool {
        self.said.contains("invalid auth token") || self.said.contains("auth store is old")
    }

    pub(super) fn into_error(self, doubt: Doubt) -> Error {
        let Self { code, said } = self;
        if said.contains("user name is empty") {
            return Error::Denied(format!(
                "etcd: {said}: it wants a user: give `etcd://USER:PASSWORD@HOST`"
            ));
        }
        match code {
            INVALID_ARGUMENT if said.contains("authentication failed") => Error::Denied(format!(
                "etcd: {said}: check user and password in the store URL"
            )),
            FAILED_PRECONDITION if said.contains("authentication is not enabled") => Error::Denied(
                format!("etcd: {said}: leave user and password out of the store URL"),
            ),
            PERMISSION_DENIED => Error::Denied(format!(
                "etcd: {said}: run `etcdctl role grant-permission ROLE readwrite --prefix=true leasehold/` (or the `prefix` \
                 of the store URL) for a role of this user"
            )),
            UNIMPLEMENTED => Error::Denied(
                "this is no etcd 3.4 or newer, or its JSON gateway is off (`--enable-grpc-gateway=false`): turn it on"
                    .into(),
            ),
            UNAUTHENTICATED => Error::Denied(format!(
                "etcd: {said}: check user and password in the store URL"
            )),
            RESOURCE_EXHAUSTED if said.contains("space") => Error::Unavailable(format!(
                "etcd: {said}: compact and defragment it, then `etcdctl alarm disarm`"
            )),
            RESOURCE_EXHAUSTED if said.contains("too many requests") => {
                Error::Unavailable(format!("etcd: {said}"))
            }
            INVALID_ARGUMENT | FAILED_PRECONDITION => Error::Unavailable(format!("etcd: {said}")),
            // Also a gateway that cannot take the answer, and members that lost each other.
            _ => lost(format!("etcd: {said}"), doubt),
        }
    }
}

/// A connection that is gone, or an answer that did not come.
pub(super) fn lost(problem: String, doubt: Doubt) -> Error {
    match doubt {
        Doubt::None => Error::Unavailable(problem),
        Doubt::MayHaveWritten => Error::Indeterminate(problem),
    }
}

/// An answer that is none.
pub(super) fn odd() -> Error {
    Error::Corrupt("etcd answered something else than was asked".into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn write_is_unavailable_only_if_it_was_refused_before() {
        for (status, code, said, in_doubt) in [
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
            let refusal = || Refusal::new(status, &json!({ "code": code, "message": said }));
            let write = refusal().into_error(Doubt::MayHaveWritten);
            assert_eq!(matches!(write, Error::Indeterminate(_)), in_doubt, "{said}");
            let read = refusal().into_error(Doubt::None);
            assert!(matches!(read, Error::Unavailable(_)), "{said}");
        }
        // What a proxy in between says has no code.
        let proxy = Refusal::new(502, &json!({})).into_error(Doubt::MayHaveWritten);
        assert!(matches!(proxy, Error::Indeterminate(_)), "{proxy:?}");
    }
}
