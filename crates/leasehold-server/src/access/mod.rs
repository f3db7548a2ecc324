//! Who may do what: tokens, certificates of clients, the scopes they carry, and the file that has them.
//!
//! Access control is on where [`Config::access`](crate::Config::access) names a file; then whoever is not in it is
//! refused. A token stands for a *principal*, a stable name: leases belong to it, so that a token can be replaced while
//! they are held. What a lease is and whose is decided by the core alone; here is decided who may ask.

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
use leasehold::wire::Trouble;

pub use file::{AccessFile, CertificateEntry, TokenEntry};
pub(crate) use lifetime::Lifetime;
pub use meter::Limits;
pub use scope::{Right, Scope};
pub use token::{Token, TokenHash};

use crate::follow::{self, Followed};
use crate::refused::Refused;
use crate::service::Peer;
use caller::Caller;
use credential::Credential;
use rights::Rights;

/// Who may do what, as a file says, and as it says again whenever it changes. Cheap to clone.
#[derive(Clone)]
pub struct Access {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    followed: Followed,
    rights: RwLock<Arc<Rights>>,
}

impl Access {
    /// As this file says. A file that cannot be used is [`Error::Denied`](leasehold::Error::Denied).
    pub fn open(path: &Path) -> Result<Self> {
        let followed = Followed::new(vec![path.to_owned()]);
        let rights = Rights::read(path, &Rights::default())?;
        Ok(Self {
            inner: Arc::new(Inner {
                path: path.to_owned(),
                followed,
                rights: RwLock::new(Arc::new(rights)),
            }),
        })
    }

    /// Identifies the sender of a request by its token, by its session, or else by the certificate that it has shown.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        session: Option<&str>,
        peer: &Peer,
    ) -> Result<Caller, Refused> {
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
                None => "a token is needed: send the header `Authorization: Bearer lh_…`",
            }));
        };
        if certificate.lifetime.is_over() {
            return Err(unauthorized(
                "the certificate of this connection has expired: connect again with a new one",
            ));
        }
        let credential = rights.find_named(&certificate.names);
        let credential = credential.ok_or_else(|| unauthorized("this certificate is unknown"))?;
        let proof = Some(certificate.lifetime.clone());
        Ok(Caller::new(credential.clone(), proof, address))
    }

    /// Identifies the owner of a token.
    pub(crate) fn sign_in(&self, token: &str, address: Text) -> Result<Caller, Refused> {
        let rights = self.rights();
        let known = rights.find_token(token).ok_or_else(unknown_token)?;
        Ok(Caller::new(known.credential.clone(), None, address))
    }

    /// Opens a session for a caller that has shown its token, and returns its name: a secret that stands for the token until
    /// the session ends.
    pub(crate) fn open_session(&self, caller: &Caller) -> Result<String, Refused> {
        let rights = self.rights();
        let id = caller.credential.as_deref().map(|known| &*known.id);
        let known = id
            .and_then(|id| rights.find_id(id))
            .ok_or_else(unknown_token)?;
        // It is found by the id of its token.
        Ok(format!("{}{}", known.credential.id, known.sessions.open()?))
    }

    /// Ends a session.
    pub(crate) fn close_session(&self, session: &str) {
        let rights = self.rights();
        if let Some((id, secret)) = session.split_at_checked(token::ID_CHARS)
            && let Some(known) = rights.find_id(id)
        {
            known.sessions.close(secret);
        }
    }

    /// Returns the caller with the rights that it has now. Refused if its proof is not accepted any more, or belongs to
    /// another principal now.
    pub(crate) fn renew(&self, caller: &Caller) -> Result<Caller, Refused> {
        let ended = || {
            unauthorized(
                "the token, session or certificate has ended meanwhile: nothing is granted",
            )
        };
        let before = caller.credential.as_deref().ok_or_else(ended)?;
        let rights = self.rights();
        let current = rights.current(before).ok_or_else(ended)?;
        let renewed = Caller {
            credential: Some(current.clone()),
            ..caller.clone()
        };
        if renewed.is_over() || current.principal != before.principal {
            return Err(ended());
        }
        Ok(renewed)
    }

    /// Follows the file for as long as it is polled. What is wrong with it is logged, and the rights stay.
    pub(crate) async fn keep_reading(self) {
        follow::keep_looking(move || self.look_again()).await;
    }

    fn look_again(&self) {
        if !self.inner.followed.have_changed() {
            return;
        }
        let before = self.rights();
        match Rights::read(&self.inner.path, &before) {
            Ok(rights) => {
                tracing::info!(
                    tokens = rights.count_tokens(),
                    "the access file has changed"
                );
                let after = Arc::new(rights);
                let current = self.inner.rights.write();
                *current.unwrap_or_else(PoisonError::into_inner) = after.clone();
                before.retire(&after);
            }
            Err(error) => {
                tracing::error!(%error, "the access file cannot be used: rights stay as they were");
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

/// The credential of a session that is not over, and how long the session lasts.
fn find_session(rights: &Rights, session: &str) -> Option<(Arc<Credential>, Arc<Lifetime>)> {
    let (id, secret) = session.split_at_checked(token::ID_CHARS)?;
    let known = rights.find_id(id)?;
    Some((known.credential.clone(), known.sessions.find(secret)?))
}

fn unauthorized(detail: &'static str) -> Refused {
    Refused::new(Trouble::Unauthorized, detail)
}

fn unknown_token() -> Refused {
    unauthorized("this token is unknown, or its time is over")
}

/// The token of the `Authorization` header, if there is one.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refused> {
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
            "the header `Authorization` is there once, as `Bearer lh_…`",
        )),
    }
}
