//! Searches the store. Records are loaded with their bodies, so it is bounded how many all searches load at once.

use std::time::Duration;

use leasehold_core::BootTime;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::{Engine, bounded};
use crate::store::{Answer, Page, Query};
use crate::{Error, Result};

/// How many records all searches under way may load: with the longest bodies 12 MiB, and as much again while they are read.
pub(super) const SEARCHED_RECORDS: usize = 200;
/// How many records a search asks the store for at once, if it may go on after that.
pub const SEARCH_PAGE: usize = 100;

/// A page of records, and the call that showed it.
pub(super) struct Searched {
    pub(super) page: Page,
    pub(super) number: u64,
    pub(super) received: BootTime,
    /// Lets other searches begin when it is dropped.
    _room: OwnedSemaphorePermit,
}

impl Engine {
    /// Asks the store for a page of records.
    pub(super) async fn search(&self, query: &Query) -> Result<Searched> {
        self.search_within(query, self.inner.config.timeout).await
    }

    pub(super) async fn search_within(&self, query: &Query, within: Duration) -> Result<Searched> {
        let end = Instant::now() + within.min(self.inner.config.timeout);
        let room = self.room_for(query.limit, end).await?;
        let number = {
            let mut table = self.inner.table();
            table.counts.searches += 1;
            table.next_number()
        };
        let sent = self.inner.host.boot_time();
        let left = end.saturating_duration_since(Instant::now());
        let answer = bounded(left, self.inner.store.find(query)).await;
        let received = self.inner.host.boot_time();
        self.inner.measures.find.took(received.since(sent));
        let answer = answer.inspect_err(|failure| self.inner.measures.failed(failure, received))?;
        let Answer { value: page, stamp } = answer;
        self.inner.table().learn_time(sent, received, stamp);
        Ok(Searched {
            page,
            number,
            received,
            _room: room,
        })
    }

    /// Waits until so many more records may be loaded, in order of arrival.
    async fn room_for(&self, records: usize, end: Instant) -> Result<OwnedSemaphorePermit> {
        let records = records.clamp(1, SEARCHED_RECORDS) as u32;
        let searches = self.inner.searches.clone();
        let room = timeout_at(end, searches.acquire_many_owned(records)).await;
        room.ok()
            .and_then(Result::ok)
            .ok_or_else(|| Error::Unavailable("too many searches at once: ask again later".into()))
    }
}
