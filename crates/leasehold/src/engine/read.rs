//! Shows one record, and lists many.

use leasehold_core::{Kind, Name, View, view};

use super::{Engine, with_timeout};
use crate::store::{Availability, Query};
use crate::{ListRequest, Listing, Result};

impl Engine {
    /// Reads a record from the store. Holders of uncertain expiry are observed from now on.
    pub async fn show(&self, name: &Name) -> Result<Option<View>> {
        let number = self.inner.table().next_number();
        let sent = self.inner.host.boot_time();
        let loaded = with_timeout(
            self.inner.config.timeout,
            self.inner.store.load(std::slice::from_ref(name)),
        )
        .await;
        let received = self.inner.host.boot_time();
        self.inner.metrics.load.took(received.since(sent));
        let loaded =
            loaded.inspect_err(|failure| self.inner.metrics.count_failure(failure, received))?;
        let stored = loaded.value.into_iter().next().flatten();
        let record = stored.as_ref().map(|stored| &*stored.record);
        let mut table = self.inner.table();
        table.observe_time(sent, received, loaded.stamp);
        table.observe(name, record, (number, received));
        let now = table.clock.now(received, table.observations.of(name));
        let now = now.for_kind(name.kind());
        Ok(record.map(|record| view(record, &now)))
    }

    /// Reads a page of records from the store. Holders of uncertain expiry are observed from now on.
    pub async fn list(&self, request: ListRequest) -> Result<Listing> {
        let earliest = self.earliest_live_expiry();
        let query = Query {
            kind: if request.gates {
                Kind::Gate
            } else {
                Kind::Lock
            },
            prefix: request.prefix,
            state: request.state,
            // The store returns records that may be held. The core decides which holders have expired.
            availability: request
                .held
                .filter(|held| *held)
                .map(|_| Availability::Held(earliest)),
            cursor: request.cursor,
            limit: match request.limit {
                0 => 100,
                limit => limit.min(1_000),
            },
        };
        let found = self.search(&query).await?;
        let mut table = self.inner.table();
        let mut leases = Vec::new();
        for (name, stored) in found.page.records {
            table.observe(&name, Some(&stored.record), (found.number, found.received));
            let now = table
                .clock
                .now(found.received, table.observations.of(&name))
                .for_kind(query.kind);
            let view = view(&stored.record, &now);
            let is_held = !view.record.holders.is_empty();
            if request.held.is_none_or(|held| held == is_held) {
                leases.push((name, view));
            }
        }
        Ok(Listing {
            leases,
            cursor: found.page.cursor,
        })
    }
}
