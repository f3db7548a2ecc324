//! What can go wrong, by what to do next.

use leasehold_core::{Held, Invalid};

/// A result of Leasehold.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. Each variant says what the caller should do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else has it: wait, or ask again later.
    #[error("held by {} for another {:?}", owner(.0), .0.retry_after)]
    Held(Held),
    /// This fence does not hold the lease any more: stop the work. Nothing was written.
    #[error("fenced off: this fence does not hold the lease (any more)")]
    Fenced,
    /// This fence's time has run out: stop the work. Nothing was written.
    #[error("expired: the lease was not renewed in time")]
    Expired,
    /// The call is wrong: mend it.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The right to do this, or a part of the set-up, is missing: mend it.
    #[error("{0}")]
    Denied(String),
    /// Nothing happened: try again.
    #[error("{0}")]
    Unavailable(String),
    /// It may have happened or not: look before you try again.
    #[error("{0}")]
    Indeterminate(String),
    /// What is stored makes no sense: stop, and look.
    #[error("{0}")]
    Corrupt(String),
}

fn owner(held: &Held) -> &str {
    if held.owner.is_empty() {
        "somebody"
    } else {
        &held.owner
    }
}

impl Error {
    /// [`Error::Invalid`] with this message.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(Invalid::new(message.into()))
    }
}
