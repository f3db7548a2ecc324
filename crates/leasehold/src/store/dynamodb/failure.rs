//! Classifies DynamoDB's errors.

use std::error::Error as StdError;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

use super::request_trace::RequestTrace;
use crate::Error;

/// Whether a request that was sent and not answered is ambiguous.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ambiguity {
    /// It only reads.
    None,
    /// It may have written.
    MayHaveWritten,
}

/// Converts an error of a request.
pub(super) fn of<E>(error: &SdkError<E>, trace: &RequestTrace, ambiguity: Ambiguity) -> Error
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    if let Some(answered) = error.as_service_error() {
        let status = error.raw_response().map(|raw| raw.status().as_u16());
        let message = answered.message().unwrap_or("no reason given");
        let Some(code) = answered.code() else {
            return unanswered(
                format!(
                    "DynamoDB returned an unexpected answer: {}",
                    cause(answered)
                ),
                ambiguity,
            );
        };
        return refused(code, message, status.unwrap_or_default(), ambiguity);
    }
    let problem = cause(error);
    if problem.contains("certificate") {
        return Error::Denied(format!(
            "DynamoDB: {problem}: check the `endpoint` in the store URL; set `SSL_CERT_FILE` to trust further authorities"
        ));
    }
    if !trace.was_sent() {
        return Error::Unavailable(format!("cannot send the request to DynamoDB: {problem}"));
    }
    if is_connect_error(error) {
        return Error::Unavailable(format!(
            "cannot connect to DynamoDB: {problem}: check `region` and `endpoint` (http or https) in the store URL"
        ));
    }
    unanswered(
        format!(
            "DynamoDB did not answer: {problem}: check `endpoint` (http or https) in the store URL"
        ),
        ambiguity,
    )
}

/// Returns the error for an answer that did not arrive.
pub(super) fn unanswered(problem: String, ambiguity: Ambiguity) -> Error {
    match ambiguity {
        Ambiguity::None => Error::Unavailable(problem),
        Ambiguity::MayHaveWritten => Error::Indeterminate(problem),
    }
}

/// Codes of errors that occur before a write. Any other error may occur after it.
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

/// Converts an error that the service returned.
fn refused(code: &str, message: &str, status: u16, ambiguity: Ambiguity) -> Error {
    let denied = |fix: &str| Error::Denied(format!("DynamoDB: {message} ({code}): {fix}"));
    match code {
        "ResourceNotFoundException" => denied(
            "the table is missing; run `leasehold init`, or fix table and region in the store URL",
        ),
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
        | "ExpiredTokenException" => denied("renew or fix the AWS credentials"),
        "InvalidSignatureException" | "SignatureDoesNotMatch" | "RequestExpired" => {
            denied("fix the secret access key, or this machine's clock")
        }
        "ValidationException" if message.contains("Item size") => {
            Error::invalid(format!("DynamoDB: {message}: an item has at most 400 KB"))
        }
        "ValidationException" => denied("the table is not as `leasehold init` creates it"),
        _ if REFUSALS.contains(&code) => {
            Error::Unavailable(format!("DynamoDB: {message} ({code})"))
        }
        _ => unanswered(format!("DynamoDB: {message} ({code}, {status})"), ambiguity),
    }
}

/// Returns whether connecting failed, so that nothing was sent.
fn is_connect_error(error: &(dyn StdError + 'static)) -> bool {
    causes(error).any(|error| {
        error
            .downcast_ref::<hyper_util::client::legacy::Error>()
            .is_some_and(hyper_util::client::legacy::Error::is_connect)
    })
}

/// Returns the root cause of an error.
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
    fn write_is_unavailable_only_if_it_certainly_failed() {
        for (code, status, written) in [
            ("ProvisionedThroughputExceededException", 400, false),
            ("ThrottlingException", 400, false),
            ("RequestLimitExceeded", 400, false),
            ("ReplicatedWriteConflictException", 400, false),
            ("TransactionConflictException", 400, false),
            ("RequestTimeout", 408, true),
            ("RequestTimeoutException", 400, true),
            ("UnknownException", 400, true),
            ("InternalServerError", 500, true),
            ("ServiceUnavailable", 503, true),
        ] {
            let write = refused(code, "no", status, Ambiguity::MayHaveWritten);
            assert_eq!(matches!(write, Error::Indeterminate(_)), written, "{code}");
            let read = refused(code, "no", status, Ambiguity::None);
            assert!(matches!(read, Error::Unavailable(_)), "{code}");
        }
    }

    #[test]
    fn denied_errors_contain_the_fix() {
        for (code, fix) in [
            ("ResourceNotFoundException", "leasehold init"),
            ("AccessDeniedException", "dynamodb:DescribeTable"),
            ("UnrecognizedClientException", "credentials"),
            ("ExpiredTokenException", "credentials"),
            ("InvalidSignatureException", "clock"),
        ] {
            let error = refused(code, "no", 400, Ambiguity::MayHaveWritten);
            assert!(matches!(error, Error::Denied(_)), "{code}");
            assert!(error.to_string().contains(fix), "{error}");
        }
    }
}
