//! Searches: an index says which names, the table says what they are.
//!
//! The indexes have nothing but keys, so that a renewal does not write to them. They lag behind the table a little; what
//! they say is looked up in the table, and skipped if it is so no more.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use leasehold_core::{Name, Stamp};
use tokio::time::Instant;

use super::client::PATIENCE;
use super::failure::{self, Doubt};
use super::item::{self, Item};
use super::load::KEYS;
use super::table::{BY_NAME, BY_STATE};
use super::witness::{Witness, later};
use super::{DynamoDb, told};
use crate::store::{Answer, Availability, Page, Query, Stored, held_until};
use crate::{Error, Result};

/// More than any place in an index has.
const LONGEST_CURSOR: usize = 1_000;

/// A name in an index, and its place there, which is also the cursor.
struct Entry {
    place: String,
    name: Name,
}

impl DynamoDb {
    pub(super) async fn search(&self, query: &Query) -> Result<Answer<Page>> {
        // A search that reads much and finds little ends early, with a cursor to go on from.
        let enough = Instant::now() + PATIENCE / 2;
        let mut after = query.cursor.clone().filter(|cursor| !cursor.is_empty());
        if after
            .as_ref()
            .is_some_and(|after| after.len() > LONGEST_CURSOR)
        {
            return Err(Error::invalid(
                "that cursor was not made by this store: start without one",
            ));
        }
        let mut found: Vec<(Entry, Stored)> = Vec::new();
        let mut stamp = None;
        loop {
            let missing = query.limit.saturating_add(1).saturating_sub(found.len());
            let (entries, at_end, own) = self.entries(query, after.as_deref(), missing).await?;
            stamp = later(stamp, own);
            if let Some(last) = entries.last() {
                after = Some(last.place.clone());
            }
            let records = self.look_up(query, entries, &mut stamp).await?;
            found.extend(records);
            if found.len() > query.limit {
                found.truncate(query.limit);
                after = found.last().map(|(entry, _)| entry.place.clone());
                break;
            }
            if at_end {
                after = None;
                break;
            }
            if Instant::now() >= enough {
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
            stamp: told(stamp)?,
        })
    }

    /// The next entries of an index, and whether they are its last.
    async fn entries(
        &self,
        query: &Query,
        after: Option<&str>,
        missing: usize,
    ) -> Result<(Vec<Entry>, bool, Option<Stamp>)> {
        let witness = Witness::default();
        let asked = Asked::of(query, after);
        let is_sifted = query.availability.is_some() || query.state.is_some();
        let limit = if is_sifted { KEYS } else { missing.min(KEYS) };
        let request = self.clients.reads.query();
        let answer = request
            .table_name(&self.options.table)
            .index_name(asked.index)
            .key_condition_expression(asked.condition)
            .set_expression_attribute_names(Some(asked.names))
            .set_expression_attribute_values(Some(asked.values))
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .customize()
            .interceptor(witness.clone())
            .send()
            .await
            .map_err(|error| failure::of(&error, &witness, Doubt::None))?;
        let mut at_end = answer.last_evaluated_key.is_none_or(|key| key.is_empty());
        let mut entries = Vec::new();
        for item in answer.items.unwrap_or_default() {
            let entry = asked_entry(query, item)?;
            if query.state.is_none() && !entry.name.as_str().starts_with(&query.prefix) {
                at_end = true;
                break;
            }
            entries.push(entry);
        }
        Ok((entries, at_end, witness.stamp()))
    }

    /// What the table has of these entries, as far as it is wanted.
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
            is_wanted(query, &entry, &stored).then_some((entry, stored))
        });
        Ok(stored.collect())
    }
}

/// A question to an index.
struct Asked {
    index: &'static str,
    condition: String,
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
}

impl Asked {
    fn of(query: &Query, after: Option<&str>) -> Self {
        let kind = query.kind.as_str();
        let (index, partition, value, place) = match &query.state {
            Some(state) => (
                BY_STATE,
                item::QUEUE,
                item::queue(kind, state),
                item::QUEUED,
            ),
            None => (BY_NAME, item::KIND, kind.to_owned(), item::NAME),
        };
        let mut asked = Self {
            index,
            condition: "#partition = :partition".to_owned(),
            names: HashMap::from([("#partition".to_owned(), partition.to_owned())]),
            values: HashMap::from([(":partition".to_owned(), item::text(value))]),
        };
        // One condition on the place is all that an index takes: where the prefix ends is seen when it is reached.
        let prefix = Some(&*query.prefix).filter(|it| query.state.is_none() && !it.is_empty());
        match (after, prefix) {
            (Some(after), prefix) if prefix.is_none_or(|prefix| after >= prefix) => {
                asked.add("#place > :place", place, after);
            }
            (_, Some(prefix)) => asked.add("#place >= :place", place, prefix),
            _ => {}
        }
        asked
    }

    fn add(&mut self, condition: &str, key: &str, value: &str) {
        self.condition = format!("{} AND {condition}", self.condition);
        self.names.insert("#place".to_owned(), key.to_owned());
        self.values.insert(":place".to_owned(), item::text(value));
    }
}

fn asked_entry(query: &Query, mut item: Item) -> Result<Entry> {
    let key = match &query.state {
        Some(_) => item::QUEUED,
        None => item::NAME,
    };
    let Some(AttributeValue::S(place)) = item.remove(key) else {
        return Err(Error::Corrupt(format!(
            "an index of the table has no `{key}`"
        )));
    };
    let name = match &query.state {
        Some(_) => place.split_once(':').map_or("", |(_, name)| name),
        None => &place,
    };
    let name = Name::new(query.kind, name).map_err(|problem| {
        Error::Corrupt(format!("an index of the table has no name: {problem}"))
    })?;
    Ok(Entry { place, name })
}

/// Whether a record is still where the index says, and not surely unwanted.
fn is_wanted(query: &Query, entry: &Entry, stored: &Stored) -> bool {
    let is_there = query.state.as_ref().is_none_or(|wanted| {
        stored.record.state.as_ref().is_some_and(|state| {
            state.label == *wanted && item::queued(state.since, &entry.name) == entry.place
        })
    });
    is_there
        && match query.availability {
            None => true,
            Some(Availability::Free(at)) => held_until(&stored.record) < at,
            Some(Availability::Held(at)) => held_until(&stored.record) >= at,
        }
}
