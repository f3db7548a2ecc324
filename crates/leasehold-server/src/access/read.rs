//! Reads the access file's tables: what is not understood is refused, never guessed.

use jiff::Timestamp;
use toml_edit::{Item, Table};

use super::file::{AccessFile, CertificateEntry, TokenEntry};
use super::scope::Scope;
use super::token::TokenHash;

/// When a token ends that never does.
pub(super) const NEVER: &str = "never";

type Read<T> = Result<T, String>;

/// All of it.
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
        sha256: sha256.ok_or("`sha256` is no SHA-256 in hexadecimal")?,
        scopes: scopes(table)?,
        created: moment(table, "created")?.ok_or("`created` is missing")?,
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
            "there is no `{key}` here: there is `{}`",
            known.join("`, `")
        )),
    }
}

/// The tables `[[key]]`.
fn each<T>(table: &Table, key: &str, read: impl Fn(&Table) -> Read<T>) -> Read<Vec<T>> {
    let Some(item) = table.get(key) else {
        return Ok(Vec::new());
    };
    let tables = item.as_array_of_tables();
    let tables = tables.ok_or_else(|| format!("`{key}` is written as `[[{key}]]`"))?;
    let numbered = tables.iter().zip(1..);
    let read = numbered.map(|(table, number)| {
        read(table).map_err(|why| format!("in `[[{key}]]` number {number}: {why}"))
    });
    read.collect()
}

fn text(table: &Table, key: &str) -> Read<String> {
    let text = table.get(key).and_then(Item::as_str);
    text.map(str::to_owned)
        .ok_or_else(|| format!("`{key}` is missing, or no text"))
}

fn scopes(table: &Table) -> Read<Vec<Scope>> {
    let wrong = || "`scopes` is missing, or no list of texts".to_owned();
    let array = table
        .get("scopes")
        .and_then(Item::as_array)
        .ok_or_else(wrong)?;
    let scopes = array.iter().map(|scope| {
        let text = scope.as_str().ok_or_else(wrong)?;
        text.parse()
            .map_err(|error: leasehold::Error| error.to_string())
    });
    scopes.collect()
}

/// When a token ends. It is required: otherwise a file that was cut off could make a token last for ever.
fn expiry(table: &Table) -> Read<Option<Timestamp>> {
    if table.get("expires").and_then(Item::as_str) == Some(NEVER) {
        return Ok(None);
    }
    moment(table, "expires")?.map(Some).ok_or_else(|| {
        format!(
            "`expires` is missing: the file may have been cut off. Give a date, or \"{NEVER}\" for a token that never ends; \
             `leasehold token migrate` adds that to a file of an older version"
        )
    })
}

fn moment(table: &Table, key: &str) -> Read<Option<Timestamp>> {
    let Some(item) = table.get(key) else {
        return Ok(None);
    };
    let date = item
        .as_datetime()
        .and_then(|date| date.to_string().parse().ok());
    let wrong =
        || format!("`{key}` is not a date with time and offset, as in 2027-01-31T00:00:00Z");
    date.map(Some).ok_or_else(wrong)
}
