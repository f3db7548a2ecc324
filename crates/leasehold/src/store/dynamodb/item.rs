//! Converts a record to an item and back.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use leasehold_core::{Name, Record, Time};

use crate::store::sql::Columns;
use crate::store::{Stored, WriteId};
use crate::{Error, Result};

pub(super) type Item = HashMap<String, AttributeValue>;

/// The key of the table.
pub(super) const ID: &str = "id";
/// The version.
pub(super) const WRITE: &str = "write";
pub(super) const BODY: &str = "body";
/// The keys of the index of names.
pub(super) const KIND: &str = "kind";
pub(super) const NAME: &str = "name";
/// The keys of the index of states, which only items with a state have.
pub(super) const QUEUE: &str = "queue";
pub(super) const QUEUED: &str = "queued";

pub(super) fn text(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

fn number(number: i64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// Returns the id of an item.
pub(super) fn id(name: &Name) -> String {
    format!("{}:{name}", name.kind().as_str())
}

/// Returns the partition in the index of states.
pub(super) fn queue(kind: &str, state: &str) -> String {
    format!("{kind}:{state}")
}

/// Returns the position in that partition: oldest first, then by name.
pub(super) fn queued(since: Time, name: &Name) -> String {
    format!("{:020}:{name}", since.as_micros())
}

/// Returns the attributes that never change.
pub(super) fn key_attributes(name: &Name) -> [(&'static str, AttributeValue); 3] {
    [
        (ID, text(id(name))),
        (KIND, text(name.kind().as_str())),
        (NAME, text(name.as_str())),
    ]
}

/// Returns the attributes that change with a write, except the body. `None` removes an attribute.
pub(super) fn value_attributes(
    name: &Name,
    id: WriteId,
    record: &Record,
) -> Result<Vec<(&'static str, Option<AttributeValue>)>> {
    let columns = Columns::of(record)?;
    let owners: Vec<&str> = record.holders.iter().map(|holder| &*holder.owner).collect();
    let is_held = !owners.is_empty();
    let state = record.state.as_ref();
    Ok(vec![
        (WRITE, Some(text(id.to_string()))),
        ("fence", Some(number(columns.fence))),
        ("owner", is_held.then(|| text(owners.join(", ")))),
        (
            "expires",
            is_held.then(|| text(readable(columns.held_until))),
        ),
        ("holders", Some(text(columns.holders))),
        ("last", columns.last.map(text)),
        ("next", columns.next.map(text)),
        ("put", columns.put.map(text)),
        ("state", columns.state.map(text)),
        ("state_since", columns.state_since.map(number)),
        (
            QUEUE,
            state.map(|state| text(queue(name.kind().as_str(), &state.label))),
        ),
        (QUEUED, state.map(|state| text(queued(state.since, name)))),
    ])
}

fn readable(micros: i64) -> String {
    jiff::Timestamp::from_microsecond(micros)
        .map_or_else(|_| micros.to_string(), |time| time.to_string())
}

/// Reads the record in an item.
pub(super) fn stored(mut item: Item) -> Result<(Name, Stored)> {
    let (kind, name) = match (item.remove(KIND), item.remove(NAME)) {
        (Some(AttributeValue::S(kind)), Some(AttributeValue::S(name))) => (kind, name),
        _ => {
            return Err(Error::Corrupt(format!(
                "the item {:?} in DynamoDB has no kind and name",
                item.get(ID)
            )));
        }
    };
    let corrupt = |key: &str| {
        Error::Corrupt(format!(
            "the record `{kind}` `{name}` is corrupt: `{key}` is missing or has another type"
        ))
    };
    let mut text = |key: &str| match item.remove(key) {
        None => Ok(None),
        Some(AttributeValue::S(text)) => Ok(Some(text)),
        Some(AttributeValue::N(number)) => Ok(Some(number)),
        Some(_) => Err(corrupt(key)),
    };
    let number = |text: Option<String>, key: &str| {
        text.map(|text| text.parse::<i64>().map_err(|_| corrupt(key)))
            .transpose()
    };
    let write = text(WRITE)?
        .as_deref()
        .and_then(WriteId::parse)
        .ok_or_else(|| corrupt(WRITE))?;
    let columns = Columns {
        fence: number(text("fence")?, "fence")?.ok_or_else(|| corrupt("fence"))?,
        held_until: 0,
        state: text("state")?,
        state_since: number(text("state_since")?, "state_since")?,
        holders: text("holders")?.ok_or_else(|| corrupt("holders"))?,
        last: text("last")?,
        next: text("next")?,
        put: text("put")?,
        body: text(BODY)?.ok_or_else(|| corrupt(BODY))?,
    };
    columns.stored(&kind, &name, write)
}
