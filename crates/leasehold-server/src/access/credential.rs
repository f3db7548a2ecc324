//! The principal and the scopes of a token or a certificate.

use std::sync::Arc;

use jiff::Timestamp;
use leasehold::core::Text;

use super::lifetime::Lifetime;
use super::meter::Meter;
use super::scope::Scope;
use super::token::TokenHash;

/// The principal and the scopes of a token or a certificate.
#[derive(Debug)]
pub(crate) struct Credential {
    /// The token's id or the certificate's name, which are not secret.
    pub(crate) id: Text,
    /// The hash of the token; `None` for a certificate.
    pub(super) hash: Option<TokenHash>,
    pub(crate) principal: Text,
    pub(crate) scopes: Vec<Scope>,
    /// Ends when the credential expires, is revoked or gets other rights.
    pub(crate) lifetime: Lifetime,
    /// Limits its requests. It survives changes of the access file.
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

    /// Whether the secret, the principal, the scopes and the end are the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.is_of_same_secret(other)
            && self.principal == other.principal
            && self.scopes == other.scopes
            && self.lifetime.until() == other.lifetime.until()
    }

    /// Whether the same secret proves both.
    pub(super) fn is_of_same_secret(&self, other: &Self) -> bool {
        self.id == other.id && self.hash == other.hash
    }
}
