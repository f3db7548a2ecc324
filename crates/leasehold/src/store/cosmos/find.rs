//! Finds records by querying every physical partition for its next items in order, and merging the answers.
//!
//! The service does not merge sorted answers of partitions: that is left to clients.

use std::sync::PoisonError;

use futures_util::future::try_join_all;
use hyper::Method;
use hyper::body::Bytes;
use leasehold_core::{Name, Stamp};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::client::{ApiRequest, CALL_TIMEOUT, Reply, Resource};
use super::failure::{self, Ambiguity};
use super::load::LATEST;
use super::{Cosmos, item, later};
use crate::store::{Answer, Availability, Page, Query, Stored, held_until};
use crate::{Error, Result};

/// The maximum number of items to request from one partition at once.
const MAX_SLICE: usize = 100;
/// The status if a partition was split or merged.
const PARTITION_GONE: u16 = 410;

const BY_NAME: &str = "SELECT * FROM c WHERE c.kind = @of AND c.listed > @after AND STARTSWITH(c.listed, @prefix) \
                       ORDER BY c.listed";
const BY_STATE: &str = "SELECT * FROM c WHERE c.queue = @of AND c.queued > @after AND STARTSWITH(c.listed, @prefix) \
                        ORDER BY c.queued";

/// A record and its position in the order, which is also the cursor.
struct Entry {
    position: String,
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
        // A search that reads much and finds little ends early, with a cursor to continue from.
        let soft_deadline = Instant::now() + CALL_TIMEOUT / 2;
        let mut after = query.cursor.clone();
        let (mut found, mut stamp) = (Vec::new(), None);
        loop {
            let wanted = query.limit.saturating_add(1).saturating_sub(found.len());
            let slice = self.next(query, after.as_deref(), wanted).await?;
            stamp = later(stamp, slice.stamp);
            if let Some(last) = slice.entries.last() {
                after = Some(last.position.clone());
            }
            found.extend(
                slice
                    .entries
                    .into_iter()
                    .filter(|it| matches_query(query, it)),
            );
            if found.len() > query.limit {
                found.truncate(query.limit);
                after = found.last().map(|entry| entry.position.clone());
                break;
            }
            if slice.at_end {
                after = None;
                break;
            }
            if Instant::now() >= soft_deadline {
                break;
            }
        }
        let records = found.into_iter().map(|entry| (entry.name, entry.stored));
        Ok(Answer {
            value: Page {
                records: records.collect(),
                cursor: after,
            },
            stamp: stamp.ok_or_else(failure::unexpected_answer)?,
        })
    }

    /// Returns the next entries of all partitions, merged.
    async fn next(&self, query: &Query, after: Option<&str>, wanted: usize) -> Result<Slice> {
        let limit = match query.availability {
            Some(_) => MAX_SLICE,
            None => wanted.clamp(1, MAX_SLICE),
        };
        let deadline = Instant::now() + CALL_TIMEOUT;
        let body = query_body(query, after.unwrap_or_default());
        let slices = match self.slices(query, &body, limit, deadline).await? {
            Some(slices) => slices,
            None => {
                self.forget_partitions();
                let slices = self.slices(query, &body, limit, deadline).await?;
                slices.ok_or_else(|| {
                    Error::Unavailable("Cosmos DB is splitting its partitions: try again".into())
                })?
            }
        };
        Ok(merge(slices))
    }

    /// Returns the next entries of each partition; `None` if the partitions have changed.
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

    /// Returns the next entries of one partition; `None` if it no longer exists.
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
        // An answer may be short or even empty without being the last.
        while !slice.at_end && slice.entries.len() < limit {
            let mut request = self.query(partition, body.clone(), limit);
            request
                .headers
                .extend(continuation.map(|token| ("x-ms-continuation", token)));
            let reply = self.client.send(&request, deadline).await?;
            match reply.status {
                200 => {}
                PARTITION_GONE => return Ok(None),
                _ => return Err(failure::refused(&reply, Ambiguity::None)),
            }
            slice.entries.extend(entries(query, &reply)?);
            slice.stamp = later(slice.stamp, Some(reply.stamp));
            slice.at_end = reply.continuation.is_none();
            continuation = reply.continuation;
        }
        Ok(Some(slice))
    }

    fn query(&self, partition: &str, body: Bytes, limit: usize) -> ApiRequest {
        let (latest, strategy) = LATEST;
        ApiRequest {
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
            ambiguity: Ambiguity::None,
        }
    }

    /// Returns the physical partitions, which change only when the container has grown considerably.
    async fn partitions(&self, deadline: Instant) -> Result<Vec<String>> {
        let known = self.known_partitions().clone();
        if !known.is_empty() {
            return Ok(known);
        }
        let mut request = ApiRequest {
            method: Method::GET,
            resource: Resource {
                of_type: "pkranges",
                link: self.link.clone(),
                is_feed: true,
            },
            headers: Vec::new(),
            body: Bytes::new(),
            ambiguity: Ambiguity::None,
        };
        let mut partitions = Vec::new();
        loop {
            let reply = self.client.send(&request, deadline).await?;
            if reply.status != 200 {
                return Err(failure::refused(&reply, Ambiguity::None));
            }
            let ranges = reply.json()?["PartitionKeyRanges"].take();
            let ranges: Vec<Range> =
                serde_json::from_value(ranges).map_err(|_| failure::unexpected_answer())?;
            partitions.extend(ranges.into_iter().map(|range| range.id));
            match reply.continuation {
                Some(token) => request.headers = vec![("x-ms-continuation", token)],
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

/// Returns the body of a query.
fn query_body(query: &Query, after: &str) -> Bytes {
    let (text, of) = match &query.state {
        Some(state) => (BY_STATE, item::queue(query.kind, state)),
        None => (BY_NAME, query.kind.as_str().to_owned()),
    };
    let query_body = json!({
        "query": text,
        "parameters": [
            { "name": "@of", "value": of },
            { "name": "@after", "value": after },
            { "name": "@prefix", "value": item::listed(&query.prefix) },
        ],
    });
    query_body.to_string().into()
}

/// Reads the entries of an answer.
fn entries(query: &Query, reply: &Reply) -> Result<Vec<Entry>> {
    let records = item::all_found(&reply.body)?.into_iter();
    let entries = records.map(|(name, stored)| {
        let position = match (&query.state, &stored.record.state) {
            (None, _) => item::listed(name.as_str()),
            (Some(_), Some(state)) => item::queued(state.since, &name),
            (Some(_), None) => return Err(failure::unexpected_answer()),
        };
        Ok(Entry {
            position,
            name,
            stored,
        })
    });
    entries.collect()
}

/// Merges entries up to the point that all unfinished partitions have reached.
fn merge(slices: Vec<Slice>) -> Slice {
    let unfinished = slices.iter().filter(|slice| !slice.at_end);
    let limit = unfinished
        .filter_map(|slice| slice.entries.last())
        .map(|entry| entry.position.clone())
        .min();
    let stamp = slices
        .iter()
        .fold(None, |stamp, slice| later(stamp, slice.stamp));
    let mut entries: Vec<_> = slices
        .into_iter()
        .flat_map(|slice| slice.entries)
        .filter(|entry| limit.as_ref().is_none_or(|limit| entry.position <= *limit))
        .collect();
    entries.sort_by(|one, other| one.position.cmp(&other.position));
    Slice {
        entries,
        at_end: limit.is_none(),
        stamp,
    }
}

/// Returns whether a record may match the availability.
fn matches_query(query: &Query, entry: &Entry) -> bool {
    match query.availability {
        None => true,
        Some(Availability::Free(at)) => held_until(&entry.stored.record) < at,
        Some(Availability::Held(at)) => held_until(&entry.stored.record) >= at,
    }
}
