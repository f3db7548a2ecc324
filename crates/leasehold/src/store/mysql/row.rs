//! Converts a record to a row and back. Values are written as hexadecimal literals, which require no quoting in any
//! SQL mode.

use leasehold_core::Name;
use mysql_async::Row;
use mysql_async::prelude::FromValue;

use crate::store::sql::Columns;
use crate::store::{Stored, Write, WriteId};
use crate::{Error, Result};

/// The columns that [`stored`] reads, in order.
pub(super) const COLUMNS: &str =
    "kind, name, write_id, fence, state, state_since, holders, last, next, put, body";

/// Formats bytes as a literal.
pub(super) fn bytes(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut literal = String::with_capacity(bytes.len() * 2 + 3);
    literal.push_str("x'");
    for byte in bytes {
        let _ = write!(literal, "{byte:02x}");
    }
    literal.push('\'');
    literal
}

fn text(text: &str) -> String {
    format!("_utf8mb4 {}", bytes(text.as_bytes()))
}

fn optional(value: Option<String>) -> String {
    value.unwrap_or_else(|| "null".into())
}

/// Formats a write id.
pub(super) fn id(write: WriteId) -> String {
    bytes(&write.0.to_be_bytes())
}

/// Returns the condition `kind = … and name = …`.
pub(super) fn key(name: &Name) -> String {
    format!(
        "kind = {} and name = {}",
        bytes(name.kind().as_str().as_bytes()),
        bytes(name.as_str().as_bytes())
    )
}

/// Returns the same condition, but true only if `@locked` lists the name.
pub(super) fn key_if_locked(name: &Name) -> String {
    let kind = name.kind().as_str();
    let literal = bytes(name.as_str().as_bytes());
    let listed = literal.trim_start_matches("x'").trim_end_matches('\'');
    format!(
        "kind = {} and name = if(find_in_set('{kind}:{}', @locked), {literal}, null)",
        bytes(kind.as_bytes()),
        listed.to_uppercase()
    )
}

/// Returns the columns and values of a write. The body is omitted if it is unchanged.
pub(super) fn assignments(write: &Write) -> Result<Vec<(&'static str, String)>> {
    let Some((write_id, record)) = &write.put else {
        return Ok(Vec::new());
    };
    let columns = Columns::of(record)?;
    let number = |value: Option<i64>| optional(value.map(|value| value.to_string()));
    let words = |value: Option<String>| optional(value.map(|value| text(&value)));
    let mut assignments = vec![
        ("write_id", id(*write_id)),
        ("fence", columns.fence.to_string()),
        ("held_until", columns.held_until.to_string()),
        (
            "state",
            optional(columns.state.map(|state| bytes(state.as_bytes()))),
        ),
        ("state_since", number(columns.state_since)),
        ("holders", text(&columns.holders)),
        ("last", words(columns.last)),
        ("next", words(columns.next)),
        ("put", words(columns.put)),
    ];
    if write.body_changed || write.expect.is_none() {
        assignments.push(("body", text(&record.body)));
    }
    Ok(assignments)
}

/// Reads the record in a row of [`COLUMNS`].
pub(super) fn stored(row: &Row) -> Result<(Name, Stored)> {
    let (kind, name): (String, String) = (value(row, 0)?, value(row, 1)?);
    let write: Vec<u8> = value(row, 2)?;
    let Ok(write) = write.try_into() else {
        return Err(Error::Corrupt(format!(
            "the record `{kind}` `{name}` is corrupt: write_id does not have 16 bytes"
        )));
    };
    let columns = Columns {
        fence: value(row, 3)?,
        held_until: 0,
        state: value(row, 4)?,
        state_since: value(row, 5)?,
        holders: value(row, 6)?,
        last: value(row, 7)?,
        next: value(row, 8)?,
        put: value(row, 9)?,
        body: value(row, 10)?,
    };
    columns.stored(&kind, &name, WriteId(u128::from_be_bytes(write)))
}

/// Returns a column's value.
pub(super) fn value<T: FromValue>(row: &Row, column: usize) -> Result<T> {
    let value = row.get_opt(column);
    value.and_then(Result::ok).ok_or_else(|| {
        Error::Corrupt(format!(
            "the table in the database is not as `leasehold init` creates it: unexpected value in column {column} of an answer"
        ))
    })
}
