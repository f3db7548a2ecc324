//! Converts a record to a hash and back.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{
    Fence, Hash, Holder, LastHolder, Name, Record, Reservation, Stamp, Text, Time,
};
use redis::{Cmd, FromRedisValue as _, Value};
use serde::{Deserialize, Serialize};

use crate::store::sql::{Problem, json, state};
use crate::store::{Stored, Version, Write, WriteId, held_until};
use crate::{Error, Result};

/// Returns the key of a record's hash.
pub(super) fn key(prefix: &str, name: &Name) -> String {
    format!("{prefix}:{}:{name}", name.kind().as_str())
}

/// The fields of a record other than body and state, stored as one field.
#[derive(Serialize, Deserialize)]
struct StoredRecord<'r> {
    /// Only used in searches; never read back. `find.lua` expects it first.
    held_until: u64,
    fence: Fence,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<Cow<'r, LastHolder>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Cow<'r, Reservation>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    put: Option<Hash>,
    /// The fence check searches from here, so this must be the last field.
    holders: Cow<'r, [Holder]>,
}

impl<'r> StoredRecord<'r> {
    fn of(record: &'r Record) -> Self {
        Self {
            held_until: held_until(record).as_micros().min(i64::MAX as u64),
            fence: record.fence,
            last: record.last.as_ref().map(Cow::Borrowed),
            next: record.next.as_ref().map(Cow::Borrowed),
            put: record.put,
            holders: Cow::Borrowed(&record.holders),
        }
    }
}

/// Appends the arguments of one write for `swap.lua`.
pub(super) fn add(call: &mut Cmd, write: &Write) -> Result<()> {
    match &write.expect {
        Some(version) => call
            .arg(version.write.to_string())
            .arg(version.tag.as_deref().unwrap_or_default()),
        None => call.arg("").arg(""),
    };
    let Some((id, record)) = &write.put else {
        call.arg("").arg("").arg(0);
        return Ok(());
    };
    let optional = optional(write, record);
    call.arg(id.to_string())
        .arg(json(&StoredRecord::of(record))?)
        .arg(2 * optional.len());
    for (field, value) in &optional {
        call.arg(*field).arg(&**value);
    }
    Ok(())
}

/// Returns the state as the tag of a version, so that the script knows which index to remove the record from.
pub(super) fn tag(record: &Record) -> Option<Text> {
    record.state.as_ref().map(|state| state.label.clone())
}

/// Returns the optional fields, those of the state first, as the script expects them. The body is omitted if it is
/// unchanged.
fn optional<'w>(write: &Write, record: &'w Record) -> Vec<(&'static str, Cow<'w, str>)> {
    let mut fields: Vec<(_, Cow<'w, str>)> = Vec::new();
    if let Some(state) = &record.state {
        let since = state.since.as_micros().cast_signed();
        fields.push(("state", (*state.label).into()));
        fields.push(("state_since", since.to_string().into()));
    }
    if write.body_changed && !(write.expect.is_none() && record.body.is_empty()) {
        fields.push(("body", (*record.body).into()));
    }
    fields
}

/// Reads the record in a hash; `None` if the hash is empty.
pub(super) fn stored(name: &Name, hash: Value) -> Result<Option<Stored>> {
    let read = || -> Result<Option<Stored>, Problem> {
        let mut fields: BTreeMap<String, String> = BTreeMap::from_redis_value(hash)?;
        if fields.is_empty() {
            return Ok(None);
        }
        let write = fields.get("write").and_then(|id| WriteId::parse(id));
        let kept: StoredRecord<'_> =
            serde_json::from_str(fields.get("record").ok_or("it has no `record`")?)?;
        let since = fields.get("state_since").map(|since| since.parse::<i64>());
        let record = Record {
            fence: kept.fence,
            holders: kept.holders.into_owned(),
            last: kept.last.map(Cow::into_owned),
            next: kept.next.map(Cow::into_owned),
            body: fields.remove("body").unwrap_or_default().into(),
            state: state(fields.remove("state"), since.transpose()?)?,
            put: kept.put,
        };
        if !record.is_sound() {
            return Err("its fences are inconsistent".into());
        }
        let write = write.ok_or("`write` is not a write id")?;
        let tag = tag(&record);
        Ok(Some(Stored::new(Version { write, tag }, record)))
    };
    read().map_err(|problem| Error::Corrupt(format!("the record {name:?} is corrupt: {problem}")))
}

/// Converts the answer of `TIME`.
pub(super) fn stamp(seconds: &Value, micros: &Value) -> Result<Stamp> {
    let number = |value: &Value| u64::from_redis_value(value.clone()).ok();
    let (Some(seconds), Some(micros)) = (number(seconds), number(micros)) else {
        return Err(Error::Corrupt("Redis did not report its time".into()));
    };
    let time = Time::from_micros(seconds * 1_000_000 + micros);
    Ok(Stamp {
        time,
        resolution: Duration::from_micros(1),
    })
}

/// Returns a value as text.
pub(super) fn text(value: &Value) -> Text {
    String::from_redis_value(value.clone())
        .unwrap_or_default()
        .into()
}
