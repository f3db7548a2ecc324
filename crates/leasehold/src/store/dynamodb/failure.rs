//! What DynamoDB's errors mean to a caller.

use std::error::Error as StdError;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

use super::witness::Witness;
use crate::Error;

/// What a request that was sent and not answered may have done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Nothing: it only reads.
    None,
    /// It may have written.
    MayHaveWritten,
}

/// What an error of a request means.
pub(super) fn of<E>(error: &SdkError<E>, witness: &Witness, doubt: Doubt) -> Error
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    if let Some(answered) = error.as_service_error() {
        let status = error.raw_response().map(|raw| raw.status().as_u16());
        let said = answered.message().unwrap_or("no reason given");
        let Some(code) = answered.code() else {
            return lost(
                format!("DynamoDB's answer makes no sense: {}", cause(answered)),
                doubt,
            );
        };
        return refused(code, said, status.unwrap_or_default(), doubt);
    }
    let problem = cause(error);
    if problem.contains("certificate") {
        return Error::Denied(format!(
            "DynamoDB: {problem}: what is at the `endpoint` of the store URL? Further authorities are trusted by \
             `SSL_CERT_FILE`"
        ));
    }
    if !witness.was_sent() {
        return Error::Unavailable(format!("DynamoDB could not be asked: {problem}"));
    }
    if never_connected(error) {
        return Error::Unavailable(format!(
            "DynamoDB cannot be reached: {problem}: are `region` and `endpoint` (http or https) in the store URL right?"
        ));
    }
    lost(
        format!(
            "DynamoDB did not answer: {problem}: is `endpoint` in the store URL right, also as to http or https?"
        ),
        doubt,
    )
}

/// An answer that did not come.
pub(super) fn lost(problem: String, doubt: Doubt) -> Error {
    match doubt {
        Doubt::None => Error::Unavailable(problem),
        Doubt::MayHaveWritten => Error::Indeterminate(problem),
    }
}

/// Codes with which the service refuses before it writes. Any other may follow a write.
const REFUSALS: [&str; 8] = [
    "ItemCollectionSizeLimitExceededException",
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "ReplicatedWriteConflictException",
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "TransactionConflictException",
];

/// What the service itself answered.
fn refused(code: &str, said: &str, status: u16, doubt: Doubt) -> Error {
    let denied = |mend: &str| Error::Denied(format!("DynamoDB: {said} ({code}): {mend}"));
    match code {
        "ResourceNotFoundException" => {
            denied("the table is missing; run `leasehold init`, or mend table and region")
        }
        "AccessDeniedException" | "AccessDenied" => denied(
            "allow dynamodb:DescribeTable, GetItem, BatchGetItem, Query, PutItem, UpdateItem and DeleteItem on the table \
             and its indexes",
        ),
        "UnrecognizedClientException"
        | "InvalidClientTokenId"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "IncompleteSignature"
        | "IncompleteSignatureException"
        | "ExpiredToken"
        | "ExpiredTokenException" => denied("renew or mend the AWS credentials"),
        "InvalidSignatureException" | "SignatureDoesNotMatch" | "RequestExpired" => {
            denied("mend the secret access key, or this machine's clock")
        }
        "ValidationException" if said.contains("Item size") => {
            Error::invalid(format!("DynamoDB: {said}: an item has at most 400 KB"))
        }
        "ValidationException" => denied("the table is not as `leasehold init` makes it"),
        _ if REFUSALS.contains(&code) => Error::Unavailable(format!("DynamoDB: {said} ({code})")),
        _ => lost(format!("DynamoDB: {said} ({code}, {status})"), doubt),
    }
}

/// Whether there was no connection to send anything over.
fn never_connected(error: &(dyn StdError + 'static)) -> bool {
    causes(error).any(|error| {
        error
            .downcast_ref::<hyper_util::client::legacy::Error>()
            .is_some_and(hyper_util::client::legacy::Error::is_connect)
    })
}

/// What happened at the bottom of it.
pub(super) fn cause(error: &(dyn StdError + 'static)) -> String {
    causes(error).last().unwrap_or(error).to_string()
}

fn causes<'e>(
    error: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_write_that_surely_failed_is_unavailable() {
        for (code, status, written) in [
            ("ProvisionedThroughputExceededException", 400, false),
            ("ThrottlingException", 400, false),
            ("RequestLimitExceeded", 400, false),
            ("ReplicatedWriteConflictException", 400, false),
            ("TransactionConflictException", 400, false),
            ("RequestTimeout", 408, true),
            ("RequestTimeoutException", 400, true),
            ("NeverHeardOfException", 400, true),
            ("InternalServerError", 500, true),
            ("ServiceUnavailable", 503, true),
        ] {
            let write = refused(code, "no", status, Doubt::MayHaveWritten);
            assert_eq!(matches!(write, Error::Indeterminate(_)), written, "{code}");
            let read = refused(code, "no", status, Doubt::None);
            assert!(matches!(read, Error::Unavailable(_)), "{code}");
        }
    }

    #[test]
    fn what_must_be_mended_says_how() {
        for (code, mend) in [
            ("ResourceNotFoundException", "leasehold init"),
            ("AccessDeniedException", "dynamodb:DescribeTable"),
            ("UnrecognizedClientException", "credentials"),
            ("ExpiredTokenException", "credentials"),
            ("InvalidSignatureException", "clock"),
        ] {
            let error = refused(code, "no", 400, Doubt::MayHaveWritten);
            assert!(matches!(error, Error::Denied(_)), "{code}");
            assert!(error.to_string().contains(mend), "{error}");
        }
    }
}
