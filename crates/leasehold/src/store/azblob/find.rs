//! Searches: a listing brings the metadata of the blobs, by which they are chosen; and all of a record that is small.

use std::collections::BTreeMap;
use std::fmt;

use azure_core::http::pager::PagerOptions;
use azure_storage_blob::models::{
    BlobContainerClientListBlobsOptions, ListBlobsIncludeItem, ListBlobsResponse,
};
use futures_util::TryStreamExt as _;
use leasehold_core::{Stamp, Time};
use tokio::time::Instant;

use super::client::{ask, later};
use super::content::Entry;
use super::failure::Doubt;
use super::load::told;
use super::{AzBlob, content, names};
use crate::store::{Answer, Availability, Page, Query, Stored};
use crate::{Error, Result};

/// So many records in one answer: each that is large is a request.
const MOST: usize = 200;
/// So many blobs in one listing, which is what Azure gives at most.
const LISTED: usize = 5_000;
/// So many where few may be wanted, or all: the next page may have to list them again.
const SIFTED: usize = 1_000;

impl AzBlob {
    pub(super) async fn search(&self, query: &Query) -> Result<Answer<Page>> {
        match &query.state {
            None => self.find_by_name(query).await,
            Some(state) => self.find_by_state(query, state).await,
        }
    }

    /// In the order of names, which is that of blobs.
    async fn find_by_name(&self, query: &Query) -> Result<Answer<Page>> {
        let deadline = self.deadline();
        let limit = query.limit.clamp(1, MOST);
        let mut place = match query.cursor.as_deref() {
            None => Some(Place::default()),
            Some(cursor) => Some(Place::parse(cursor)?),
        };
        let (mut found, mut stamp) = (Vec::new(), None);
        while let Some(from) = place.take() {
            // What is not sifted is listed as it fits, so that the next page begins where Azure can go on.
            let most = match query.availability {
                None => limit - found.len(),
                Some(_) => SIFTED,
            };
            let marker = from.marker.clone();
            let listed = self.list(query, marker, most, deadline).await?;
            stamp = later(stamp, Some(listed.stamp));
            let mut entries = listed
                .entries
                .into_iter()
                .filter(|entry| is_wanted(entry, query) && names::blob(&entry.name) > from.after);
            found.extend(entries.by_ref().take(limit - found.len()));
            place = match (entries.next(), found.last()) {
                (Some(_), Some(last)) => Some(Place {
                    after: names::blob(&last.name),
                    marker: from.marker,
                }),
                _ => listed.next.map(Place::at),
            };
            // A search that lists much and finds little ends early.
            if found.len() == limit || Instant::now() + self.options.timeout / 2 > deadline {
                break;
            }
        }
        let cursor = place.map(|place| place.to_string());
        self.page(found, cursor, deadline, stamp).await
    }

    /// Oldest first: all that there are have to be listed, and the first ones are kept.
    async fn find_by_state(&self, query: &Query, state: &str) -> Result<Answer<Page>> {
        let deadline = self.deadline();
        let limit = query.limit.clamp(1, MOST);
        let after = query.cursor.as_deref().map(parse_cursor).transpose()?;
        let mut first: BTreeMap<(Time, String), Entry> = BTreeMap::new();
        let (mut marker, mut stamp) = (None, None);
        loop {
            let listed = self.list(query, marker.take(), LISTED, deadline).await?;
            stamp = later(stamp, Some(listed.stamp));
            for entry in listed.entries {
                let since = entry.state.as_ref().filter(|it| &*it.label == state);
                let Some(since) = since.filter(|_| is_wanted(&entry, query)) else {
                    continue;
                };
                let place = (since.since, entry.name.as_str().to_owned());
                if after.as_ref().is_none_or(|after| place > *after) {
                    first.insert(place, entry);
                }
                // One more than a page, to see whether there is a next one.
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
                    "the container has too many blobs to list them all in time: ask with a prefix"
                        .into(),
                ));
            }
        }
        let is_more = first.len() > limit;
        let (places, entries): (Vec<_>, Vec<_>) = first.into_iter().take(limit).unzip();
        let last = places.last().filter(|_| is_more);
        let cursor = last.map(|(since, name)| format!("{}:{name}", since.as_micros()));
        self.page(entries, cursor, deadline, stamp).await
    }

    /// The records of these entries. What is too large for a listing is read, and left out if it has moved on.
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
            stamp: told(later(stamp, own))?,
        })
    }

    /// The next blobs that begin like the query's prefix.
    async fn list(
        &self,
        query: &Query,
        marker: Option<String>,
        most: usize,
        deadline: Instant,
    ) -> Result<Listed> {
        let is_first = marker.is_none();
        let prefix = names::prefix(query.kind, &query.prefix);
        let answered = ask(deadline, Doubt::None, |method| async move {
            let options = BlobContainerClientListBlobsOptions {
                include: Some(vec![ListBlobsIncludeItem::Metadata]),
                marker,
                maxresults: i32::try_from(most).ok(),
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
        let answered = answered.await?;
        if let (Err(refusal), false) = (&answered.value, is_first)
            && refusal.status == 400
        {
            return Err(wrong_cursor());
        }
        let (page, stamp) = answered.or_error(Doubt::None)?;
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

/// Where a page by name begins: in the listing that Azure goes on with at this marker, after this blob.
#[derive(Default)]
struct Place {
    marker: Option<String>,
    after: String,
}

impl Place {
    fn at(marker: String) -> Self {
        Self {
            marker: Some(marker),
            after: String::new(),
        }
    }

    fn parse(cursor: &str) -> Result<Self> {
        // Names of blobs have no spaces here.
        let (after, marker) = cursor.split_once(' ').ok_or_else(wrong_cursor)?;
        Ok(Self {
            marker: Some(marker.to_owned()).filter(|marker| !marker.is_empty()),
            after: after.to_owned(),
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marker = self.marker.as_deref().unwrap_or_default();
        write!(f, "{} {marker}", self.after)
    }
}

/// Whether a record has the prefix, and is not surely unwanted.
fn is_wanted(entry: &Entry, query: &Query) -> bool {
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
        .ok_or_else(wrong_cursor)
}

fn wrong_cursor() -> Error {
    Error::invalid("that cursor was not made by this store: start without one")
}
