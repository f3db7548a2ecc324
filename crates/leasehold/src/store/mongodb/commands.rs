//! The commands and their answers.

use leasehold_core::{Name, Stamp};
use mongodb::bson::{Array, Bson, Document, doc};

use super::document;
use super::failure;
use crate::store::sql::Search;
use crate::store::{Answer, Query, Stored, Swapped, Write};
use crate::{Error, Result};

/// How long the server itself tries, in milliseconds: it reports a timeout before the client gives up.
const SERVER_TIMEOUT: i32 = 3_000;

/// Acknowledged by a majority, and journaled: anything weaker may not survive the loss of a primary.
pub(super) fn write_concern() -> Document {
    doc! { "w": "majority", "j": true, "wtimeout": SERVER_TIMEOUT }
}

/// The fields to read, and the time at which the server started the command.
fn projection() -> Document {
    let mut fields: Document = document::FIELDS
        .iter()
        .map(|field| ((*field).to_owned(), Bson::Int32(1)))
        .collect();
    fields.insert("now", "$$NOW");
    fields
}

/// Replaces, inserts or deletes one record if it is as expected.
///
/// Otherwise it marks the record with the time. That is a write, because only a primary whose write a majority has
/// acknowledged can report the current record; a primary that was deposed without noticing would report an old one.
pub(super) fn swap(collection: &str, write: &Write) -> Result<Document> {
    let id = document::id(&write.name);
    let expected = write
        .expect
        .as_ref()
        .map(|version| version.write.to_string());
    let mut command = doc! { "findAndModify": collection };
    let Some((new, record)) = &write.put else {
        command.insert("query", doc! { "_id": id, "write": expected });
        command.insert("remove", true);
        return Ok(finish(command));
    };
    let mut document = document::of(&write.name, *new, record)?;
    let replacement = if write.body_changed || expected.is_none() {
        document.insert("body", &*record.body);
        doc! { "$literal": document }
    } else {
        doc! { "$mergeObjects": [{ "$literal": document }, { "body": "$body" }] }
    };
    let is_expected = match &expected {
        Some(version) => doc! { "$eq": ["$write", version] },
        None => doc! { "$eq": [{ "$type": "$write" }, "missing"] },
    };
    let marked = doc! { "$mergeObjects": ["$$ROOT", { "asked": "$$NOW" }] };
    let outcome = doc! { "$cond": [is_expected, replacement, marked] };
    command.insert("query", doc! { "_id": id });
    command.insert("update", [doc! { "$replaceWith": outcome }]);
    command.insert("upsert", expected.is_none());
    command.insert("new", true);
    Ok(finish(command))
}

fn finish(mut command: Document) -> Document {
    command.insert("fields", projection());
    command.insert("writeConcern", write_concern());
    command
}

/// Returns the result and the time of a write; `None` if the server found no record, which is yet to be confirmed.
pub(super) fn swapped(answer: &Document, write: &Write) -> Result<Option<(Swapped, Stamp)>> {
    let Ok(found) = answer.get_document("value") else {
        failure::check_concern(answer, false)?;
        return Ok(None);
    };
    let is_conflict = write.put.is_some() && found.contains_key("asked");
    failure::check_concern(answer, !is_conflict)?;
    let stamp = document::stamp(found, "now")?;
    let swapped = match is_conflict {
        true => Swapped::Conflict(Some(document::stored(found)?.1)),
        false => Swapped::Written { tag: None },
    };
    Ok(Some((swapped, stamp)))
}

/// Reads these records. The facet, and the time in it, is returned even if there is no record.
pub(super) fn load(collection: &str, names: &[Name]) -> Document {
    let ids: Vec<_> = names.iter().map(document::id).collect();
    doc! {
        "aggregate": collection,
        "pipeline": [
            { "$match": { "_id": { "$in": ids } } },
            { "$facet": { "records": [{ "$match": {} }] } },
            { "$addFields": { "now": "$$NOW" } },
        ],
        "cursor": {},
        "readConcern": { "level": "linearizable" },
        "maxTimeMS": SERVER_TIMEOUT,
    }
}

/// Reads the answer to [`load`], in the order of these names.
pub(super) fn loaded(answer: &Document, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
    let (batch, _) = batch(answer)?;
    let facet = batch
        .first()
        .and_then(Bson::as_document)
        .ok_or_else(unexpected_answer)?;
    let stamp = document::stamp(facet, "now")?;
    let mut value: Vec<_> = names.iter().map(|_| None).collect();
    for found in facet
        .get_array("records")
        .map_err(|_| unexpected_answer())?
    {
        let (name, stored) = document::stored(found.as_document().ok_or_else(unexpected_answer)?)?;
        let slots = names.iter().zip(&mut value);
        for (_, slot) in slots.filter(|(requested, _)| **requested == name) {
            *slot = Some(stored.clone());
        }
    }
    Ok(Answer { value, stamp })
}

/// Finds one record more than a page.
pub(super) fn find(collection: &str, query: &Query, search: &Search<'_>) -> Document {
    let kind = query.kind.as_str();
    let id = |name: &str| format!("{kind}:{name}");
    // The character after the colon sorts after all names of a kind.
    let end = search.to.as_deref().map_or(format!("{kind};"), id);
    let mut filter = doc! { "_id": { "$gte": id(search.from), "$lt": end } };
    let mut sort = doc! { "_id": 1 };
    if query.availability.is_some() {
        filter.insert(
            "held_until",
            doc! { "$gte": search.held.0, "$lte": search.held.1 },
        );
    }
    let after = doc! { "_id": { "$gt": id(search.after) } };
    match (&query.state, &query.cursor) {
        (None, None) => {}
        (None, Some(_)) => {
            filter.insert("$and", [after]);
        }
        (Some(state), cursor) => {
            filter.insert("kind", kind);
            filter.insert("state", &**state);
            sort = doc! { "state_since": 1, "_id": 1 };
            if cursor.is_some() {
                let younger = doc! { "state_since": { "$gt": search.since } };
                let as_old = doc! { "state_since": search.since, "$and": [after] };
                filter.insert("$or", [younger, as_old]);
            }
        }
    }
    doc! {
        "find": collection,
        "filter": filter,
        "sort": sort,
        "projection": projection(),
        "limit": search.limit,
        "batchSize": search.limit,
        "collation": { "locale": "simple" },
        "readConcern": { "level": "majority" },
        "maxTimeMS": SERVER_TIMEOUT,
    }
}

/// The result of a search.
pub(super) struct Found {
    pub(super) records: Vec<(Name, Stored)>,
    /// The server's time, if anything was found.
    pub(super) stamp: Option<Stamp>,
    /// The cursor for the rest, if one answer could not hold everything.
    pub(super) unfinished: Option<i64>,
}

pub(super) fn found(answer: &Document) -> Result<Found> {
    let (batch, cursor) = batch(answer)?;
    let documents = batch.iter().filter_map(Bson::as_document);
    let stamp = documents.clone().next();
    Ok(Found {
        stamp: stamp
            .map(|found| document::stamp(found, "now"))
            .transpose()?,
        records: documents.map(document::stored).collect::<Result<_>>()?,
        unfinished: (cursor != 0).then_some(cursor),
    })
}

/// Returns the first batch of a cursor, and the cursor's id if there are more.
fn batch(answer: &Document) -> Result<(&Array, i64)> {
    let cursor = answer
        .get_document("cursor")
        .map_err(|_| unexpected_answer())?;
    let batch = cursor
        .get_array("firstBatch")
        .map_err(|_| unexpected_answer())?;
    Ok((batch, cursor.get_i64("id").unwrap_or_default()))
}

fn unexpected_answer() -> Error {
    Error::Corrupt("MongoDB returned an unexpected answer".into())
}
