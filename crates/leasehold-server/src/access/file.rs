//! The access file: who may do what, in TOML.
//!
//! ```toml
//! [[token]]
//! id = "7gK2mQx9"
//! principal = "ci"
//! sha256 = "…"                           # of the token, which itself is nowhere
//! scopes = ["acquire:ci/", "read:"]
//! created = 2026-11-16T02:41:19Z
//! expires = 2027-02-14T02:41:19Z         # or "never"; required, so that a file that was cut off extends nothing
//!
//! [[certificate]]                        # of a client, signed by `--tls-client-ca`
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
use crate::follow;

/// What a new file begins with.
const PREAMBLE: &str =
    "# Who may do what. `leasehold token` writes here; a running service sees changes by itself.\n";
/// The longest principal, in bytes.
const PRINCIPAL_BYTES: usize = 128;

/// What an access file says.
#[derive(Debug, Default)]
pub struct AccessFile {
    /// Tokens, in the order in which they were made.
    pub tokens: Vec<TokenEntry>,
    /// Certificates of clients.
    pub certificates: Vec<CertificateEntry>,
}

/// What is kept of a token.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TokenEntry {
    /// Its id, which is a part of the token and no secret.
    pub id: String,
    /// Whose it is: leases belong to the principal, whichever of its tokens took them.
    pub principal: String,
    /// The hash of the token.
    pub sha256: TokenHash,
    /// What it allows.
    pub scopes: Vec<Scope>,
    /// When it was made.
    pub created: Timestamp,
    /// When it ends, if it does.
    pub expires: Option<Timestamp>,
}

impl TokenEntry {
    /// Whether its time is over.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// What a client's certificate means.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CertificateEntry {
    /// The common name of its subject, or one of its alternative names.
    pub name: String,
    /// Who shows it.
    pub principal: String,
    /// What it allows.
    pub scopes: Vec<Scope>,
}

impl AccessFile {
    /// Reads a file. One that others may write to is refused, since they could let themselves in.
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
        match first_twice(&mut ids).or_else(|| first_twice(&mut names)) {
            Some(twice) => Err(format!("`{twice}` is there twice")),
            None => Ok(file),
        }
    }

    /// Adds a new token to a file, which is made if it is not there, and gives it: it can never be read again.
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
            let tokens =
                tokens.ok_or_else(|| unusable(path, "`token` is written as `[[token]]`"))?;
            tokens.push(table(&entry));
            Ok(())
        })?;
        Ok((token, entry))
    }

    /// Takes a token out of a file: whoever has it is refused from now on.
    pub fn revoke_token(path: &Path, id: &str) -> Result<()> {
        edit(path, |document| {
            let tokens = document
                .get_mut("token")
                .and_then(Item::as_array_of_tables_mut);
            let gone = tokens.is_some_and(|tokens| {
                let before = tokens.len();
                tokens.retain(|token| token.get("id").and_then(Item::as_str) != Some(id));
                tokens.len() < before
            });
            if gone {
                return Ok(());
            }
            Err(Error::invalid(format!(
                "there is no token with the id `{id}`: `leasehold token list` shows them"
            )))
        })
    }

    /// Adds `expires = "never"` to the tokens of a file of before this was required, and returns their ids.
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
    Error::Denied(format!("the access file {}: {why}", path.display()))
}

fn read_text(path: &Path) -> Result<String> {
    let unreadable = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => unusable(
            path,
            "it is not there: make one with `leasehold token create`",
        ),
        _ => unusable(path, &error.to_string()),
    };
    let mode = fs::metadata(path).map_err(unreadable)?.mode();
    if mode & 0o022 != 0 {
        return Err(unusable(path, "others may write to it: `chmod 600` it"));
    }
    let bytes = follow::read(path).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|_| unusable(path, "it is not UTF-8 text"))
}

fn table(entry: &TokenEntry) -> Table {
    let date = |moment: Timestamp| {
        let date: toml_edit::Datetime = moment.to_string().parse().expect("RFC 3339 is TOML");
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

/// Changes a file, or none at all: what is written replaces it at once, makes sense, and keeps comments. Two that do so at
/// the same time take turns.
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

/// Writes a file beside the old one, for the same eyes only, and puts it into its place.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = (|| {
        let mut options = File::options();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        if let Ok(old) = fs::metadata(path) {
            let new = file.metadata()?;
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                fchown(&file, Some(old.uid()), Some(old.gid()))?;
            }
            file.set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn check_principal(principal: &str) -> Result<()> {
    let fits = (1..=PRINCIPAL_BYTES).contains(&principal.len());
    if fits && !principal.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the principal is empty, longer than {PRINCIPAL_BYTES} bytes, or has control characters: give a short name"
    )))
}

fn first_twice<'t>(texts: &mut [&'t String]) -> Option<&'t String> {
    texts.sort();
    texts
        .windows(2)
        .find(|two| two[0] == two[1])
        .map(|two| two[0])
}

fn whole_second(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use tempfile::TempDir;

    use super::*;

    /// A file with a token that ends and then one that does not.
    fn written() -> (TempDir, PathBuf) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("access.toml");
        let soon = Timestamp::now() + SignedDuration::from_hours(1);
        let scopes = ["read:".parse().unwrap()];
        AccessFile::create_token(&path, "ends", &scopes, Some(soon)).unwrap();
        AccessFile::create_token(&path, "stays", &scopes, None).unwrap();
        (folder, path)
    }

    #[test]
    fn a_file_that_was_cut_off_extends_no_token() {
        let (_folder, path) = written();
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
    fn a_token_without_an_end_is_refused_until_the_file_is_migrated() {
        let (_folder, path) = written();
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
    fn a_named_pipe_is_refused_instead_of_waiting_for_its_writer() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("access.toml");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let error = AccessFile::read(&path).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
    }
}
