//! Measurements of an engine, for metrics.

use leasehold_core::{BootTime, EndReason, Holder, Interval, Record, Time};

use super::Engine;
use crate::Error;
use crate::health::Health;
use crate::measure::{Counter, Histogram};

/// The number of names to check under one lock when held leases are counted.
const SCAN: usize = 1_000;

/// The label values of how holds ended.
pub const ENDINGS: [&str; 5] = ["released", "completed", "expired", "broken", "replaced"];
/// The label values of how store calls failed.
pub const FAILURES: [&str; 5] = [
    "unavailable",
    "indeterminate",
    "denied",
    "invalid",
    "corrupt",
];

/// Measurements of an engine since its start.
#[derive(Debug)]
#[non_exhaustive]
pub struct Metrics {
    /// The duration of calls of the store's `load`.
    pub load: Histogram,
    /// The duration of calls of the store's `swap`.
    pub swap: Histogram,
    /// The duration of calls of the store's `find`.
    pub find: Histogram,
    /// The number of writes in one `swap`.
    pub batch: Histogram,
    /// The duration of holds whose end this engine wrote, by [`ENDINGS`].
    pub held: [Histogram; ENDINGS.len()],
    /// Failed store calls, by [`FAILURES`].
    pub failures: [Counter; FAILURES.len()],
    /// The number of steps of the store's clock.
    pub steps: Counter,
    /// Whether the store works, according to its last calls.
    pub store: Health,
}

impl Default for Metrics {
    fn default() -> Self {
        let calls = || Histogram::new(Histogram::CALLS);
        Self {
            load: calls(),
            swap: calls(),
            find: calls(),
            batch: Histogram::new(Histogram::SIZES),
            held: std::array::from_fn(|_| Histogram::new(Histogram::SPANS)),
            failures: Default::default(),
            steps: Counter::default(),
            store: Health::default(),
        }
    }
}

impl Metrics {
    /// Records the holds that a write has ended.
    pub(super) fn record_ended_holds(
        &self,
        before: Option<&Record>,
        after: Option<&Record>,
        now: impl Fn() -> Time,
    ) {
        let old = before.map_or(&[][..], |record| &record.holders);
        let new = after.map_or(&[][..], |record| &record.holders);
        let last = after.and_then(|record| record.last.as_ref());
        let has_ended = |holder: &&Holder| new.iter().all(|other| other.fence != holder.fence);
        for holder in old.iter().filter(has_ended) {
            let how = last.filter(|last| last.fence == holder.fence);
            let ending = match how.map(|last| last.how) {
                Some(EndReason::Released) => 0,
                Some(EndReason::Completed(_)) => 1,
                Some(EndReason::Expired) => 2,
                Some(EndReason::Broken) => 3,
                None => 4,
            };
            // A hold ends at its expiry at the latest.
            let until = now().min(holder.expires_at);
            self.held[ending].took(until.since(holder.acquired_at));
        }
    }

    /// Counts a failed store call. Logs it if the store worked before.
    pub(super) fn count_failure(&self, failure: &Error, received: BootTime) {
        let is_store_failure = matches!(
            failure,
            Error::Unavailable(_) | Error::Indeterminate(_) | Error::Denied(_)
        );
        if is_store_failure && self.store.failed(received) {
            tracing::error!(error = %failure, "the store fails");
        }
        let kind = match failure {
            Error::Unavailable(_) => 0,
            Error::Indeterminate(_) => 1,
            Error::Denied(_) => 2,
            Error::Corrupt(_) => 4,
            _ => 3,
        };
        self.failures[kind].count();
    }

    /// Notes an answered store call. Logs it if the store failed before.
    pub(super) fn note_success(&self, sent: BootTime) {
        if self.store.succeeded(sent) {
            tracing::info!("the store answers again");
        }
    }
}

impl Engine {
    /// Returns its measurements.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Returns the bounds of the store's time now.
    pub fn store_time(&self) -> Interval {
        let boot = self.inner.host.boot_time();
        self.inner.table().clock.interval(boot)
    }

    /// Counts the held leases among the cached names. Scans the whole cache, in steps.
    pub fn held(&self) -> u64 {
        let (mut held, mut from) = (0, 0);
        loop {
            let boot = self.inner.host.boot_time();
            let table = self.inner.table();
            let to = (from + SCAN).min(table.entries.len());
            let Some(entries) = table
                .entries
                .get_range(from..to)
                .filter(|entries| !entries.is_empty())
            else {
                return held;
            };
            for (name, entry) in entries {
                let Some(cached) = &entry.cached else {
                    continue;
                };
                let now = table
                    .clock
                    .now(boot, table.observations.of(name))
                    .for_kind(name.kind());
                let record = cached.stored.as_ref().map(|stored| &stored.record);
                let holders = record.into_iter().flat_map(|record| &record.holders);
                let is_live = |holder: &&Holder| holder.broken.is_none() && !now.is_expired(holder);
                held += holders.filter(is_live).count() as u64;
            }
            from = to;
        }
    }
}
