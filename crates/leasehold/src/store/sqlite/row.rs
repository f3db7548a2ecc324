//! Converts a record to a row and back.

use leasehold_core::{Fence, Hash, Kind, Name, Record, State, Text, Time};
use rusqlite::types::Value;
use rusqlite::{Row, Statement};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::clock::micros;
use crate::store::{Stored, Version, WriteId, held_until};
use crate::{Error, Result};

/// The columns that [`stored`] reads, in order.
macro_rules! columns {
    () => {
        "kind, name, write, fence, state, state_since, holders, last, next, put, body, id"
    };
}
pub(super) use columns;

/// The parameters are set by [`bind_name`] (`?1` and `?2`) and [`bind`] (from `?3`).
pub(super) const INSERT: &str = "insert into records (kind, name, write, fence, held_until, state, state_since, \
     holders, last, next, put, body) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) \
     on conflict (kind, name) do nothing";

macro_rules! update {
    () => {
        "update records set write = ?3, fence = ?4, held_until = ?5, state = ?6, state_since = ?7, holders = ?8, \
         last = ?9, next = ?10, put = ?11, body = coalesce(?12, body) where "
    };
}

/// Updates the version `?13` by name. A null body leaves the body unchanged.
pub(super) const UPDATE: &str = concat!(update!(), "kind = ?1 and name = ?2 and write = ?13");

/// Updates the version `?13` in the row `?14`. If another record has reused the row, its version differs.
pub(super) const UPDATE_ROW: &str = concat!(update!(), "id = ?14 and write = ?13");

/// Binds a name to [`INSERT`] or [`UPDATE`], after the record.
pub(super) fn bind_name(statement: &mut Statement<'_>, name: &Name) -> rusqlite::Result<()> {
    statement.raw_bind_parameter(1, name.kind().as_str())?;
    statement.raw_bind_parameter(2, name.as_str())
}

/// Binds a record to [`INSERT`], [`UPDATE`] or [`UPDATE_ROW`].
pub(super) fn bind(
    statement: &mut Statement<'_>,
    id: WriteId,
    record: &Record,
    with_body: bool,
) -> rusqlite::Result<()> {
    // Bindings stay null for fields that the record does not have.
    statement.clear_bindings();
    // Only a hint, so times beyond the integer range are clamped.
    let held_until = i64::try_from(held_until(record).as_micros()).unwrap_or(i64::MAX);
    statement.raw_bind_parameter(3, id.0.to_be_bytes())?;
    statement.raw_bind_parameter(4, record.fence.get().cast_signed())?;
    statement.raw_bind_parameter(5, held_until)?;
    if let Some(state) = &record.state {
        statement.raw_bind_parameter(6, &*state.label)?;
        statement.raw_bind_parameter(7, micros(state.since))?;
    }
    match &*record.holders {
        [] => statement.raw_bind_parameter(8, "[]")?,
        holders => statement.raw_bind_parameter(8, json(&holders)?)?,
    }
    if let Some(last) = &record.last {
        statement.raw_bind_parameter(9, json(last)?)?;
    }
    if let Some(next) = &record.next {
        statement.raw_bind_parameter(10, json(next)?)?;
    }
    if let Some(put) = record.put {
        statement.raw_bind_parameter(11, put.to_string())?;
    }
    if with_body {
        statement.raw_bind_parameter(12, &*record.body)?;
    }
    Ok(())
}

fn json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// Reads the record in a row of [`columns`]. The outer error is SQLite's; the inner one names the corrupt record.
pub(super) fn stored(row: &Row<'_>) -> rusqlite::Result<Result<(Name, Stored)>> {
    let problem = match read(row) {
        Ok(stored) => return Ok(Ok(stored)),
        Err(problem) => problem,
    };
    let (kind, name) = (row.get(0)?, row.get(1)?);
    Ok(Err(Error::Corrupt(format!(
        "the record {} {} is corrupt: {problem}",
        shown(&kind),
        shown(&name)
    ))))
}

fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("`{text}`"),
        other => format!("{other:?}"),
    }
}

type Problem = Box<dyn std::error::Error>;

fn read(row: &Row<'_>) -> Result<(Name, Stored), Problem> {
    let kind = row.get_ref(0)?.as_str()?;
    let kind = Kind::parse(kind).ok_or_else(|| format!("unknown kind `{kind}`"))?;
    let name = Name::new(kind, row.get_ref(1)?.as_str()?)?;
    let id = row.get_ref(2)?.as_blob()?.try_into()?;
    let fence = u64::try_from(row.get::<_, i64>(3)?)?;
    let state = match (
        row.get_ref(4)?.as_str_or_null()?,
        row.get::<_, Option<i64>>(5)?,
    ) {
        (None, None) => None,
        (Some(label), Some(since)) => Some(State {
            label: label.into(),
            since: Time::from_micros(since.cast_unsigned()),
        }),
        _ => return Err("only one of `state` and `state_since` is set".into()),
    };
    let put = row.get_ref(9)?.as_str_or_null()?;
    let record = Record {
        fence: Fence::new(fence).ok_or("the fence is above the maximum")?,
        holders: serde_json::from_str(row.get_ref(6)?.as_str()?)?,
        last: optional(row, 7)?,
        next: optional(row, 8)?,
        body: row.get_ref(10)?.as_str()?.into(),
        state,
        put: put
            .map(|hex| Hash::parse(hex).ok_or("`put` is not a hash"))
            .transpose()?,
    };
    if !record.is_sound() {
        return Err("its fences are inconsistent".into());
    }
    let version = Version {
        write: WriteId(u128::from_be_bytes(id)),
        tag: Some(tag(row.get(11)?)),
    };
    Ok((name, Stored::new(version, record)))
}

/// Returns the row id as the tag of a version, which finds the record without a lookup by name.
pub(super) fn tag(id: i64) -> Text {
    id.to_string().into()
}

fn optional<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<Option<T>, Problem> {
    let text = row.get_ref(column)?.as_str_or_null()?;
    Ok(text.map(serde_json::from_str).transpose()?)
}
