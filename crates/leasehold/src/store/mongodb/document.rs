//! Converts a record to a document and back.

use std::time::Duration;

use leasehold_core::{Mode, Name, Record, Stamp, Time};
use mongodb::bson::{DateTime, Document, doc};

use crate::store::sql::Columns;
use crate::store::{Stored, WriteId};
use crate::{Error, Result};

/// The fields that are read; the others are for readers and for searches.
pub(super) const FIELDS: [&str; 10] = [
    "write",
    "fence",
    "state",
    "state_since",
    "holders",
    "last",
    "next",
    "put",
    "body",
    "asked",
];

/// Returns a document's `_id`.
pub(super) fn id(name: &Name) -> String {
    format!("{}:{name}", name.kind().as_str())
}

/// Converts a record without its body.
pub(super) fn of(name: &Name, write: WriteId, record: &Record) -> Result<Document> {
    let columns = Columns::of(record)?;
    let owners: Vec<&str> = record.holders.iter().map(|holder| &*holder.owner).collect();
    let mut document = doc! {
        "_id": id(name),
        "kind": name.kind().as_str(),
        "name": name.as_str(),
        "write": write.to_string(),
        "fence": columns.fence,
        "owner": owners.join(", "),
        "held_until": columns.held_until,
        "holders": columns.holders,
    };
    if let Some(holder) = record.holders.first() {
        let mode = match holder.mode {
            Mode::Exclusive => "exclusive",
            Mode::Shared { .. } => "shared",
        };
        document.insert("mode", mode);
        document.insert("expires", DateTime::from_millis(columns.held_until / 1_000));
    }
    let texts = [
        ("state", columns.state),
        ("last", columns.last),
        ("next", columns.next),
        ("put", columns.put),
    ];
    for (field, text) in texts {
        if let Some(text) = text {
            document.insert(field, text);
        }
    }
    if let Some(since) = columns.state_since {
        document.insert("state_since", since);
    }
    Ok(document)
}

/// Reads the record in a document.
pub(super) fn stored(document: &Document) -> Result<(Name, Stored)> {
    let id = document.get_str("_id").unwrap_or_default();
    let corrupt = |field: &str| {
        Error::Corrupt(format!(
            "the document `{id}` is corrupt: `{field}` is missing or has another type"
        ))
    };
    let text = |field: &str| match document.get(field) {
        None => Ok(None),
        Some(value) => value
            .as_str()
            .map(|text| Some(text.to_owned()))
            .ok_or_else(|| corrupt(field)),
    };
    // A number that was edited by hand may have another numeric type.
    let number = |field: &str| match document.get(field) {
        None => Ok(None),
        Some(value) => value.as_i64().map(Some).ok_or_else(|| corrupt(field)),
    };
    let (kind, name) = id.split_once(':').ok_or_else(|| corrupt("_id"))?;
    let write = text("write")?
        .as_deref()
        .and_then(WriteId::parse)
        .ok_or_else(|| corrupt("write"))?;
    let columns = Columns {
        fence: number("fence")?.ok_or_else(|| corrupt("fence"))?,
        held_until: 0,
        state: text("state")?,
        state_since: number("state_since")?,
        holders: text("holders")?.ok_or_else(|| corrupt("holders"))?,
        last: text("last")?,
        next: text("next")?,
        put: text("put")?,
        body: text("body")?.ok_or_else(|| corrupt("body"))?,
    };
    columns.stored(kind, name, write)
}

/// Reads the server's time from this field of an answer.
pub(super) fn stamp(answer: &Document, field: &str) -> Result<Stamp> {
    let millis = answer
        .get_datetime(field)
        .ok()
        .and_then(|time| u64::try_from(time.timestamp_millis()).ok())
        .ok_or_else(|| Error::Corrupt("MongoDB did not report its time".into()))?;
    Ok(Stamp {
        time: Time::from_micros(millis.saturating_mul(1_000)),
        resolution: Duration::from_millis(1),
    })
}
