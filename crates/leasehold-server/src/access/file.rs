//! The access file: who may do what, in TOML.
//!
//! ```toml
//! [[token]]
//! id = "7gK2mQx9"
//! principal = "ci"
//! sha256 = "…"                           # of the token, which itself is nowhere
//! scopes = ["acquire:ci/", "read:"]
//! created = 2026-11-16T02:41:19Z
//! expires = 2027-02-14T02:41:19Z         # if ever
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
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use super::read;
use super::scope::Scope;
use super::token::{Token, TokenHash};

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
        let wrong = |why: &str| Error::Denied(format!("the access file {}: {why}", path.display()));
        let file = File::open(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => wrong("it is not there: make one with `leasehold token create`"),
            _ => wrong(&error.to_string()),
        })?;
        let mode = file
            .metadata()
            .map_err(|error| wrong(&error.to_string()))?
            .mode();
        if mode & 0o022 != 0 {
            return Err(wrong("others may write to it: `chmod 600` it"));
        }
        let text = std::io::read_to_string(file).map_err(|error| wrong(&error.to_string()))?;
        Self::parse(&text).map_err(|why| wrong(&why))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let document: DocumentMut = text
            .parse()
            .map_err(|error: toml_edit::TomlError| error.to_string())?;
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
            tokens
                .expect("it has just been read as such")
                .push(table(&entry));
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
    if let Some(expires) = entry.expires {
        table["expires"] = date(expires);
    }
    table
}

/// Changes a file, or none at all: what is written replaces it at once, and comments stay. Two that do so at the same
/// time take turns.
fn edit(path: &Path, change: impl FnOnce(&mut DocumentMut) -> Result<()>) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::Denied(format!("the access file {}: {error}", path.display()))
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let lock = File::open(folder).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let text = match fs::exists(path).map_err(failed)? {
        true => {
            AccessFile::read(path)?;
            fs::read_to_string(path).map_err(failed)?
        }
        false => PREAMBLE.to_owned(),
    };
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error| Error::Denied(format!("the access file {}: {error}", path.display())))?;
    change(&mut document)?;
    replace(path, &document.to_string()).map_err(failed)?;
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
