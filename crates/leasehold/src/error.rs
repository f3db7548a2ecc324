//! Errors, one variant for each reaction of the caller.

use leasehold_core::{Held, Invalid};

/// A result of Leasehold.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error. Each variant calls for a different reaction of the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another client holds the lease: wait, or retry later.
    #[error("held by {} for another {:?}", owner(.0), .0.retry_after)]
    Held(Held),
    /// The fence no longer holds the lease: stop the work. Nothing was written.
    #[error("fenced: this fence does not hold the lease, or no longer does: stop the work")]
    Fenced,
    /// The lease was not renewed in time: stop the work. Nothing was written.
    #[error("expired: the lease was not renewed in time: stop the work")]
    Expired,
    /// The request is invalid: fix the arguments. A retry cannot help.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A right or a part of the setup is missing: an operator must add it. Nothing was written.
    #[error("{0}")]
    Denied(String),
    /// The store or the service is unavailable: retry. Nothing was written.
    #[error("{0}")]
    Unavailable(String),
    /// It is unknown whether the operation was performed: read the state before a retry.
    #[error("{0}")]
    Indeterminate(String),
    /// The stored data is corrupt: stop, and examine it.
    #[error("{0}")]
    Corrupt(String),
}

/// Returns the owner for a message; a waiter's reservation has none.
fn owner(held: &Held) -> &str {
    if held.owner.is_empty() {
        "a waiter"
    } else {
        &held.owner
    }
}

impl Error {
    /// Returns [`Error::Invalid`] with this message.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(Invalid::new(message.into()))
    }
}
