//! Finds records by their keys, and work items by an index.

use leasehold_core::{Name, Time};
use serde_json::{Value, json};

use super::failure::Ambiguity;
use super::{BATCH, Etcd, keys};
use crate::store::{Answer, Availability, Page, Query, Store as _, Stored, held_until};
use crate::{Error, Result};

/// The maximum number of records in one answer, because they may have large bodies.
const MAX_RECORDS: usize = 200;

impl Etcd {
    /// Finds records in the order of names, which is that of keys.
    pub(super) async fn find_by_name(&self, query: &Query) -> Result<Answer<Page>> {
        let limit = query.limit.min(MAX_RECORDS);
        let folder = keys::record(query.kind, &query.prefix);
        let after = query.cursor.as_deref();
        // The first key after another one is that key with a zero byte appended.
        let next = after.map(|name| format!("{}\0", keys::record(query.kind, name)));
        let from = next.map_or_else(|| folder.clone(), |next| next.max(folder.clone()));
        let range = json!({
            "key": self.keys.encoded(&from),
            "range_end": self.keys.encoded_end(&folder),
            "limit": limit + 1,
        });
        let Answer {
            value: found,
            stamp,
        } = self.range(range).await?;
        let mut page = Page::default();
        for pair in found.iter().take(limit) {
            page.records.push(self.keys.stored(pair)?);
        }
        if found.len() > limit {
            let last = page.records.last();
            page.cursor = last.map(|(name, _)| name.as_str().to_owned());
        }
        Ok(Answer { value: page, stamp })
    }

    /// Finds items, oldest first. Walks the index and loads each record, because its state may have changed since.
    pub(super) async fn find_by_state(&self, query: &Query, state: &str) -> Result<Answer<Page>> {
        let folder = keys::index(query.kind, state);
        let mut from = match &query.cursor {
            None => folder.clone(),
            Some(cursor) => format!("{folder}{}\0", position(cursor)?),
        };
        let mut page = Page::default();
        loop {
            let range = json!({
                "key": self.keys.encoded(&from),
                "range_end": self.keys.encoded_end(&folder),
                "limit": BATCH,
                "keys_only": true,
            });
            let Answer {
                value: entries,
                stamp,
            } = self.range(range).await?;
            let keys: Vec<_> = entries
                .iter()
                .filter_map(|entry| self.keys.rest(entry))
                .collect();
            let items: Vec<_> = keys
                .iter()
                .filter_map(|entry| item(entry.strip_prefix(&folder)?, query))
                .collect();
            let names: Vec<_> = items.iter().map(|(name, _)| name.clone()).collect();
            let loaded = match names.is_empty() {
                true => Vec::new(),
                false => self.load(&names).await?.value,
            };
            for ((name, since), stored) in items.into_iter().zip(loaded) {
                let Some(stored) =
                    stored.filter(|stored| matches_query(stored, state, since, query))
                else {
                    continue;
                };
                if page.records.len() == query.limit {
                    page.cursor = page.records.last().map(cursor);
                    return Ok(Answer { value: page, stamp });
                }
                page.records.push((name, stored));
            }
            match keys.last().filter(|_| entries.len() == BATCH) {
                Some(last) => from = format!("{last}\0"),
                None => return Ok(Answer { value: page, stamp }),
            }
        }
    }

    async fn range(&self, range: Value) -> Result<Answer<Vec<Value>>> {
        let transaction = json!({ "success": [{ "request_range": range }] });
        let (mut answer, stamp) = self.run(transaction, Ambiguity::None).await?;
        let value = match answer["responses"][0]["response_range"]["kvs"].take() {
            Value::Array(pairs) => pairs,
            _ => Vec::new(),
        };
        Ok(Answer { value, stamp })
    }
}

/// Parses an entry of the index; `None` if the name does not match.
fn item(entry: &str, query: &Query) -> Option<(Name, Time)> {
    let (since, name) = entry.split_once('/')?;
    let since = Time::from_micros(since.parse().ok()?);
    let name = Name::new(query.kind, name).ok()?;
    name.as_str()
        .starts_with(&query.prefix)
        .then_some((name, since))
}

fn matches_query(stored: &Stored, state: &str, since: Time, query: &Query) -> bool {
    let current = stored.record.state.as_ref();
    current.is_some_and(|current| *current.label == *state && current.since == since)
        && match query.availability {
            None => true,
            Some(Availability::Free(at)) => held_until(&stored.record) < at,
            Some(Availability::Held(at)) => held_until(&stored.record) >= at,
        }
}

/// Returns the cursor after this item.
fn cursor((name, stored): &(Name, Stored)) -> String {
    let since = stored.record.state.as_ref().map(|state| state.since);
    format!("{}:{name}", since.unwrap_or_default().as_micros())
}

/// Returns the position of a cursor in the index.
fn position(cursor: &str) -> Result<String> {
    let parts = cursor.split_once(':');
    let parts = parts.and_then(|(since, name)| Some((since.parse::<u64>().ok()?, name)));
    parts
        .map(|(since, name)| format!("{since:020}/{name}"))
        .ok_or_else(|| {
            Error::invalid("invalid cursor: it is not from this store; start without a cursor")
        })
}
