//! Looking: at one name, and at many.

use leasehold_core::{Kind, Name, Sightings, View, view};

use super::{Engine, bounded};
use crate::store::{Availability, Query};
use crate::{ListRequest, Listing, Result};

impl Engine {
    /// What is known of a name, fresh from the store.
    pub async fn show(&self, name: &Name) -> Result<Option<View>> {
        let sent = self.inner.host.boot_time();
        let loaded = bounded(
            self.inner.config.timeout,
            self.inner.store.load(std::slice::from_ref(name)),
        )
        .await;
        let boot = self.inner.host.boot_time();
        self.inner.measures.load.took(boot.since(sent));
        let loaded = loaded.inspect_err(|failure| self.inner.measures.failed(failure))?;
        let mut table = self.inner.table();
        table.clock.observe(sent, boot, loaded.stamp);
        let stored = loaded.value.into_iter().next().flatten();
        Ok(stored.map(|stored| {
            let seen = table
                .entries
                .get(name)
                .and_then(|entry| entry.cached.as_ref())
                .map(|cached| &cached.seen);
            let none = Sightings::none();
            let now = table.clock.now(boot, seen.unwrap_or(&none));
            view(&stored.record, &now.of(name.kind()))
        }))
    }

    /// A page of names, fresh from the store.
    pub async fn list(&self, request: ListRequest) -> Result<Listing> {
        let query = Query {
            kind: if request.gates {
                Kind::Gate
            } else {
                Kind::Lock
            },
            prefix: request.prefix,
            state: request.state,
            // Only what is surely held is worth asking for: who is over is decided here, by the core.
            availability: request
                .held
                .filter(|held| *held)
                .map(|_| Availability::Held(self.earliest_live_expiry())),
            cursor: request.cursor,
            limit: match request.limit {
                0 => 100,
                limit => limit.min(1_000),
            },
        };
        let found = self.search(&query).await?;
        let table = self.inner.table();
        let none = Sightings::none();
        let now = table.clock.now(found.received, &none).of(query.kind);
        let views = found
            .page
            .records
            .into_iter()
            .map(|(name, stored)| (name, view(&stored.record, &now)));
        let wanted = |view: &View| {
            request
                .held
                .is_none_or(|held| held != view.record.holders.is_empty())
        };
        let leases = views.filter(|(_, view)| wanted(view)).collect();
        Ok(Listing {
            leases,
            cursor: found.page.cursor,
        })
    }
}
