//! Classifies Cosmos DB's errors.

use serde_json::Value;

use super::client::Reply;
use crate::Error;

/// Whether a request that was sent and not answered is ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ambiguity {
    /// It only reads.
    None,
    /// It may have written.
    MayHaveWritten,
}

/// Returns the error for an answer that did not arrive.
pub(super) fn unanswered(problem: String, ambiguity: Ambiguity) -> Error {
    match ambiguity {
        Ambiguity::None => Error::Unavailable(problem),
        Ambiguity::MayHaveWritten => Error::Indeterminate(problem),
    }
}

/// Returns the error for an unexpected answer.
pub(super) fn unexpected_answer() -> Error {
    Error::Corrupt("Cosmos DB returned an unexpected answer".into())
}

/// The write region has changed, or is about to.
const WRITE_FORBIDDEN: u32 = 3;
/// Entra ID does not allow creating databases and containers.
const FORBIDDEN_FOR_ENTRA: u32 = 5300;

/// Converts an answer with an unexpected status.
pub(super) fn refused(reply: &Reply, ambiguity: Ambiguity) -> Error {
    let (status, substatus) = (reply.status, reply.substatus);
    let description = format!(
        "Cosmos DB: {} ({status}.{substatus})",
        describe(&reply.body)
    );
    let denied = |fix: &str| Error::Denied(format!("{description}: {fix}"));
    match (status, substatus) {
        (400, _) => denied("the container is not as `leasehold init` creates it"),
        (401, _) => denied(
            "fix `key` (or AZURE_COSMOS_KEY), or this machine's clock if it is off by minutes",
        ),
        (403, WRITE_FORBIDDEN) => Error::Unavailable(description),
        (403, FORBIDDEN_FOR_ENTRA) => {
            denied("use the account's key for that, or `az cosmosdb sql`")
        }
        (403, _) => denied(
            "give this identity the role `Cosmos DB Built-in Data Contributor`, and allow this machine in the account's \
             firewall",
        ),
        (404, _) => {
            denied("database or container is missing; run `leasehold init`, or fix the store URL")
        }
        (413, _) => Error::invalid(format!("{description}: an item has at most 2 MB")),
        // Throttled, or a concurrent write: nothing was written.
        (429 | 449, _) => Error::Unavailable(description),
        // An internal error may occur after the write.
        _ => unanswered(description, ambiguity),
    }
}

/// Returns the first line of the message. The rest is for Microsoft's support.
fn describe(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let message = body["message"].as_str().unwrap_or_default();
    let line = message.lines().next().unwrap_or_default().trim();
    match line {
        "" => "no reason given".to_owned(),
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
    fn write_is_unavailable_only_if_it_certainly_failed() {
        for (status, substatus, is_ambiguous) in [
            (429, 3200, false),
            (449, 0, false),
            (403, 3, false),
            (408, 0, true),
            (410, 1002, true),
            (500, 0, true),
            (503, 0, true),
        ] {
            let reply = reply(status, substatus);
            let write = refused(&reply, Ambiguity::MayHaveWritten);
            assert_eq!(
                matches!(write, Error::Indeterminate(_)),
                is_ambiguous,
                "{status}"
            );
            let read = refused(&reply, Ambiguity::None);
            assert!(matches!(read, Error::Unavailable(_)), "{status}");
            assert!(!read.to_string().contains("ActivityId"), "{read}");
        }
    }

    #[test]
    fn denied_errors_contain_the_fix() {
        for (status, substatus, fix) in [
            (400, 0, "leasehold init"),
            (401, 0, "key"),
            (403, 5300, "az cosmosdb"),
            (403, 5302, "Data Contributor"),
            (404, 1003, "leasehold init"),
        ] {
            let error = refused(&reply(status, substatus), Ambiguity::MayHaveWritten);
            assert!(matches!(error, Error::Denied(_)), "{status}");
            assert!(error.to_string().contains(fix), "{error}");
        }
    }
}
