//! The commands, and what their answers mean.

use leasehold_core::{Name, Stamp};
use mongodb::bson::{Array, Bson, Document, doc};

use super::document;
use super::failure;
use crate::store::sql::Search;
use crate::store::{Answer, Query, Stored, Swapped, Write};
use crate::{Error, Result};

/// How long the server itself tries, in milliseconds: it gives up, and says so, before this side does.
const SERVER_PATIENCE: i32 = 3_000;

/// By a majority, in their journals: nothing less survives the loss of a primary.
pub(super) fn write_concern() -> Document {
    doc! { "w": "majority", "j": true, "wtimeout": SERVER_PATIENCE }
}

/// What is read of a document, and the time at which the server began to.
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
/// One that is not is marked with the time instead. That is a write, too: only a primary whose write a majority has
/// acknowledged may say what a record is now; one that was replaced without noticing would tell of the past.
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

/// What became of a write, and when. `None`: the server found nothing to write to, which is yet to be confirmed.
pub(super) fn swapped(answer: &Document, write: &Write) -> Result<Option<(Swapped, Stamp)>> {
    let Ok(found) = answer.get_document("value") else {
        failure::check_concern(answer, false)?;
        return Ok(None);
    };
    let lost = write.put.is_some() && found.contains_key("asked");
    failure::check_concern(answer, !lost)?;
    let stamp = document::stamp(found, "now")?;
    let swapped = match lost {
        true => Swapped::Conflict(Some(document::stored(found)?.1)),
        false => Swapped::Written { tag: None },
    };
    Ok(Some((swapped, stamp)))
}

/// Reads these records. A facet is there even where no record is, and so is the time in it.
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
        "maxTimeMS": SERVER_PATIENCE,
    }
}

/// The records that were read, in the order of these names.
pub(super) fn loaded(answer: &Document, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
    let (batch, _) = batch(answer)?;
    let facet = batch.first().and_then(Bson::as_document).ok_or_else(odd)?;
    let stamp = document::stamp(facet, "now")?;
    let mut value: Vec<_> = names.iter().map(|_| None).collect();
    for found in facet.get_array("records").map_err(|_| odd())? {
        let (name, stored) = document::stored(found.as_document().ok_or_else(odd)?)?;
        let places = names.iter().zip(&mut value);
        for (_, place) in places.filter(|(asked, _)| **asked == name) {
            *place = Some(stored.clone());
        }
    }
    Ok(Answer { value, stamp })
}

/// Looks for one record more than a page.
pub(super) fn find(collection: &str, query: &Query, search: &Search<'_>) -> Document {
    let kind = query.kind.as_str();
    let id = |name: &str| format!("{kind}:{name}");
    // After all names of a kind comes the character after the colon.
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
        "maxTimeMS": SERVER_PATIENCE,
    }
}

/// What a search found.
pub(super) struct Found {
    pub(super) records: Vec<(Name, Stored)>,
    /// When, if anything was found.
    pub(super) stamp: Option<Stamp>,
    /// The cursor that has the rest, where one answer could not hold everything.
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

/// The first batch of a cursor, and the cursor if there are more.
fn batch(answer: &Document) -> Result<(&Array, i64)> {
    let cursor = answer.get_document("cursor").map_err(|_| odd())?;
    let batch = cursor.get_array("firstBatch").map_err(|_| odd())?;
    Ok((batch, cursor.get_i64("id").unwrap_or_default()))
}

fn odd() -> Error {
    Error::Corrupt("MongoDB answered something else than was asked".into())
}
