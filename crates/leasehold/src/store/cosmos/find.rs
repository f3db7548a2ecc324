//! Searches: every physical partition is asked for its next items in order, and the answers are merged.
//!
//! No front end of Cosmos DB merges sorted answers: that is left to its clients.

use std::sync::PoisonError;

use futures_util::future::try_join_all;
use hyper::Method;
use hyper::body::Bytes;
use leasehold_core::{Name, Stamp};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::client::{Ask, PATIENCE, Reply, Resource};
use super::failure::{self, Doubt};
use super::load::LATEST;
use super::{Cosmos, item, later};
use crate::store::{Answer, Availability, Page, Query, Stored, held_until};
use crate::{Error, Result};

/// The most items that one partition is asked for at once.
const SLICE: usize = 100;
/// A partition was split or merged: there are others now.
const PARTITION_GONE: u16 = 410;

const BY_NAME: &str = "SELECT * FROM c WHERE c.kind = @of AND c.listed > @after AND STARTSWITH(c.listed, @prefix) \
                       ORDER BY c.listed";
const BY_STATE: &str = "SELECT * FROM c WHERE c.queue = @of AND c.queued > @after AND STARTSWITH(c.listed, @prefix) \
                        ORDER BY c.queued";

/// A record, and its place in the order, which is also the cursor.
struct Entry {
    place: String,
    name: Name,
    stored: Stored,
}

/// The next entries in order, and whether they are the last.
struct Slice {
    entries: Vec<Entry>,
    at_end: bool,
    stamp: Option<Stamp>,
}

impl Cosmos {
    pub(super) async fn search(&self, query: &Query) -> Result<Answer<Page>> {
        // A search that reads much and finds little ends early, with a cursor to go on from.
        let enough = Instant::now() + PATIENCE / 2;
        let mut after = query.cursor.clone();
        let (mut found, mut stamp) = (Vec::new(), None);
        loop {
            let missing = query.limit.saturating_add(1).saturating_sub(found.len());
            let slice = self.next(query, after.as_deref(), missing).await?;
            stamp = later(stamp, slice.stamp);
            if let Some(last) = slice.entries.last() {
                after = Some(last.place.clone());
            }
            found.extend(slice.entries.into_iter().filter(|it| is_wanted(query, it)));
            if found.len() > query.limit {
                found.truncate(query.limit);
                after = found.last().map(|entry| entry.place.clone());
                break;
            }
            if slice.at_end {
                after = None;
                break;
            }
            if Instant::now() >= enough {
                break;
            }
        }
        let records = found.into_iter().map(|entry| (entry.name, entry.stored));
        Ok(Answer {
            value: Page {
                records: records.collect(),
                cursor: after,
            },
            stamp: stamp.ok_or_else(failure::odd)?,
        })
    }

    /// The next entries of all partitions together.
    async fn next(&self, query: &Query, after: Option<&str>, missing: usize) -> Result<Slice> {
        let limit = match query.availability {
            Some(_) => SLICE,
            None => missing.clamp(1, SLICE),
        };
        let deadline = Instant::now() + PATIENCE;
        let body = question(query, after.unwrap_or_default());
        let slices = match self.slices(query, &body, limit, deadline).await? {
            Some(slices) => slices,
            None => {
                self.forget_partitions();
                let again = self.slices(query, &body, limit, deadline).await?;
                again.ok_or_else(|| {
                    Error::Unavailable("Cosmos DB is moving its partitions".into())
                })?
            }
        };
        Ok(merged(slices))
    }

    /// The next entries of each partition; `None` if the partitions are others by now.
    async fn slices(
        &self,
        query: &Query,
        body: &Bytes,
        limit: usize,
        deadline: Instant,
    ) -> Result<Option<Vec<Slice>>> {
        let partitions = self.partitions(deadline).await?;
        let slices = partitions
            .iter()
            .map(|partition| self.slice(query, partition, body, limit, deadline));
        Ok(try_join_all(slices).await?.into_iter().collect())
    }

    /// The next entries of one partition; `None` if it is no more.
    async fn slice(
        &self,
        query: &Query,
        partition: &str,
        body: &Bytes,
        limit: usize,
        deadline: Instant,
    ) -> Result<Option<Slice>> {
        let mut slice = Slice {
            entries: Vec::new(),
            at_end: false,
            stamp: None,
        };
        let mut continuation = None;
        // An answer may be short, or even empty, and yet not the last.
        while !slice.at_end && slice.entries.len() < limit {
            let mut ask = self.query(partition, body.clone(), limit);
            ask.headers
                .extend(continuation.map(|token| ("x-ms-continuation", token)));
            let reply = self.client.ask(&ask, deadline).await?;
            match reply.status {
                200 => {}
                PARTITION_GONE => return Ok(None),
                _ => return Err(failure::refused(&reply, Doubt::None)),
            }
            slice.entries.extend(entries(query, &reply)?);
            slice.stamp = later(slice.stamp, Some(reply.stamp));
            slice.at_end = reply.continuation.is_none();
            continuation = reply.continuation;
        }
        Ok(Some(slice))
    }

    fn query(&self, partition: &str, body: Bytes, limit: usize) -> Ask {
        let (latest, strategy) = LATEST;
        Ask {
            method: Method::POST,
            resource: self.items(),
            headers: vec![
                ("content-type", "application/query+json".into()),
                ("x-ms-documentdb-isquery", "True".into()),
                ("x-ms-documentdb-query-enablecrosspartition", "True".into()),
                ("x-ms-documentdb-partitionkeyrangeid", partition.into()),
                ("x-ms-max-item-count", limit.to_string()),
                (latest, strategy.into()),
            ],
            body,
            doubt: Doubt::None,
        }
    }

    /// The physical partitions, which change only when the container has grown by much.
    async fn partitions(&self, deadline: Instant) -> Result<Vec<String>> {
        let known = self.known_partitions().clone();
        if !known.is_empty() {
            return Ok(known);
        }
        let mut ask = Ask {
            method: Method::GET,
            resource: Resource {
                of_type: "pkranges",
                link: self.link.clone(),
                is_feed: true,
            },
            headers: Vec::new(),
            body: Bytes::new(),
            doubt: Doubt::None,
        };
        let mut partitions = Vec::new();
        loop {
            let reply = self.client.ask(&ask, deadline).await?;
            if reply.status != 200 {
                return Err(failure::refused(&reply, Doubt::None));
            }
            let ranges = reply.json()?["PartitionKeyRanges"].take();
            let ranges: Vec<Range> = serde_json::from_value(ranges).map_err(|_| failure::odd())?;
            partitions.extend(ranges.into_iter().map(|range| range.id));
            match reply.continuation {
                Some(token) => ask.headers = vec![("x-ms-continuation", token)],
                None => break,
            }
        }
        self.known_partitions().clone_from(&partitions);
        Ok(partitions)
    }

    fn forget_partitions(&self) {
        self.known_partitions().clear();
    }

    fn known_partitions(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.partitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Deserialize)]
struct Range {
    id: String,
}

/// A query and its parameters.
fn question(query: &Query, after: &str) -> Bytes {
    let (text, of) = match &query.state {
        Some(state) => (BY_STATE, item::queue(query.kind, state)),
        None => (BY_NAME, query.kind.as_str().to_owned()),
    };
    let question = json!({
        "query": text,
        "parameters": [
            { "name": "@of", "value": of },
            { "name": "@after", "value": after },
            { "name": "@prefix", "value": item::listed(&query.prefix) },
        ],
    });
    question.to_string().into()
}

/// The entries that an answer has.
fn entries(query: &Query, reply: &Reply) -> Result<Vec<Entry>> {
    let records = item::all_found(&reply.body)?.into_iter();
    let entries = records.map(|(name, stored)| {
        let place = match (&query.state, &stored.record.state) {
            (None, _) => item::listed(name.as_str()),
            (Some(_), Some(state)) => item::queued(state.since, &name),
            (Some(_), None) => return Err(failure::odd()),
        };
        Ok(Entry {
            place,
            name,
            stored,
        })
    });
    entries.collect()
}

/// What is known of the order: up to where the first partition has told that is not at its end.
fn merged(slices: Vec<Slice>) -> Slice {
    let unfinished = slices.iter().filter(|slice| !slice.at_end);
    let reach = unfinished
        .filter_map(|slice| slice.entries.last())
        .map(|entry| entry.place.clone())
        .min();
    let stamp = slices
        .iter()
        .fold(None, |stamp, slice| later(stamp, slice.stamp));
    let mut entries: Vec<_> = slices
        .into_iter()
        .flat_map(|slice| slice.entries)
        .filter(|entry| reach.as_ref().is_none_or(|reach| entry.place <= *reach))
        .collect();
    entries.sort_by(|one, other| one.place.cmp(&other.place));
    Slice {
        entries,
        at_end: reach.is_none(),
        stamp,
    }
}

/// Whether a record is not surely unwanted.
fn is_wanted(query: &Query, entry: &Entry) -> bool {
    match query.availability {
        None => true,
        Some(Availability::Free(at)) => held_until(&entry.stored.record) < at,
        Some(Availability::Held(at)) => held_until(&entry.stored.record) >= at,
    }
}
