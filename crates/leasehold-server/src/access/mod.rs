//! Who may do what: tokens, certificates of clients, the scopes they carry, and the file that has them.
//!
//! Access control is on where [`Config::access`](crate::Config::access) names a file; then whoever is not in it is
//! refused. A token stands for a *principal*, a stable name: leases belong to it, so that a token can be replaced while
//! they are held. What a lease is and whose is decided by the core alone; here is decided who may ask.

pub(crate) mod caller;
mod file;
pub(crate) mod meter;
mod read;
mod scope;
mod token;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use leasehold::Result;
use leasehold::core::Text;
use leasehold::wire::Trouble;

pub use file::{AccessFile, CertificateEntry, TokenEntry};
pub use meter::Limits;
pub use scope::{Right, Scope};
pub use token::{Token, TokenHash};

use crate::follow::{self, Followed};
use crate::refused::Refused;
use crate::service::Peer;
use crate::session;
use caller::{Caller, Credential};

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
        let rights = Rights::read(path, None)?;
        Ok(Self {
            inner: Arc::new(Inner {
                path: path.to_owned(),
                followed,
                rights: RwLock::new(Arc::new(rights)),
            }),
        })
    }

    /// Who has sent these headers: by their token, by a cookie, or else by the names of a certificate that was shown.
    pub(crate) fn identify(&self, headers: &HeaderMap, peer: &Peer) -> Result<Caller, Refused> {
        let address = peer.address.clone();
        let token = bearer(headers)?.or_else(|| session::token(headers));
        if let Some(token) = token {
            return self.sign_in(token, address);
        }
        let Some(names) = &peer.certificate else {
            let detail = "a token is needed: send the header `Authorization: Bearer lh_…`";
            return Err(Refused::new(Trouble::Unauthorized, detail));
        };
        let credential = self.rights().find_named(names);
        caller(credential, address, "this certificate is unknown")
    }

    /// Who has this token.
    pub(crate) fn sign_in(&self, token: &str, address: Text) -> Result<Caller, Refused> {
        let credential = self.rights().find(token);
        caller(
            credential,
            address,
            "this token is unknown, or its time is over",
        )
    }

    /// Follows the file for as long as it is polled. What is wrong with it is logged, and the rights stay.
    pub(crate) async fn keep_reading(self) {
        follow::keep_looking(move || self.look_again()).await;
    }

    fn look_again(&self) {
        if !self.inner.followed.have_changed() {
            return;
        }
        match Rights::read(&self.inner.path, Some(&self.rights())) {
            Ok(rights) => {
                tracing::info!(tokens = rights.tokens.len(), "the access file has changed");
                let mut current = self
                    .inner
                    .rights
                    .write()
                    .unwrap_or_else(PoisonError::into_inner);
                std::mem::replace(&mut *current, Arc::new(rights)).retire();
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

/// What the file said when it was last read.
struct Rights {
    tokens: HashMap<String, Known>,
    certificates: HashMap<String, Arc<Credential>>,
}

struct Known {
    hash: TokenHash,
    credential: Arc<Credential>,
}

impl Rights {
    /// What the file says. Whoever was known before goes on being counted as before.
    fn read(path: &Path, before: Option<&Self>) -> Result<Self> {
        let file = AccessFile::read(path)?;
        let tokens = file.tokens.into_iter().map(|entry| {
            let (id, before) = (
                &entry.id,
                before.and_then(|before| before.tokens.get(&entry.id)),
            );
            let meter = before.map(|known| known.credential.meter.clone());
            let meter = meter.unwrap_or_default();
            let credential =
                Credential::new(id, entry.principal, entry.scopes, entry.expires, meter);
            let known = Known {
                hash: entry.sha256,
                credential,
            };
            (entry.id, known)
        });
        let certificates = file.certificates.into_iter().map(|entry| {
            let before = before.and_then(|before| before.certificates.get(&entry.name));
            let meter = before.map(|known| known.meter.clone()).unwrap_or_default();
            let (name, scopes) = (&entry.name, entry.scopes);
            let credential = Credential::new(name, entry.principal, scopes, None, meter);
            (entry.name, credential)
        });
        Ok(Self {
            tokens: tokens.collect(),
            certificates: certificates.collect(),
        })
    }

    /// The credential of the first of these names that has one.
    fn find_named(&self, names: &[String]) -> Option<Arc<Credential>> {
        let mut found = names.iter().filter_map(|name| self.certificates.get(name));
        found.next().cloned()
    }

    fn retire(&self) {
        let tokens = self.tokens.values().map(|known| &known.credential);
        tokens
            .chain(self.certificates.values())
            .for_each(|known| known.retire());
    }

    fn find(&self, token: &str) -> Option<Arc<Credential>> {
        let known = self.tokens.get(token::id(token)?)?;
        (known.hash.matches(token) && !known.credential.is_expired())
            .then(|| known.credential.clone())
    }
}

fn caller(
    credential: Option<Arc<Credential>>,
    address: Text,
    unknown: &'static str,
) -> Result<Caller, Refused> {
    if credential.is_none() {
        return Err(Refused::new(Trouble::Unauthorized, unknown));
    }
    Ok(Caller {
        credential,
        address,
    })
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
        _ => Err(Refused::new(
            Trouble::Unauthorized,
            "the header `Authorization` is there once, as `Bearer lh_…`",
        )),
    }
}
