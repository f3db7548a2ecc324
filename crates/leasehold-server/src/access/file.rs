//! The access file: tokens and client certificates with their rights, in TOML.
//!
//! ```toml
//! [[token]]
//! id = "7gK2mQx9"
//! principal = "ci"
//! sha256 = "…"                           # of the token, which is not stored
//! scopes = ["acquire:ci/", "read:"]
//! created = 2026-11-16T02:41:19Z
//! expires = 2027-02-14T02:41:19Z         # or "never"; required, so that no token of a file that was cut off lasts longer
//!
//! [[certificate]]                        # a client certificate, signed by `--tls-client-ca`
//! name = "worker.example.org"            # its subject's common name, or one of its alternative names
//! principal = "workers"
//! scopes = ["acquire:jobs/"]
//! ```

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use leasehold::{Error, Result};
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, TomlError, value};

use super::read::{self, NEVER};
use super::scope::Scope;
use super::token::{Token, TokenHash};
use crate::file_watch;

/// The first line of a new file.
const PREAMBLE: &str =
    "# Tokens and their rights. `leasehold token` edits this file; a running service reloads it.\n";
const MAX_PRINCIPAL_BYTES: usize = 128;

/// The contents of an access file.
#[derive(Debug, Default)]
pub struct AccessFile {
    /// Tokens, in the order in which they were created.
    pub tokens: Vec<TokenEntry>,
    /// Client certificates.
    pub certificates: Vec<CertificateEntry>,
}

/// A token in an access file, which contains only its hash.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TokenEntry {
    /// Its id, which is a part of the token but not secret.
    pub id: String,
    /// The principal that leases belong to. All of its tokens share them.
    pub principal: String,
    /// The hash of the token.
    pub sha256: TokenHash,
    /// Its rights.
    pub scopes: Vec<Scope>,
    /// When it was created.
    pub created: Timestamp,
    /// When it expires; `None`: never.
    pub expires: Option<Timestamp>,
}

impl TokenEntry {
    /// Whether it has expired.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// The rights of a client certificate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CertificateEntry {
    /// The common name of its subject, or one of its alternative names.
    pub name: String,
    /// The principal that leases belong to.
    pub principal: String,
    /// Its rights.
    pub scopes: Vec<Scope>,
}

impl AccessFile {
    /// Reads a file. Fails if other users can write to it, because they could grant themselves rights.
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(&read_text(path)?).map_err(|why| unusable(path, &why))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let document: DocumentMut = text.parse().map_err(|error: TomlError| error.to_string())?;
        let file = read::file(document.as_table())?;
        let principals = file.tokens.iter().map(|token| &token.principal);
        let principals = principals.chain(file.certificates.iter().map(|entry| &entry.principal));
        for principal in principals {
            check_principal(principal).map_err(|error| error.to_string())?;
        }
        let mut ids: Vec<_> = file.tokens.iter().map(|token| &token.id).collect();
        let mut names: Vec<_> = file.certificates.iter().map(|entry| &entry.name).collect();
        match first_duplicate(&mut ids).or_else(|| first_duplicate(&mut names)) {
            Some(duplicate) => Err(format!("duplicate `{duplicate}`: remove one of the two")),
            None => Ok(file),
        }
    }

    /// Adds a new token to a file, which is created if it does not exist. Returns the token, which cannot be recovered later.
    pub fn create_token(
        path: &Path,
        principal: &str,
        scopes: &[Scope],
        expires: Option<Timestamp>,
    ) -> Result<(Token, TokenEntry)> {
        check_principal(principal)?;
        let token = Token::generate()?;
        let entry = TokenEntry {
            id: token.id().to_owned(),
            principal: principal.to_owned(),
            sha256: token.hash(),
            scopes: scopes.to_owned(),
            created: whole_second(Timestamp::now()),
            expires: expires.map(whole_second),
        };
        edit(path, |document| {
            let tokens = document
                .entry("token")
                .or_insert_with(|| ArrayOfTables::new().into());
            let tokens = tokens.as_array_of_tables_mut();
            let tokens = tokens
                .ok_or_else(|| unusable(path, "`token` is not a table: write `[[token]]`"))?;
            tokens.push(table(&entry));
            Ok(())
        })?;
        Ok((token, entry))
    }

    /// Removes a token from a file. Fails if there is none with this id.
    pub fn revoke_token(path: &Path, id: &str) -> Result<()> {
        edit(path, |document| {
            let tokens = document
                .get_mut("token")
                .and_then(Item::as_array_of_tables_mut);
            let was_removed = tokens.is_some_and(|tokens| {
                let before = tokens.len();
                tokens.retain(|token| token.get("id").and_then(Item::as_str) != Some(id));
                tokens.len() < before
            });
            if was_removed {
                return Ok(());
            }
            Err(Error::invalid(format!(
                "no token with the id `{id}`: run `leasehold token list` to see the ids"
            )))
        })
    }

    /// Adds `expires = "never"` to tokens without `expires`, which older versions did not require. Returns their ids.
    pub fn migrate(path: &Path) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        edit(path, |document| {
            let tokens = document
                .get_mut("token")
                .and_then(Item::as_array_of_tables_mut);
            for token in tokens.into_iter().flat_map(ArrayOfTables::iter_mut) {
                if !token.contains_key("expires") {
                    token["expires"] = value(NEVER);
                    let id = token.get("id").and_then(Item::as_str);
                    ids.push(id.unwrap_or_default().to_owned());
                }
            }
            Ok(())
        })?;
        Ok(ids)
    }
}

fn unusable(path: &Path, why: &str) -> Error {
    Error::Denied(format!("cannot use access file {}: {why}", path.display()))
}

fn read_text(path: &Path) -> Result<String> {
    let unreadable = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => unusable(
            path,
            "it does not exist: create it with `leasehold token create`",
        ),
        _ => unusable(path, &error.to_string()),
    };
    let mode = fs::metadata(path).map_err(unreadable)?.mode();
    if mode & 0o022 != 0 {
        let why = "other users can write to it: run `chmod 600` on it";
        return Err(unusable(path, why));
    }
    let bytes = file_watch::read(path).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|_| unusable(path, "it is not UTF-8 text"))
}

fn table(entry: &TokenEntry) -> Table {
    let date = |time: Timestamp| {
        let date: toml_edit::Datetime = time.to_string().parse().expect("RFC 3339 is TOML");
        value(date)
    };
    let mut table = Table::new();
    table["id"] = value(&entry.id);
    table["principal"] = value(&entry.principal);
    table["sha256"] = value(entry.sha256.to_string());
    let scopes = entry.scopes.iter().map(Scope::to_string);
    table["scopes"] = value(scopes.collect::<toml_edit::Array>());
    table["created"] = date(entry.created);
    table["expires"] = entry.expires.map_or_else(|| value(NEVER), date);
    table
}

/// Edits a file atomically, and keeps its comments. The result is validated before it is written. A lock serializes
/// concurrent edits.
fn edit(path: &Path, change: impl FnOnce(&mut DocumentMut) -> Result<()>) -> Result<()> {
    let failed = |error: std::io::Error| unusable(path, &error.to_string());
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let lock = File::open(folder).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let text = match fs::exists(path).map_err(failed)? {
        true => read_text(path)?,
        false => PREAMBLE.to_owned(),
    };
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error: TomlError| unusable(path, &error.to_string()))?;
    change(&mut document)?;
    let text = document.to_string();
    AccessFile::parse(&text).map_err(|why| unusable(path, &why))?;
    replace(path, &text).map_err(failed)?;
    lock.sync_all().map_err(failed)
}

/// Writes a temporary file with the owner and mode of the old one, and renames it to `path`.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let replaced = (|| {
        let mut options = File::options();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        if let Ok(old) = fs::metadata(path) {
            let new = file.metadata()?;
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                fchown(&file, Some(old.uid()), Some(old.gid()))?;
            }
            file.set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if replaced.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    replaced
}

fn check_principal(principal: &str) -> Result<()> {
    let has_valid_length = (1..=MAX_PRINCIPAL_BYTES).contains(&principal.len());
    if has_valid_length && !principal.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "invalid principal: give a name of 1 to {MAX_PRINCIPAL_BYTES} bytes without control characters"
    )))
}

fn first_duplicate<'t>(texts: &mut [&'t String]) -> Option<&'t String> {
    texts.sort();
    texts
        .windows(2)
        .find(|pair| pair[0] == pair[1])
        .map(|pair| pair[0])
}

fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use tempfile::TempDir;

    use super::*;

    /// Creates a file with two tokens. The first one expires.
    fn access_file() -> (TempDir, PathBuf) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("access.toml");
        let soon = Timestamp::now() + SignedDuration::from_hours(1);
        let scopes = ["read:".parse().unwrap()];
        AccessFile::create_token(&path, "ends", &scopes, Some(soon)).unwrap();
        AccessFile::create_token(&path, "stays", &scopes, None).unwrap();
        (folder, path)
    }

    #[test]
    fn no_token_of_a_truncated_file_lasts_longer() {
        let (_folder, path) = access_file();
        let whole = AccessFile::read(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        for length in 0..text.len() {
            let Ok(cut) = AccessFile::parse(&text[..length]) else {
                continue;
            };
            for token in cut.tokens {
                let before = whole.tokens.iter().find(|before| before.id == token.id);
                assert_eq!(token.expires, before.unwrap().expires, "{length}");
            }
        }
    }

    #[test]
    fn token_without_expiry_is_refused_until_the_file_is_migrated() {
        let (_folder, path) = access_file();
        let text = fs::read_to_string(&path).unwrap();
        let old = text.replace("expires = \"never\"\n", "# kept\n");
        assert_ne!(old, text);
        fs::write(&path, &old).unwrap();
        let refused = |error: Error| {
            let error = error.to_string();
            assert!(error.contains("number 2: `expires` is missing"), "{error}");
            assert!(error.contains("leasehold token migrate"), "{error}");
        };
        refused(AccessFile::read(&path).unwrap_err());
        refused(AccessFile::create_token(&path, "new", &[], None).unwrap_err());
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            old,
            "nothing is written"
        );
        let ids = AccessFile::migrate(&path).unwrap();
        let tokens = AccessFile::read(&path).unwrap().tokens;
        assert_eq!(ids, [tokens[1].id.clone()]);
        assert_eq!(tokens[1].expires, None);
        assert!(tokens[0].expires.is_some());
        assert!(fs::read_to_string(&path).unwrap().contains("# kept"));
    }

    #[test]
    fn named_pipe_is_refused_without_waiting_for_its_writer() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("access.toml");
        let status = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(status.unwrap().success());
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let error = AccessFile::read(&path).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
    }
}
