//! What Cosmos DB's refusals mean to a caller.

use serde_json::Value;

use super::client::Reply;
use crate::Error;

/// What a request that was sent and not answered may have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Nothing: it only reads.
    None,
    /// It may have written.
    MayHaveWritten,
}

/// An answer that did not come.
pub(super) fn lost(problem: String, doubt: Doubt) -> Error {
    match doubt {
        Doubt::None => Error::Unavailable(problem),
        Doubt::MayHaveWritten => Error::Indeterminate(problem),
    }
}

/// An answer that is none.
pub(super) fn odd() -> Error {
    Error::Corrupt("Cosmos DB answered something else than was asked".into())
}

/// The write region is another one now, or about to be.
const WRITE_FORBIDDEN: u32 = 3;
/// Databases and containers are not made by those whom Entra ID knows.
const NOT_BY_ENTRA: u32 = 5300;

/// What an answer means that was not hoped for.
pub(super) fn refused(reply: &Reply, doubt: Doubt) -> Error {
    let (status, substatus) = (reply.status, reply.substatus);
    let said = format!("Cosmos DB: {} ({status}.{substatus})", said(&reply.body));
    let denied = |mend: &str| Error::Denied(format!("{said}: {mend}"));
    match (status, substatus) {
        (400, _) => denied("the container is not as `leasehold init` makes it"),
        (401, _) => denied(
            "mend `key` (or AZURE_COSMOS_KEY), or this machine's clock if it is wrong by minutes",
        ),
        (403, WRITE_FORBIDDEN) => Error::Unavailable(said),
        (403, NOT_BY_ENTRA) => denied("use the account's key for that, or `az cosmosdb sql`"),
        (403, _) => denied(
            "give this identity the role `Cosmos DB Built-in Data Contributor`, and let the account's firewall admit this \
             machine",
        ),
        (404, _) => {
            denied("database or container is missing; run `leasehold init`, or mend the store URL")
        }
        (413, _) => Error::invalid(format!("{said}: an item has at most 2 MB")),
        // Too much at once, or in the way of each other: nothing was written.
        (429 | 449, _) => Error::Unavailable(said),
        // Whatever went wrong inside may have gone wrong after the write.
        _ => lost(said, doubt),
    }
}

/// The first line of what it said: the rest is for Microsoft's support.
fn said(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let message = body["message"].as_str().unwrap_or_default();
    let line = message.lines().next().unwrap_or_default().trim();
    match line {
        "" => "it gave no reason".to_owned(),
        line => line.chars().take(300).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, substatus: u32) -> Reply {
        Reply::of(status, substatus, r#"{"message":"no\r\nActivityId: 1"}"#)
    }

    #[test]
    fn only_a_write_that_surely_failed_is_unavailable() {
        for (status, substatus, in_doubt) in [
            (429, 3200, false),
            (449, 0, false),
            (403, 3, false),
            (408, 0, true),
            (410, 1002, true),
            (500, 0, true),
            (503, 0, true),
        ] {
            let reply = reply(status, substatus);
            let write = refused(&reply, Doubt::MayHaveWritten);
            assert_eq!(
                matches!(write, Error::Indeterminate(_)),
                in_doubt,
                "{status}"
            );
            let read = refused(&reply, Doubt::None);
            assert!(matches!(read, Error::Unavailable(_)), "{status}");
            assert!(!read.to_string().contains("ActivityId"), "{read}");
        }
    }

    #[test]
    fn what_must_be_mended_says_how() {
        for (status, substatus, mend) in [
            (400, 0, "leasehold init"),
            (401, 0, "key"),
            (403, 5300, "az cosmosdb"),
            (403, 5302, "Data Contributor"),
            (404, 1003, "leasehold init"),
        ] {
            let error = refused(&reply(status, substatus), Doubt::MayHaveWritten);
            assert!(matches!(error, Error::Denied(_)), "{status}");
            assert!(error.to_string().contains(mend), "{error}");
        }
    }
}
