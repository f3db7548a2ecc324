//! The credentials of the access file, as it was last read.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use leasehold::Result;

use super::credential::Credential;
use super::file::AccessFile;
use super::session::Sessions;
use super::token;

/// The credentials of all known callers.
#[derive(Default)]
pub(super) struct Rights {
    tokens: HashMap<String, KnownToken>,
    certificates: HashMap<String, Arc<Credential>>,
}

#[derive(Clone)]
pub(super) struct KnownToken {
    pub(super) credential: Arc<Credential>,
    /// Its sessions, which end with it.
    pub(super) sessions: Arc<Sessions>,
}

impl Rights {
    /// Reads the file. An unchanged credential stays the same object, so that waiting requests of its caller go on. A
    /// changed one keeps its meter.
    pub(super) fn read(path: &Path, before: &Self) -> Result<Self> {
        let file = AccessFile::read(path)?;
        let tokens = file.tokens.into_iter().map(|entry| {
            let (hash, expires) = (Some(entry.sha256), entry.expires);
            let read = Credential::new(&entry.id, hash, &entry.principal, entry.scopes, expires);
            let before = before.tokens.get(&entry.id);
            let sessions = before.filter(|token| token.credential.is_of_same_secret(&read));
            let token = KnownToken {
                sessions: sessions
                    .map(|token| token.sessions.clone())
                    .unwrap_or_default(),
                credential: successor(before.map(|token| &token.credential), read),
            };
            (entry.id, token)
        });
        let certificates = file.certificates.into_iter().map(|entry| {
            let read = Credential::new(&entry.name, None, &entry.principal, entry.scopes, None);
            let credential = successor(before.certificates.get(&entry.name), read);
            (entry.name, credential)
        });
        Ok(Self {
            tokens: tokens.collect(),
            certificates: certificates.collect(),
        })
    }

    pub(super) fn count_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Ends every credential that is another object in `after`, or missing.
    pub(super) fn retire(&self, after: &Self) {
        for credential in self.credentials() {
            let current = after.current(credential);
            if !current.is_some_and(|current| Arc::ptr_eq(current, credential)) {
                credential.lifetime.end();
            }
        }
    }

    fn credentials(&self) -> impl Iterator<Item = &Arc<Credential>> {
        let tokens = self.tokens.values().map(|token| &token.credential);
        tokens.chain(self.certificates.values())
    }

    /// Returns the present credential of the same secret.
    pub(super) fn current(&self, credential: &Credential) -> Option<&Arc<Credential>> {
        let current = match credential.hash {
            Some(_) => self
                .tokens
                .get(&*credential.id)
                .map(|token| &token.credential),
            None => self.certificates.get(&*credential.id),
        };
        current.filter(|current| current.is_of_same_secret(credential))
    }

    /// Returns the token with this text, unless it has expired.
    pub(super) fn find_token(&self, text: &str) -> Option<&KnownToken> {
        let token = self.find_id(token::id(text)?)?;
        let hash = token.credential.hash.as_ref()?;
        hash.matches(text).then_some(token)
    }

    /// Returns the token with this id, unless it has expired.
    pub(super) fn find_id(&self, id: &str) -> Option<&KnownToken> {
        let token = self.tokens.get(id)?;
        (!token.credential.lifetime.has_ended()).then_some(token)
    }

    /// Returns the credential of the first of these certificate names that has one.
    pub(super) fn find_named(&self, names: &[String]) -> Option<&Arc<Credential>> {
        let mut found = names.iter().filter_map(|name| self.certificates.get(name));
        found.next()
    }
}

/// Returns the former credential if it equals the new one.
fn successor(before: Option<&Arc<Credential>>, mut read: Credential) -> Arc<Credential> {
    match before {
        Some(before) if before.is_same(&read) => before.clone(),
        Some(before) => {
            read.meter = before.meter.clone();
            Arc::new(read)
        }
        None => Arc::new(read),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn only_changed_credentials_end() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("access.toml");
        let create = |principal: &str, scope: &str| {
            let scopes = [scope.parse().unwrap()];
            AccessFile::create_token(&path, principal, &scopes, None)
                .unwrap()
                .0
        };
        let [stays, narrowed, revoked] =
            ["stays", "narrowed", "revoked"].map(|principal| create(principal, "read:a"));
        let before = Rights::read(&path, &Rights::default()).unwrap();
        AccessFile::revoke_token(&path, revoked.id()).unwrap();
        create("new", "read:a");
        let text = std::fs::read_to_string(&path).unwrap();
        let (first, second) = text.split_once("narrowed").unwrap();
        let text = format!("{first}narrowed{}", second.replacen("read:a", "read:ab", 1));
        std::fs::write(&path, text).unwrap();
        let after = Rights::read(&path, &before).unwrap();
        before.retire(&after);

        let credential = |rights: &Rights, token: &super::super::Token| {
            let token = rights.find_token(token.expose());
            token.map(|token| token.credential.clone())
        };
        let [stayed, ended, gone] =
            [&stays, &narrowed, &revoked].map(|token| before.tokens[token.id()].credential.clone());
        assert!(!stayed.lifetime.has_ended());
        assert!(Arc::ptr_eq(&stayed, &credential(&after, &stays).unwrap()));
        assert!(ended.lifetime.has_ended() && gone.lifetime.has_ended());
        let renewed = credential(&after, &narrowed).unwrap();
        assert_eq!(renewed.scopes[0].to_string(), "read:ab");
        assert!(Arc::ptr_eq(&renewed.meter, &ended.meter));
        assert!(credential(&after, &revoked).is_none());
    }

    #[test]
    fn sessions_last_as_long_as_the_secret_of_their_token() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("access.toml");
        let token = AccessFile::create_token(&path, "ops", &[], None).unwrap().0;
        let before = Rights::read(&path, &Rights::default()).unwrap();
        let session = before.tokens[token.id()].sessions.open().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("scopes = []", "scopes = [\"read:\"]")).unwrap();
        let wider = Rights::read(&path, &before).unwrap();
        assert!(wider.tokens[token.id()].sessions.find(&session).is_some());
        let other = "0".repeat(64);
        let hash = token.hash().to_string();
        std::fs::write(&path, text.replace(&hash, &other)).unwrap();
        let replaced = Rights::read(&path, &wider).unwrap();
        assert!(
            replaced.tokens[token.id()]
                .sessions
                .find(&session)
                .is_none()
        );
    }
}
