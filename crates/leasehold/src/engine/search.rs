//! Searches the store. Records are loaded with their bodies, so the number of records that all searches load at the
//! same time is limited.

use std::time::Duration;

use leasehold_core::BootTime;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::{Engine, with_timeout};
use crate::store::{Answer, Page, Query};
use crate::{Error, Result};

/// The maximum number of records that concurrent searches load. With the longest bodies, these are 12 MiB, twice while
/// they are parsed.
pub(super) const MAX_SEARCHED_RECORDS: usize = 200;
/// The page size of a search that reads several pages.
pub const SEARCH_PAGE: usize = 100;

/// A page of records, and the call that returned it.
pub(super) struct FoundPage {
    pub(super) page: Page,
    pub(super) number: u64,
    pub(super) received: BootTime,
    /// Allows other searches to start when it is dropped.
    _permit: OwnedSemaphorePermit,
}

impl Engine {
    /// Reads a page of records from the store.
    pub(super) async fn search(&self, query: &Query) -> Result<FoundPage> {
        self.search_within(query, self.inner.config.timeout).await
    }

    pub(super) async fn search_within(&self, query: &Query, within: Duration) -> Result<FoundPage> {
        let end = Instant::now() + within.min(self.inner.config.timeout);
        let permit = self.reserve_records(query.limit, end).await?;
        let number = {
            let mut table = self.inner.table();
            table.counts.searches += 1;
            table.next_number()
        };
        let sent = self.inner.host.boot_time();
        let left = end.saturating_duration_since(Instant::now());
        let answer = with_timeout(left, self.inner.store.find(query)).await;
        let received = self.inner.host.boot_time();
        self.inner.metrics.find.took(received.since(sent));
        let answer =
            answer.inspect_err(|failure| self.inner.metrics.count_failure(failure, received))?;
        let Answer { value: page, stamp } = answer;
        self.inner.table().observe_time(sent, received, stamp);
        Ok(FoundPage {
            page,
            number,
            received,
            _permit: permit,
        })
    }

    /// Waits in arrival order until this many more records may be loaded.
    async fn reserve_records(&self, records: usize, end: Instant) -> Result<OwnedSemaphorePermit> {
        let records = records.clamp(1, MAX_SEARCHED_RECORDS) as u32;
        let searches = self.inner.searches.clone();
        let permit = timeout_at(end, searches.acquire_many_owned(records)).await;
        permit.ok().and_then(Result::ok).ok_or_else(|| {
            Error::Unavailable("too many searches at the same time: retry later".into())
        })
    }
}
