//! A record as a hash, and back.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{Name, Record, Stamp, Text, Time};
use redis::{Cmd, FromRedisValue as _, Value};

use crate::store::sql::{Columns, json};
use crate::store::{Stored, Write, WriteId, held_until};
use crate::{Error, Result};

/// The key of a record's hash.
pub(super) fn key(prefix: &str, name: &Name) -> String {
    format!("{prefix}:{}:{name}", name.kind().as_str())
}

/// Adds what `swap.lua` takes for one write. An empty text stands for nothing.
pub(super) fn add(call: &mut Cmd, write: &Write) -> Result<()> {
    let expected = write.expect.as_ref();
    call.arg(expected.map_or_else(String::new, |version| version.write.to_string()));
    let Some((id, record)) = &write.put else {
        call.arg("").arg("").arg("").arg("").arg("").arg(0);
        return Ok(());
    };
    let last = record.last.as_ref().map(json).transpose()?;
    let rare = rare(write, record)?;
    call.arg(id.to_string())
        .arg(record.fence.get())
        .arg(held_until(record).as_micros().min(i64::MAX as u64))
        .arg(json(&record.holders)?)
        .arg(last.unwrap_or_default())
        .arg(2 * rare.len());
    for (field, value) in &rare {
        call.arg(*field).arg(&**value);
    }
    Ok(())
}

/// Fields that few records have, those of the state first, as the script expects them. The body stays where it does not
/// come.
fn rare<'w>(write: &Write, record: &'w Record) -> Result<Vec<(&'static str, Cow<'w, str>)>> {
    let mut fields: Vec<(_, Cow<'w, str>)> = Vec::new();
    if let Some(state) = &record.state {
        let since = state.since.as_micros().cast_signed();
        fields.push(("state", (*state.label).into()));
        fields.push(("state_since", since.to_string().into()));
    }
    if let Some(next) = &record.next {
        fields.push(("next", json(next)?.into()));
    }
    if let Some(put) = record.put {
        fields.push(("put", put.to_string().into()));
    }
    if write.body_changed && !(write.expect.is_none() && record.body.is_empty()) {
        fields.push(("body", (*record.body).into()));
    }
    Ok(fields)
}

/// The record in a hash; none in an empty one.
pub(super) fn stored(name: &Name, hash: Value) -> Result<Option<Stored>> {
    let corrupt =
        |problem: &str| Error::Corrupt(format!("the record {name:?} makes no sense: {problem}"));
    let mut fields: BTreeMap<String, String> =
        BTreeMap::from_redis_value(hash).map_err(|_| corrupt("it is no hash of texts"))?;
    if fields.is_empty() {
        return Ok(None);
    }
    let mut field = |key: &str| fields.remove(key).filter(|text| !text.is_empty());
    let number = |text: Option<String>, key: &str| match text {
        None => Ok(None),
        Some(text) => text
            .parse::<i64>()
            .map(Some)
            .map_err(|_| corrupt(&format!("`{key}` is no number"))),
    };
    let write = field("write")
        .as_deref()
        .and_then(WriteId::parse)
        .ok_or_else(|| corrupt("`write` is no id"))?;
    let columns = Columns {
        fence: number(field("fence"), "fence")?.ok_or_else(|| corrupt("`fence` is missing"))?,
        held_until: 0,
        state_since: number(field("state_since"), "state_since")?,
        state: field("state"),
        holders: field("holders").ok_or_else(|| corrupt("`holders` is missing"))?,
        last: field("last"),
        next: field("next"),
        put: field("put"),
        body: field("body").unwrap_or_default(),
    };
    let (_, stored) = columns.stored(name.kind().as_str(), name.as_str(), write)?;
    Ok(Some(stored))
}

/// The server's time, as `TIME` tells it.
pub(super) fn stamp(seconds: &Value, micros: &Value) -> Result<Stamp> {
    let number = |value: &Value| u64::from_redis_value(value.clone()).ok();
    let (Some(seconds), Some(micros)) = (number(seconds), number(micros)) else {
        return Err(Error::Corrupt("Redis tells no time".into()));
    };
    let time = Time::from_micros(seconds * 1_000_000 + micros);
    Ok(Stamp {
        time,
        resolution: Duration::from_micros(1),
    })
}

/// A text in an answer.
pub(super) fn text(value: &Value) -> Text {
    String::from_redis_value(value.clone())
        .unwrap_or_default()
        .into()
}
