//! Finds names in an index and loads their records from the table.
//!
//! The indexes contain only keys, so that a renewal does not write to them. They lag slightly behind the table: each
//! entry is checked against its record, and skipped if it no longer matches.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use leasehold_core::{Name, Stamp};
use tokio::time::Instant;

use super::client::CALL_TIMEOUT;
use super::failure::{self, Ambiguity};
use super::item::{self, Item};
use super::load::MAX_KEYS;
use super::request_trace::{RequestTrace, later};
use super::table::{BY_NAME, BY_STATE};
use super::{DynamoDb, require_stamp};
use crate::store::{Answer, Availability, Page, Query, Stored, held_until};
use crate::{Error, Result};

/// Longer than any position in an index.
const MAX_CURSOR_LENGTH: usize = 1_000;

/// An entry of an index. Its position is also the cursor.
struct Entry {
    position: String,
    name: Name,
}

impl DynamoDb {
    pub(super) async fn search(&self, query: &Query) -> Result<Answer<Page>> {
        // A search that reads much and finds little ends early, with a cursor to continue from.
        let soft_deadline = Instant::now() + CALL_TIMEOUT / 2;
        let mut after = query.cursor.clone().filter(|cursor| !cursor.is_empty());
        if after
            .as_ref()
            .is_some_and(|after| after.len() > MAX_CURSOR_LENGTH)
        {
            return Err(Error::invalid(
                "invalid cursor: it is not from this store; start without a cursor",
            ));
        }
        let mut found: Vec<(Entry, Stored)> = Vec::new();
        let mut stamp = None;
        loop {
            let wanted = query.limit.saturating_add(1).saturating_sub(found.len());
            let (entries, at_end, own) = self.entries(query, after.as_deref(), wanted).await?;
            stamp = later(stamp, own);
            if let Some(last) = entries.last() {
                after = Some(last.position.clone());
            }
            let records = self.look_up(query, entries, &mut stamp).await?;
            found.extend(records);
            if found.len() > query.limit {
                found.truncate(query.limit);
                after = found.last().map(|(entry, _)| entry.position.clone());
                break;
            }
            if at_end {
                after = None;
                break;
            }
            if Instant::now() >= soft_deadline {
                break;
            }
        }
        let records = found.into_iter().map(|(entry, it)| (entry.name, it));
        let page = Page {
            records: records.collect(),
            cursor: after,
        };
        Ok(Answer {
            value: page,
            stamp: require_stamp(stamp)?,
        })
    }

    /// Returns the next entries of an index, and whether they are its last.
    async fn entries(
        &self,
        query: &Query,
        after: Option<&str>,
        wanted: usize,
    ) -> Result<(Vec<Entry>, bool, Option<Stamp>)> {
        let trace = RequestTrace::default();
        let index_query = IndexQuery::of(query, after);
        let is_filtered = query.availability.is_some() || query.state.is_some();
        let limit = if is_filtered {
            MAX_KEYS
        } else {
            wanted.min(MAX_KEYS)
        };
        let request = self.clients.reads.query();
        let answer = request
            .table_name(&self.options.table)
            .index_name(index_query.index)
            .key_condition_expression(index_query.condition)
            .set_expression_attribute_names(Some(index_query.names))
            .set_expression_attribute_values(Some(index_query.values))
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .customize()
            .interceptor(trace.clone())
            .send()
            .await
            .map_err(|error| failure::of(&error, &trace, Ambiguity::None))?;
        let mut at_end = answer.last_evaluated_key.is_none_or(|key| key.is_empty());
        let mut entries = Vec::new();
        for item in answer.items.unwrap_or_default() {
            let entry = parse_entry(query, item)?;
            if query.state.is_none() && !entry.name.as_str().starts_with(&query.prefix) {
                at_end = true;
                break;
            }
            entries.push(entry);
        }
        Ok((entries, at_end, trace.stamp()))
    }

    /// Loads the records of these entries that match the query.
    async fn look_up(
        &self,
        query: &Query,
        mut entries: Vec<Entry>,
        stamp: &mut Option<Stamp>,
    ) -> Result<Vec<(Entry, Stored)>> {
        entries.retain(|entry| entry.name.as_str().starts_with(&query.prefix));
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<_> = entries.iter().map(|entry| entry.name.clone()).collect();
        let mut records = self.records(&names).await?;
        *stamp = later(*stamp, Some(records.stamp));
        let stored = entries.into_iter().filter_map(|entry| {
            let stored = records.value.remove(&entry.name)?;
            matches_query(query, &entry, &stored).then_some((entry, stored))
        });
        Ok(stored.collect())
    }
}

/// A query of an index.
struct IndexQuery {
    index: &'static str,
    condition: String,
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
}

impl IndexQuery {
    fn of(query: &Query, after: Option<&str>) -> Self {
        let kind = query.kind.as_str();
        let (index, partition, value, position) = match &query.state {
            Some(state) => (
                BY_STATE,
                item::QUEUE,
                item::queue(kind, state),
                item::QUEUED,
            ),
            None => (BY_NAME, item::KIND, kind.to_owned(), item::NAME),
        };
        let mut index_query = Self {
            index,
            condition: "#partition = :partition".to_owned(),
            names: HashMap::from([("#partition".to_owned(), partition.to_owned())]),
            values: HashMap::from([(":partition".to_owned(), item::text(value))]),
        };
        // A key condition allows one comparison of the sort key, so the end of the prefix is detected when it is
        // reached.
        let prefix = Some(&*query.prefix).filter(|it| query.state.is_none() && !it.is_empty());
        match (after, prefix) {
            (Some(after), prefix) if prefix.is_none_or(|prefix| after >= prefix) => {
                index_query.add("#position > :position", position, after);
            }
            (_, Some(prefix)) => index_query.add("#position >= :position", position, prefix),
            _ => {}
        }
        index_query
    }

    fn add(&mut self, condition: &str, key: &str, value: &str) {
        self.condition = format!("{} AND {condition}", self.condition);
        self.names.insert("#position".to_owned(), key.to_owned());
        self.values
            .insert(":position".to_owned(), item::text(value));
    }
}

fn parse_entry(query: &Query, mut item: Item) -> Result<Entry> {
    let key = match &query.state {
        Some(_) => item::QUEUED,
        None => item::NAME,
    };
    let Some(AttributeValue::S(position)) = item.remove(key) else {
        return Err(Error::Corrupt(format!(
            "an entry of an index of the table has no `{key}`"
        )));
    };
    let name = match &query.state {
        Some(_) => position.split_once(':').map_or("", |(_, name)| name),
        None => &position,
    };
    let name = Name::new(query.kind, name).map_err(|problem| {
        Error::Corrupt(format!(
            "an entry of an index of the table has an invalid name: {problem}"
        ))
    })?;
    Ok(Entry { position, name })
}

/// Returns whether a record is still at its position in the index, and may match the availability.
fn matches_query(query: &Query, entry: &Entry, stored: &Stored) -> bool {
    let is_current = query.state.as_ref().is_none_or(|expected| {
        stored.record.state.as_ref().is_some_and(|state| {
            state.label == *expected && item::queued(state.since, &entry.name) == entry.position
        })
    });
    is_current
        && match query.availability {
            None => true,
            Some(Availability::Free(at)) => held_until(&stored.record) < at,
            Some(Availability::Held(at)) => held_until(&stored.record) >= at,
        }
}
