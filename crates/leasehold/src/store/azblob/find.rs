//! Finds records by listing blobs: the metadata contains what searches need, and the whole record if it is small.

use std::collections::BTreeMap;
use std::fmt;

use azure_core::http::pager::PagerOptions;
use azure_storage_blob::models::{
    BlobContainerClientListBlobsOptions, ListBlobsIncludeItem, ListBlobsResponse,
};
use futures_util::TryStreamExt as _;
use leasehold_core::{Stamp, Time};
use tokio::time::Instant;

use super::client::{later, send};
use super::content::Entry;
use super::failure::Ambiguity;
use super::load::require_stamp;
use super::{AzBlob, content, names};
use crate::store::{Answer, Availability, Page, Query, Stored};
use crate::{Error, Result};

/// The maximum number of records in one answer, because each large one is a separate request.
const MAX_RECORDS: usize = 200;
/// The number of blobs in one listing, Azure's maximum.
const MAX_LISTED: usize = 5_000;
/// The number of blobs in one listing for a filtered search: the next page may have to list them again.
const MAX_FILTERED: usize = 1_000;

impl AzBlob {
    pub(super) async fn search(&self, query: &Query) -> Result<Answer<Page>> {
        match &query.state {
            None => self.find_by_name(query).await,
            Some(state) => self.find_by_state(query, state).await,
        }
    }

    /// Finds records in the order of names, which is that of blobs.
    async fn find_by_name(&self, query: &Query) -> Result<Answer<Page>> {
        let deadline = self.deadline();
        let limit = query.limit.clamp(1, MAX_RECORDS);
        let mut position = match query.cursor.as_deref() {
            None => Some(Position::default()),
            Some(cursor) => Some(Position::parse(cursor)?),
        };
        let (mut found, mut stamp) = (Vec::new(), None);
        while let Some(from) = position.take() {
            // An unfiltered search lists what fits, so that the next page starts where Azure can continue.
            let count = match query.availability {
                None => limit - found.len(),
                Some(_) => MAX_FILTERED,
            };
            let marker = from.marker.clone();
            let listed = self.list(query, marker, count, deadline).await?;
            stamp = later(stamp, Some(listed.stamp));
            let mut entries = listed.entries.into_iter().filter(|entry| {
                matches_query(entry, query) && names::blob(&entry.name) > from.after
            });
            found.extend(entries.by_ref().take(limit - found.len()));
            position = match (entries.next(), found.last()) {
                (Some(_), Some(last)) => Some(Position {
                    after: names::blob(&last.name),
                    marker: from.marker,
                }),
                _ => listed.next.map(Position::at),
            };
            // A search that lists much and finds little ends early.
            if found.len() == limit || Instant::now() + self.options.timeout / 2 > deadline {
                break;
            }
        }
        let cursor = position.map(|position| position.to_string());
        self.page(found, cursor, deadline, stamp).await
    }

    /// Finds items, oldest first: lists all blobs and keeps the first matches.
    async fn find_by_state(&self, query: &Query, state: &str) -> Result<Answer<Page>> {
        let deadline = self.deadline();
        let limit = query.limit.clamp(1, MAX_RECORDS);
        let after = query.cursor.as_deref().map(parse_cursor).transpose()?;
        let mut first: BTreeMap<(Time, String), Entry> = BTreeMap::new();
        let (mut marker, mut stamp) = (None, None);
        loop {
            let listed = self
                .list(query, marker.take(), MAX_LISTED, deadline)
                .await?;
            stamp = later(stamp, Some(listed.stamp));
            for entry in listed.entries {
                let since = entry.state.as_ref().filter(|it| &*it.label == state);
                let Some(since) = since.filter(|_| matches_query(&entry, query)) else {
                    continue;
                };
                let position = (since.since, entry.name.as_str().to_owned());
                if after.as_ref().is_none_or(|after| position > *after) {
                    first.insert(position, entry);
                }
                // One more than a page, to detect a next one.
                if first.len() > limit + 1 {
                    first.pop_last();
                }
            }
            marker = listed.next;
            if marker.is_none() {
                break;
            }
            if Instant::now() >= deadline {
                return Err(Error::Unavailable(
                    "the container has too many blobs to list in time: search with a prefix".into(),
                ));
            }
        }
        let is_more = first.len() > limit;
        let (places, entries): (Vec<_>, Vec<_>) = first.into_iter().take(limit).unzip();
        let last = places.last().filter(|_| is_more);
        let cursor = last.map(|(since, name)| format!("{}:{name}", since.as_micros()));
        self.page(entries, cursor, deadline, stamp).await
    }

    /// Returns the records of these entries. Records that are too large for a listing are read, and omitted if their
    /// state has changed.
    async fn page(
        &self,
        entries: Vec<Entry>,
        cursor: Option<String>,
        deadline: Instant,
        stamp: Option<Stamp>,
    ) -> Result<Answer<Page>> {
        let large = entries.iter().filter(|entry| entry.stored.is_none());
        let large: Vec<_> = large.map(|entry| entry.name.clone()).collect();
        let (read, own) = self.records(large, deadline).await?;
        let mut read = read.into_iter();
        let records = entries.into_iter().filter_map(|entry| {
            let is_same = |stored: &Stored| stored.record.state == entry.state;
            let stored = match entry.stored {
                Some(stored) => stored,
                None => read.next()?.filter(is_same)?,
            };
            Some((entry.name, stored))
        });
        let page = Page {
            records: records.collect(),
            cursor,
        };
        Ok(Answer {
            value: page,
            stamp: require_stamp(later(stamp, own))?,
        })
    }

    /// Lists the next blobs with the query's prefix.
    async fn list(
        &self,
        query: &Query,
        marker: Option<String>,
        count: usize,
        deadline: Instant,
    ) -> Result<Listed> {
        let is_first = marker.is_none();
        let prefix = names::prefix(query.kind, &query.prefix);
        let answer = send(deadline, Ambiguity::None, |method| async move {
            let options = BlobContainerClientListBlobsOptions {
                include: Some(vec![ListBlobsIncludeItem::Metadata]),
                marker,
                maxresults: i32::try_from(count).ok(),
                method_options: PagerOptions {
                    context: method.context,
                    ..PagerOptions::default()
                },
                prefix: Some(prefix),
                ..BlobContainerClientListBlobsOptions::default()
            };
            let mut pages = self
                .clients
                .container
                .list_blobs(Some(options))?
                .into_pages();
            let page = pages.try_next().await?;
            page.map_or_else(
                || Ok(ListBlobsResponse::default()),
                |page| page.into_model(),
            )
        });
        let answer = answer.await?;
        if let (Err(refusal), false) = (&answer.value, is_first)
            && refusal.status == 400
        {
            return Err(foreign_cursor());
        }
        let (page, stamp) = answer.or_error(Ambiguity::None)?;
        let entries = page.blob_items.into_iter().filter_map(|item| {
            let etag = item.properties?.etag.as_ref().map(content::quoted);
            let entry = Entry::read(query.kind, &item.metadata?.values?, etag)?;
            (item.name? == names::blob(&entry.name)).then_some(entry)
        });
        Ok(Listed {
            entries: entries.collect(),
            next: page.next_marker.filter(|next| !next.is_empty()),
            stamp,
        })
    }
}

/// A part of a listing.
struct Listed {
    entries: Vec<Entry>,
    next: Option<String>,
    stamp: Stamp,
}

/// The start of a page by name: after this blob, in the listing that Azure continues at this marker.
#[derive(Default)]
struct Position {
    marker: Option<String>,
    after: String,
}

impl Position {
    fn at(marker: String) -> Self {
        Self {
            marker: Some(marker),
            after: String::new(),
        }
    }

    fn parse(cursor: &str) -> Result<Self> {
        // Encoded blob names contain no spaces.
        let (after, marker) = cursor.split_once(' ').ok_or_else(foreign_cursor)?;
        Ok(Self {
            marker: Some(marker.to_owned()).filter(|marker| !marker.is_empty()),
            after: after.to_owned(),
        })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marker = self.marker.as_deref().unwrap_or_default();
        write!(f, "{} {marker}", self.after)
    }
}

/// Returns whether a record has the prefix, and may match the availability.
fn matches_query(entry: &Entry, query: &Query) -> bool {
    entry.name.as_str().starts_with(&query.prefix)
        && match query.availability {
            None => true,
            Some(Availability::Free(at)) => entry.held_until < at,
            Some(Availability::Held(at)) => entry.held_until >= at,
        }
}

fn parse_cursor(cursor: &str) -> Result<(Time, String)> {
    let parts = cursor.split_once(':');
    let parts = parts.and_then(|(since, name)| Some((since.parse().ok()?, name.to_owned())));
    parts
        .map(|(since, name)| (Time::from_micros(since), name))
        .ok_or_else(foreign_cursor)
}

fn foreign_cursor() -> Error {
    Error::invalid("invalid cursor: it is not from this store; start without a cursor")
}
