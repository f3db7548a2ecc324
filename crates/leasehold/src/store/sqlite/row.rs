//! A record as a row, and back.

use leasehold_core::{Fence, Hash, Kind, Name, Record, State, Time};
use rusqlite::types::Value;
use rusqlite::{Row, Statement, ToSql};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::clock::micros;
use crate::store::{Stored, Version, WriteId, held_until};
use crate::{Error, Result};

/// What [`stored`] reads, in its order.
macro_rules! columns {
    () => {
        "kind, name, write, fence, state, state_since, holders, last, next, put, body"
    };
}
pub(super) use columns;

/// What [`bind`] sets: `?1` and `?2` are the name, `?3` and so on the record.
pub(super) const INSERT: &str = "insert into records (kind, name, write, fence, held_until, state, state_since, \
     holders, last, next, put, body) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) \
     on conflict (kind, name) do nothing";

/// The same, for the version `?13`. No body leaves it as it is.
pub(super) const UPDATE: &str = "update records set write = ?3, fence = ?4, held_until = ?5, state = ?6, \
     state_since = ?7, holders = ?8, last = ?9, next = ?10, put = ?11, body = coalesce(?12, body) \
     where kind = ?1 and name = ?2 and write = ?13";

/// Binds a record to [`INSERT`] or [`UPDATE`].
pub(super) fn bind(
    statement: &mut Statement<'_>,
    name: &Name,
    id: WriteId,
    record: &Record,
    with_body: bool,
) -> rusqlite::Result<()> {
    let state = record.state.as_ref();
    // Only a hint, so a time beyond all integers may be any late one.
    let held_until = i64::try_from(held_until(record).as_micros()).unwrap_or(i64::MAX);
    let values: [&dyn ToSql; 12] = [
        &name.kind().as_str(),
        &name.as_str(),
        &id.0.to_be_bytes(),
        &record.fence.get().cast_signed(),
        &held_until,
        &state.map(|state| &*state.label),
        &state.map(|state| micros(state.since)),
        &json(&record.holders)?,
        &record.last.as_ref().map(json).transpose()?,
        &record.next.as_ref().map(json).transpose()?,
        &record.put.map(|hash| hash.to_string()),
        &with_body.then_some(&*record.body),
    ];
    for (index, value) in values.iter().enumerate() {
        statement.raw_bind_parameter(index + 1, value)?;
    }
    Ok(())
}

fn json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// The record in a row of [`columns`]. The outer error is SQLite's; the inner one says which record makes no sense.
pub(super) fn stored(row: &Row<'_>) -> rusqlite::Result<Result<(Name, Stored)>> {
    let kind: Value = row.get(0)?;
    let name: Value = row.get(1)?;
    Ok(read(row).map_err(|problem| {
        Error::Corrupt(format!(
            "the record {} {} makes no sense: {problem}",
            shown(&kind),
            shown(&name)
        ))
    }))
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
    let kind = Kind::parse(kind).ok_or_else(|| format!("there is no kind `{kind}`"))?;
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
        _ => return Err("of state and state_since only one is there".into()),
    };
    let put = row.get_ref(9)?.as_str_or_null()?;
    let record = Record {
        fence: Fence::new(fence).ok_or("the fence is beyond the highest")?,
        holders: serde_json::from_str(row.get_ref(6)?.as_str()?)?,
        last: optional(row, 7)?,
        next: optional(row, 8)?,
        body: row.get_ref(10)?.as_str()?.into(),
        state,
        put: put
            .map(|hex| Hash::parse(hex).ok_or("put is no hash"))
            .transpose()?,
    };
    if !record.is_sound() {
        return Err("its fences contradict each other".into());
    }
    let version = Version {
        write: WriteId(u128::from_be_bytes(id)),
        tag: None,
    };
    Ok((name, Stored::new(version, record)))
}

fn optional<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<Option<T>, Problem> {
    let text = row.get_ref(column)?.as_str_or_null()?;
    Ok(text.map(serde_json::from_str).transpose()?)
}
