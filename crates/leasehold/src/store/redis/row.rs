//! A record as a hash, and back.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{Name, Stamp, Text, Time};
use redis::{Cmd, FromRedisValue as _, Value};

use crate::store::sql::Columns;
use crate::store::{Stored, Write, WriteId};
use crate::{Error, Result};

/// The key of a record's hash.
pub(super) fn key(prefix: &str, name: &Name) -> String {
    format!("{prefix}:{}:{name}", name.kind().as_str())
}

/// Adds what `swap.lua` takes for one write. An empty text stands for nothing.
pub(super) fn add(call: &mut Cmd, write: &Write) -> Result<()> {
    let expected = write
        .expect
        .as_ref()
        .map(|version| version.write.to_string());
    call.arg(write.name.kind().as_str())
        .arg(write.name.as_str())
        .arg(expected.unwrap_or_default());
    let Some((id, record)) = &write.put else {
        for _ in 0..12 {
            call.arg("");
        }
        return Ok(());
    };
    let columns = Columns::of(record)?;
    let owners: Vec<&str> = record.holders.iter().map(|holder| &*holder.owner).collect();
    let expires = Time::from_micros(columns.held_until.cast_unsigned());
    let body = if write.body_changed {
        format!("+{}", record.body)
    } else {
        "=".to_owned()
    };
    call.arg(id.to_string())
        .arg(columns.fence)
        .arg(columns.held_until)
        .arg(owners.join(", "))
        .arg(if owners.is_empty() {
            String::new()
        } else {
            readable(expires)
        })
        .arg(columns.state.unwrap_or_default())
        .arg(
            columns
                .state_since
                .map(|since| since.to_string())
                .unwrap_or_default(),
        )
        .arg(columns.holders)
        .arg(columns.last.unwrap_or_default())
        .arg(columns.next.unwrap_or_default())
        .arg(columns.put.unwrap_or_default())
        .arg(body);
    Ok(())
}

fn readable(time: Time) -> String {
    let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros)
        .map_or_else(|_| time.to_string(), |time| time.to_string())
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
