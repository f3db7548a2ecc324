//! Access control: tokens, client certificates, their scopes, and the access file that contains them.
//!
//! Access control is on if [`Config::access`](crate::Config::access) names a file; then unknown callers are refused. A token
//! belongs to a *principal*, a stable name. Leases belong to the principal, so that a token can be replaced while they are
//! held. This module decides which requests a caller may send. The core alone decides whether a holder may act on a lease.

pub(crate) mod caller;
mod credential;
mod file;
mod lifetime;
pub(crate) mod meter;
mod read;
mod rights;
mod scope;
mod session;
mod token;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use leasehold::Result;
use leasehold::core::Text;
use leasehold::wire::ProblemType;

pub use file::{AccessFile, CertificateEntry, TokenEntry};
pub(crate) use lifetime::Lifetime;
pub use meter::Limits;
pub use scope::{Right, Scope};
pub use token::{Token, TokenHash};

use crate::file_watch::{self, WatchedFiles};
use crate::rejection::Rejection;
use crate::service::Peer;
use caller::Caller;
use credential::Credential;
use rights::Rights;

/// The rights in an access file, which is reloaded when it changes. Cheap to clone.
#[derive(Clone)]
pub struct Access {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    followed: WatchedFiles,
    rights: RwLock<Arc<Rights>>,
}

impl Access {
    /// Reads an access file. Fails with [`Error::Denied`](leasehold::Error::Denied) if it cannot be used.
    pub fn open(path: &Path) -> Result<Self> {
        let followed = WatchedFiles::new(vec![path.to_owned()]);
        let rights = Rights::read(path, &Rights::default())?;
        Ok(Self {
            inner: Arc::new(Inner {
                path: path.to_owned(),
                followed,
                rights: RwLock::new(Arc::new(rights)),
            }),
        })
    }

    /// Identifies the caller by its token, its session or its client certificate, in this order.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        session: Option<&str>,
        peer: &Peer,
    ) -> Result<Caller, Rejection> {
        let address = peer.address.clone();
        if let Some(token) = bearer(headers)? {
            return self.sign_in(token, address);
        }
        let rights = self.rights();
        if let Some((credential, lifetime)) =
            session.and_then(|session| find_session(&rights, session))
        {
            return Ok(Caller::new(credential, Some(lifetime), address));
        }
        let Some(certificate) = &peer.certificate else {
            return Err(unauthorized(match session {
                Some(_) => "this session has ended: sign in again",
                None => "a token is required: send the header `Authorization: Bearer lh_…`",
            }));
        };
        if certificate.lifetime.has_ended() {
            return Err(unauthorized(
                "the certificate of this connection has expired: connect again with a new one",
            ));
        }
        let credential = rights.find_named(&certificate.names);
        let credential = credential.ok_or_else(|| {
            unauthorized("this certificate is unknown: add its name to the access file")
        })?;
        let proof = Some(certificate.lifetime.clone());
        Ok(Caller::new(credential.clone(), proof, address))
    }

    /// Identifies the owner of a token.
    pub(crate) fn sign_in(&self, token: &str, address: Text) -> Result<Caller, Rejection> {
        let rights = self.rights();
        let token = rights.find_token(token).ok_or_else(unknown_token)?;
        Ok(Caller::new(token.credential.clone(), None, address))
    }

    /// Opens a session for a caller that has sent its token. Returns the session's name: a secret that replaces the token
    /// until the session ends.
    pub(crate) fn open_session(&self, caller: &Caller) -> Result<String, Rejection> {
        let rights = self.rights();
        let credential = caller.credential.as_deref();
        let id = credential.map(|credential| &*credential.id);
        let token = id
            .and_then(|id| rights.find_id(id))
            .ok_or_else(unknown_token)?;
        // The id of the token finds the session again.
        Ok(format!("{}{}", token.credential.id, token.sessions.open()?))
    }

    /// Ends a session.
    pub(crate) fn close_session(&self, session: &str) {
        let rights = self.rights();
        if let Some((id, secret)) = session.split_at_checked(token::ID_CHARS)
            && let Some(token) = rights.find_id(id)
        {
            token.sessions.close(secret);
        }
    }

    /// Returns the caller with its present rights. Refuses it if its credential has ended, or belongs to another principal
    /// now.
    pub(crate) fn renew(&self, caller: &Caller) -> Result<Caller, Rejection> {
        let ended = || {
            unauthorized(
                "the token, session or certificate ended during the request: nothing was granted",
            )
        };
        let before = caller.credential.as_deref().ok_or_else(ended)?;
        let rights = self.rights();
        let current = rights.current(before).ok_or_else(ended)?;
        let renewed = Caller {
            credential: Some(current.clone()),
            ..caller.clone()
        };
        if renewed.has_ended() || current.principal != before.principal {
            return Err(ended());
        }
        Ok(renewed)
    }

    /// Reloads the file when it changes, while it is polled. An invalid file is logged and changes nothing.
    pub(crate) async fn keep_reading(self) {
        file_watch::run_periodically(move || self.reload_if_changed()).await;
    }

    fn reload_if_changed(&self) {
        if !self.inner.followed.have_changed() {
            return;
        }
        let before = self.rights();
        match Rights::read(&self.inner.path, &before) {
            Ok(rights) => {
                tracing::info!(tokens = rights.count_tokens(), "reloaded the access file");
                let after = Arc::new(rights);
                let current = self.inner.rights.write();
                *current.unwrap_or_else(PoisonError::into_inner) = after.clone();
                before.retire(&after);
            }
            Err(error) => {
                tracing::error!(%error, "cannot reload the access file: rights are unchanged");
            }
        }
    }

    fn rights(&self) -> Arc<Rights> {
        let rights = self.inner.rights.read();
        rights.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Access").field(&self.inner.path).finish()
    }
}

/// Returns the credential and the lifetime of a session that has not ended.
fn find_session(rights: &Rights, session: &str) -> Option<(Arc<Credential>, Arc<Lifetime>)> {
    let (id, secret) = session.split_at_checked(token::ID_CHARS)?;
    let token = rights.find_id(id)?;
    Some((token.credential.clone(), token.sessions.find(secret)?))
}

fn unauthorized(detail: &'static str) -> Rejection {
    Rejection::new(ProblemType::Unauthorized, detail)
}

fn unknown_token() -> Rejection {
    unauthorized("this token is unknown or has expired: use a valid one")
}

/// Returns the token of the `Authorization` header, if there is one.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Rejection> {
    let mut values = headers.get_all(AUTHORIZATION).into_iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    match text.split_once(' ') {
        Some((scheme, token))
            if scheme.eq_ignore_ascii_case("bearer") && values.next().is_none() =>
        {
            Ok(Some(token.trim_ascii()))
        }
        _ => Err(unauthorized(
            "invalid header `Authorization`: send it once, as `Bearer lh_…`",
        )),
    }
}
