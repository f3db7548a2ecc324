//! Deletes unused records.

use std::time::Duration;

use leasehold_core::{Kind, Name, Observations, Operation, Outcome, apply};

use super::{Engine, SEARCH_PAGE};
use crate::Result;
use crate::store::{Availability, Query};

/// The progress of a purge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeProgress {
    /// Records that were checked.
    pub seen: u64,
    /// Records that were deleted.
    pub deleted: u64,
}

impl Engine {
    /// Deletes the records of locks, items and gates whose names start with `prefix`, and which have been free and
    /// empty for longer than `retention`, which must be at least an hour. New fences of these names are still higher
    /// than the old ones. Calls `progress` after each page.
    pub async fn purge(
        &self,
        prefix: &str,
        retention: Duration,
        mut progress: impl FnMut(PurgeProgress),
    ) -> Result<PurgeProgress> {
        let operation = Operation::Purge { retention };
        operation.check(Kind::Lock)?;
        let mut purged = PurgeProgress::default();
        for kind in [Kind::Lock, Kind::Gate] {
            let mut query = Query {
                prefix: prefix.to_owned(),
                availability: Some(Availability::Free(self.earliest())),
                limit: SEARCH_PAGE,
                ..Query::all(kind)
            };
            loop {
                let searched = self.search(&query).await?;
                purged.seen += searched.page.records.len() as u64;
                query.cursor = searched.page.cursor;
                let now = searched.received;
                let clock = &self.inner.table().clock.clone();
                let old = searched.page.records.into_iter().filter(|(_, stored)| {
                    let none = Observations::none();
                    let now = clock.now(now, &none).for_kind(kind);
                    let decision = apply(Some(&stored.record), &operation, &now);
                    decision.outcome == Outcome::Purged
                });
                let old: Vec<Name> = old.map(|(name, _)| name).collect();
                purged.deleted += self.purge_all(old, &operation).await?;
                progress(purged);
                if query.cursor.is_none() {
                    break;
                }
            }
        }
        Ok(purged)
    }

    async fn purge_all(&self, names: Vec<Name>, operation: &Operation) -> Result<u64> {
        let operations = names.into_iter().map(|name| (name, operation.clone()));
        let mut deleted = 0;
        for answer in self.perform_all(operations.collect(), None).await {
            deleted += u64::from(answer?.take().0 == Outcome::Purged);
        }
        Ok(deleted)
    }
}
