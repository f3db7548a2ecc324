//! Reads the tables of the access file. Unknown or invalid entries are errors: rights are never guessed.

use jiff::Timestamp;
use toml_edit::{Item, Table};

use super::file::{AccessFile, CertificateEntry, TokenEntry};
use super::scope::Scope;
use super::token::TokenHash;

/// The value of `expires` for a token that never expires.
pub(super) const NEVER: &str = "never";

type Read<T> = Result<T, String>;

/// Reads the whole file.
pub(super) fn file(table: &Table) -> Read<AccessFile> {
    only(table, &["token", "certificate"])?;
    Ok(AccessFile {
        tokens: each(table, "token", token)?,
        certificates: each(table, "certificate", certificate)?,
    })
}

fn token(table: &Table) -> Read<TokenEntry> {
    only(
        table,
        &["id", "principal", "sha256", "scopes", "created", "expires"],
    )?;
    let sha256 = TokenHash::parse(&text(table, "sha256")?);
    Ok(TokenEntry {
        id: text(table, "id")?,
        principal: text(table, "principal")?,
        sha256: sha256.ok_or("`sha256` is not a SHA-256 hash in hexadecimal")?,
        scopes: scopes(table)?,
        created: time(table, "created")?.ok_or("`created` is missing")?,
        expires: expiry(table)?,
    })
}

fn certificate(table: &Table) -> Read<CertificateEntry> {
    only(table, &["name", "principal", "scopes"])?;
    Ok(CertificateEntry {
        name: text(table, "name")?,
        principal: text(table, "principal")?,
        scopes: scopes(table)?,
    })
}

fn only(table: &Table, known: &[&str]) -> Read<()> {
    match table.iter().find(|(key, _)| !known.contains(key)) {
        None => Ok(()),
        Some((key, _)) => Err(format!(
            "unknown key `{key}`: the known keys are `{}`",
            known.join("`, `")
        )),
    }
}

/// Reads the tables `[[key]]`.
fn each<T>(table: &Table, key: &str, read: impl Fn(&Table) -> Read<T>) -> Read<Vec<T>> {
    let Some(item) = table.get(key) else {
        return Ok(Vec::new());
    };
    let tables = item.as_array_of_tables();
    let tables = tables.ok_or_else(|| format!("`{key}` is not a table: write `[[{key}]]`"))?;
    let numbered = tables.iter().zip(1..);
    let read = numbered.map(|(table, number)| {
        read(table).map_err(|why| format!("in `[[{key}]]` number {number}: {why}"))
    });
    read.collect()
}

fn text(table: &Table, key: &str) -> Read<String> {
    let text = table.get(key).and_then(Item::as_str);
    text.map(str::to_owned)
        .ok_or_else(|| format!("`{key}` is missing or not a string"))
}

fn scopes(table: &Table) -> Read<Vec<Scope>> {
    let invalid = || "`scopes` is missing or not a list of strings".to_owned();
    let array = table
        .get("scopes")
        .and_then(Item::as_array)
        .ok_or_else(invalid)?;
    let scopes = array.iter().map(|scope| {
        let text = scope.as_str().ok_or_else(invalid)?;
        text.parse()
            .map_err(|error: leasehold::Error| error.to_string())
    });
    scopes.collect()
}

/// Reads when a token expires. The key is required: otherwise a file that was cut off could make a token last forever.
fn expiry(table: &Table) -> Read<Option<Timestamp>> {
    if table.get("expires").and_then(Item::as_str) == Some(NEVER) {
        return Ok(None);
    }
    time(table, "expires")?.map(Some).ok_or_else(|| {
        format!(
            "`expires` is missing, the file may have been cut off: set a date, or \"{NEVER}\" for a token that never expires \
             (for a file of an older version, run `leasehold token migrate`)"
        )
    })
}

fn time(table: &Table, key: &str) -> Read<Option<Timestamp>> {
    let Some(item) = table.get(key) else {
        return Ok(None);
    };
    let date = item
        .as_datetime()
        .and_then(|date| date.to_string().parse().ok());
    let invalid =
        || format!("`{key}` is not a date with time and offset, such as 2027-01-31T00:00:00Z");
    date.map(Some).ok_or_else(invalid)
}
