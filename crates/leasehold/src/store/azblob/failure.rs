//! Classifies Azure's errors.

use std::error::Error as StdError;

use azure_core::error::ErrorKind;
use azure_storage_blob::StorageError;

use super::transport::RequestTrace;
use crate::Error;

/// Whether a request that was sent and not answered is ambiguous.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ambiguity {
    /// It only reads.
    None,
    /// It may have written.
    MayHaveWritten,
}

/// Stands for a missing error code, which every refusal of Azure itself has.
const NO_CODE: &str = "no code";

/// A refusal from Azure.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    /// The error code.
    pub(super) code: String,
    message: String,
}

impl Refusal {
    /// Returns whether the blob is missing in an existing container.
    pub(super) fn is_not_found(&self) -> bool {
        (self.status, &*self.code) == (404, "BlobNotFound")
    }

    /// Returns whether a condition failed because the version did not match.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(
            (self.status, &*self.code),
            (409, "BlobAlreadyExists") | (412, "ConditionNotMet" | "TargetConditionNotMet")
        ) || self.is_not_found()
    }

    pub(super) fn into_error(self, ambiguity: Ambiguity) -> Error {
        let Self {
            status,
            code,
            message,
        } = self;
        let description = format!("Azure: {message} ({code}, {status})");
        let denied = |fix: &str| Error::Denied(format!("{description}: {fix}"));
        match &*code {
            "ContainerNotFound" => {
                denied("run `leasehold init`, or fix account and container in the store URL")
            }
            "AuthenticationFailed"
            | "InvalidAuthenticationInfo"
            | "NoAuthenticationInformation" => denied(
                "fix the key or the shared access signature, which may have expired, or this machine's clock",
            ),
            "KeyBasedAuthenticationNotPermitted" => {
                denied("the account does not accept keys: use `?auth=entra`")
            }
            "AuthorizationFailure" | "AuthorizationSourceIPMismatch" => denied(
                "fix the key or the shared access signature, and allow this machine in the account's firewall",
            ),
            "LeaseIdMissing" | "LeaseIdMismatchWithBlobOperation" | "LeaseLost" => denied(
                "another program has leased the blob: run `az storage blob lease break`; Leasehold does not use Azure's leases",
            ),
            "BlobImmutableDueToPolicy" | "BlobImmutableDueToLegalHold" => {
                denied("use a container without immutability policy and legal hold")
            }
            "InvalidBlobType" => denied(
                "the blob was created by another program: use a separate container for leases",
            ),
            "RequestBodyTooLarge" | "MetadataTooLarge" => Error::invalid(description),
            _ if status == 401 || status == 403 => denied(
                "allow reading, writing, deleting and listing blobs: `racwdl` in a shared access signature, or the role \
                 Storage Blob Data Contributor",
            ),
            // An internal error may occur after the write. An answer without a code is a proxy's, not Azure's, and
            // the request may have arrived.
            _ if status >= 500 || status == 408 || code == NO_CODE => {
                unanswered(description, ambiguity)
            }
            // Throttling, or another refusal: nothing was written.
            _ => Error::Unavailable(description),
        }
    }
}

/// Classifies the failure of a request: returns Azure's refusal, or an error if there was no answer.
pub(super) fn of(
    error: azure_core::Error,
    trace: &RequestTrace,
    ambiguity: Ambiguity,
) -> Result<Refusal, Error> {
    match error.kind() {
        ErrorKind::HttpResponse { status, .. } => Ok(refusal((*status).into(), error)),
        ErrorKind::Connection => Err(unreachable(&error)),
        ErrorKind::Credential if is_connect_error(&error) => Err(unreachable(&error)),
        ErrorKind::Credential => Err(Error::Denied(format!(
            "Entra ID did not issue a token: {}: fix the AZURE_… variables, give this machine an identity, or run `az login`",
            cause(&error)
        ))),
        _ if !trace.was_sent() => Err(Error::Unavailable(format!(
            "cannot send the request to Azure: {}",
            cause(&error)
        ))),
        _ => Err(unanswered(
            format!("Azure did not answer: {}", cause(&error)),
            ambiguity,
        )),
    }
}

fn refusal(status: u16, error: azure_core::Error) -> Refusal {
    let code = match error.kind() {
        ErrorKind::HttpResponse { error_code, .. } => error_code.clone(),
        _ => None,
    };
    let message = StorageError::try_from(error)
        .ok()
        .and_then(|message| message.message);
    // The following lines are ids and times.
    let message = message
        .as_deref()
        .and_then(|message| message.lines().next());
    Refusal {
        status,
        code: code.unwrap_or_else(|| NO_CODE.into()),
        message: message.unwrap_or("no reason given").to_owned(),
    }
}

/// Returns the error for an answer that did not arrive.
pub(super) fn unanswered(problem: String, ambiguity: Ambiguity) -> Error {
    match ambiguity {
        Ambiguity::None => Error::Unavailable(problem),
        Ambiguity::MayHaveWritten => Error::Indeterminate(problem),
    }
}

fn unreachable(error: &azure_core::Error) -> Error {
    Error::Unavailable(format!(
        "cannot connect to Azure: {}: check the account and the `endpoint` (http or https) in the store URL",
        cause(error)
    ))
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
fn cause(error: &(dyn StdError + 'static)) -> String {
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

    fn refusal(status: u16, code: &str) -> Refusal {
        Refusal {
            status,
            code: code.into(),
            message: "no".into(),
        }
    }

    #[test]
    fn write_is_unavailable_only_if_it_certainly_failed() {
        for (status, code, written) in [
            (429, "TooManyRequests", false),
            (409, "ContainerBeingDeleted", false),
            (500, "InternalError", true),
            (500, "OperationTimedOut", true),
            (503, "ServerBusy", true),
            (408, "RequestTimeout", true),
            (404, NO_CODE, true),
            (499, NO_CODE, true),
        ] {
            let write = refusal(status, code).into_error(Ambiguity::MayHaveWritten);
            assert_eq!(matches!(write, Error::Indeterminate(_)), written, "{code}");
            let read = refusal(status, code).into_error(Ambiguity::None);
            assert!(matches!(read, Error::Unavailable(_)), "{code}");
        }
    }

    #[test]
    fn denied_errors_contain_the_fix() {
        for (status, code, fix) in [
            (404, "ContainerNotFound", "leasehold init"),
            (403, "AuthenticationFailed", "clock"),
            (403, "AuthorizationPermissionMismatch", "racwdl"),
            (403, "KeyBasedAuthenticationNotPermitted", "auth=entra"),
            (412, "LeaseIdMissing", "lease break"),
            (409, "BlobImmutableDueToPolicy", "immutability"),
        ] {
            let refusal = refusal(status, code);
            assert!(!refusal.is_conflict(), "{code}");
            let error = refusal.into_error(Ambiguity::MayHaveWritten);
            assert!(matches!(error, Error::Denied(_)), "{code}");
            assert!(error.to_string().contains(fix), "{error}");
        }
    }
}
