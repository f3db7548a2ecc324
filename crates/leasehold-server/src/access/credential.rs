//! What a token or a certificate stands for.

use std::sync::Arc;

use jiff::Timestamp;
use leasehold::core::Text;

use super::lifetime::Lifetime;
use super::meter::Meter;
use super::scope::Scope;
use super::token::TokenHash;

/// What a token or a certificate stands for.
#[derive(Debug)]
pub(crate) struct Credential {
    /// The token's id, or the certificate's name: no secret.
    pub(crate) id: Text,
    /// Of the token; `None`: it is a certificate's.
    pub(super) hash: Option<TokenHash>,
    pub(crate) principal: Text,
    pub(crate) scopes: Vec<Scope>,
    /// Ends when it expires, is revoked or is given other rights.
    pub(crate) lifetime: Lifetime,
    /// How much it has asked for; it outlives a change of the file.
    pub(crate) meter: Arc<Meter>,
}

impl Credential {
    pub(super) fn new(
        id: &str,
        hash: Option<TokenHash>,
        principal: &str,
        scopes: Vec<Scope>,
        expires: Option<Timestamp>,
    ) -> Self {
        Self {
            id: id.into(),
            hash,
            principal: principal.into(),
            scopes,
            lifetime: Lifetime::new(expires),
            meter: Arc::default(),
        }
    }

    /// Whether it allows the same to the same callers.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.is_of_same_secret(other)
            && self.principal == other.principal
            && self.scopes == other.scopes
            && self.lifetime.until() == other.lifetime.until()
    }

    /// Whether the same secret shows it.
    pub(super) fn is_of_same_secret(&self, other: &Self) -> bool {
        self.id == other.id && self.hash == other.hash
    }
}
