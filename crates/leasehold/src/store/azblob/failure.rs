//! What Azure's errors mean to a caller.

use std::error::Error as StdError;

use azure_core::error::ErrorKind;
use azure_storage_blob::StorageError;

use super::transport::Witness;
use crate::Error;

/// What a request that was sent and not answered may have done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Nothing: it only reads.
    None,
    /// It may have written.
    MayHaveWritten,
}

/// In place of the code that every refusal of Azure's own has.
const NO_CODE: &str = "no code";

/// What Azure answered instead of what was asked for.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    /// Azure's word for it, which does not change.
    pub(super) code: String,
    said: String,
}

impl Refusal {
    /// Whether there is no such blob, though there is a container.
    pub(super) fn is_absence(&self) -> bool {
        (self.status, &*self.code) == (404, "BlobNotFound")
    }

    /// Whether a condition was not met: the version does not match.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(
            (self.status, &*self.code),
            (409, "BlobAlreadyExists") | (412, "ConditionNotMet" | "TargetConditionNotMet")
        ) || self.is_absence()
    }

    pub(super) fn into_error(self, doubt: Doubt) -> Error {
        let Self { status, code, said } = self;
        let told = format!("Azure: {said} ({code}, {status})");
        let denied = |mend: &str| Error::Denied(format!("{told}: {mend}"));
        match &*code {
            "ContainerNotFound" => {
                denied("run `leasehold init`, or mend account and container in the store URL")
            }
            "AuthenticationFailed"
            | "InvalidAuthenticationInfo"
            | "NoAuthenticationInformation" => denied(
                "mend the key or the shared access signature, which may have run out, or this machine's clock",
            ),
            "KeyBasedAuthenticationNotPermitted" => {
                denied("the account takes no keys: use `?auth=entra`")
            }
            "AuthorizationFailure" | "AuthorizationSourceIPMismatch" => denied(
                "mend the key or the shared access signature, and let this machine through the account's firewall",
            ),
            "LeaseIdMissing" | "LeaseIdMismatchWithBlobOperation" | "LeaseLost" => denied(
                "another program has leased the blob: `az storage blob lease break`; these leases need none of Azure's",
            ),
            "BlobImmutableDueToPolicy" | "BlobImmutableDueToLegalHold" => {
                denied("use a container without immutability policy and legal hold")
            }
            "InvalidBlobType" => {
                denied("it was made by another program: use a container of its own")
            }
            "RequestBodyTooLarge" | "MetadataTooLarge" => Error::invalid(told),
            _ if status == 401 || status == 403 => denied(
                "allow reading, writing, deleting and listing blobs: `racwdl` in a shared access signature, or the role \
                 Storage Blob Data Contributor",
            ),
            // Whatever went wrong inside may have gone wrong after the write. An answer without a code is not Azure's:
            // a proxy's, whose request may have arrived.
            _ if status >= 500 || status == 408 || code == NO_CODE => lost(told, doubt),
            // Too much at once, or something else that was refused: then nothing was written.
            _ => Error::Unavailable(told),
        }
    }
}

/// What became of a request that failed: an answer, or none.
pub(super) fn of(
    error: azure_core::Error,
    witness: &Witness,
    doubt: Doubt,
) -> Result<Refusal, Error> {
    match error.kind() {
        ErrorKind::HttpResponse { status, .. } => Ok(refusal((*status).into(), error)),
        ErrorKind::Connection => Err(unreachable(&error)),
        ErrorKind::Credential if never_connected(&error) => Err(unreachable(&error)),
        ErrorKind::Credential => Err(Error::Denied(format!(
            "Entra ID gives no token: {}: mend the AZURE_… variables, give this machine an identity, or `az login`",
            cause(&error)
        ))),
        _ if !witness.was_sent() => Err(Error::Unavailable(format!(
            "Azure could not be asked: {}",
            cause(&error)
        ))),
        _ => Err(lost(
            format!("Azure did not answer: {}", cause(&error)),
            doubt,
        )),
    }
}

fn refusal(status: u16, error: azure_core::Error) -> Refusal {
    let code = match error.kind() {
        ErrorKind::HttpResponse { error_code, .. } => error_code.clone(),
        _ => None,
    };
    let said = StorageError::try_from(error)
        .ok()
        .and_then(|said| said.message);
    // What follows are ids and times.
    let said = said.as_deref().and_then(|said| said.lines().next());
    Refusal {
        status,
        code: code.unwrap_or_else(|| NO_CODE.into()),
        said: said.unwrap_or("no reason given").to_owned(),
    }
}

/// An answer that did not come.
pub(super) fn lost(problem: String, doubt: Doubt) -> Error {
    match doubt {
        Doubt::None => Error::Unavailable(problem),
        Doubt::MayHaveWritten => Error::Indeterminate(problem),
    }
}

fn unreachable(error: &azure_core::Error) -> Error {
    Error::Unavailable(format!(
        "Azure cannot be reached: {}: are the account and the `endpoint` (http or https) in the store URL right?",
        cause(error)
    ))
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
            said: "no".into(),
        }
    }

    #[test]
    fn only_a_write_that_surely_failed_is_unavailable() {
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
            let write = refusal(status, code).into_error(Doubt::MayHaveWritten);
            assert_eq!(matches!(write, Error::Indeterminate(_)), written, "{code}");
            let read = refusal(status, code).into_error(Doubt::None);
            assert!(matches!(read, Error::Unavailable(_)), "{code}");
        }
    }

    #[test]
    fn what_must_be_mended_says_how() {
        for (status, code, mend) in [
            (404, "ContainerNotFound", "leasehold init"),
            (403, "AuthenticationFailed", "clock"),
            (403, "AuthorizationPermissionMismatch", "racwdl"),
            (403, "KeyBasedAuthenticationNotPermitted", "auth=entra"),
            (412, "LeaseIdMissing", "lease break"),
            (409, "BlobImmutableDueToPolicy", "immutability"),
        ] {
            let refusal = refusal(status, code);
            assert!(!refusal.is_conflict(), "{code}");
            let error = refusal.into_error(Doubt::MayHaveWritten);
            assert!(matches!(error, Error::Denied(_)), "{code}");
            assert!(error.to_string().contains(mend), "{error}");
        }
    }
}
