//! What an engine measures.

use leasehold_core::{BootTime, EndReason, Holder, Interval, Record, Time};

use super::Engine;
use crate::Error;
use crate::health::Health;
use crate::measure::{Counter, Histogram};

/// How many names are looked at in one go while somebody counts leases.
const SCAN: usize = 1_000;

/// How holders ended, as they are counted: the words for it.
pub const ENDINGS: [&str; 5] = ["released", "completed", "expired", "broken", "replaced"];
/// How calls of the store failed: the words for it.
pub const FAILURES: [&str; 5] = [
    "unavailable",
    "indeterminate",
    "denied",
    "invalid",
    "corrupt",
];

/// What an engine has measured since it started.
#[derive(Debug)]
#[non_exhaustive]
pub struct Measures {
    /// How long calls of the store's `load` took.
    pub load: Histogram,
    /// How long calls of the store's `swap` took.
    pub swap: Histogram,
    /// How long calls of the store's `find` took.
    pub find: Histogram,
    /// How many records one `swap` wrote.
    pub batch: Histogram,
    /// How long leases were held whose end this engine wrote, by [`ENDINGS`].
    pub held: [Histogram; ENDINGS.len()],
    /// Calls of the store that failed, by [`FAILURES`].
    pub failures: [Counter; FAILURES.len()],
    /// How often the store's clock stepped.
    pub steps: Counter,
    /// Whether the store answers, as its last calls showed.
    pub store: Health,
}

impl Default for Measures {
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

impl Measures {
    /// A write has landed: who held before and does so no more has ended.
    pub(super) fn landed(
        &self,
        before: Option<&Record>,
        after: Option<&Record>,
        now: impl Fn() -> Time,
    ) {
        let old = before.map_or(&[][..], |record| &record.holders);
        let new = after.map_or(&[][..], |record| &record.holders);
        let last = after.and_then(|record| record.last.as_ref());
        let gone = |was: &&Holder| new.iter().all(|is| is.fence != was.fence);
        for was in old.iter().filter(gone) {
            let how = last.filter(|last| last.fence == was.fence);
            let ending = match how.map(|last| last.how) {
                Some(EndReason::Released) => 0,
                Some(EndReason::Completed(_)) => 1,
                Some(EndReason::Expired) => 2,
                Some(EndReason::Broken) => 3,
                None => 4,
            };
            // Nobody holds for longer than until it expires.
            let until = now().min(was.expires_at);
            self.held[ending].took(until.since(was.acquired_at));
        }
    }

    /// Counts a call of the store that failed, and logs it if the one before did not.
    pub(super) fn failed(&self, failure: &Error, received: BootTime) {
        let is_the_stores = matches!(
            failure,
            Error::Unavailable(_) | Error::Indeterminate(_) | Error::Denied(_)
        );
        if is_the_stores && self.store.failed(received) {
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

    /// A call of the store was answered.
    pub(super) fn answered(&self, sent: BootTime) {
        if self.store.succeeded(sent) {
            tracing::info!("the store answers again");
        }
    }
}

impl Engine {
    /// What it has measured since it started.
    pub fn measures(&self) -> &Measures {
        &self.inner.measures
    }

    /// What is known of the store's time now.
    pub fn store_time(&self) -> Interval {
        let boot = self.inner.host.boot_time();
        self.inner.table().clock.interval(boot)
    }

    /// How many leases are held, of the names that this engine has in its cache. Looks at all of them, some at a time.
    pub fn held(&self) -> u64 {
        let (mut held, mut from) = (0, 0);
        loop {
            let boot = self.inner.host.boot_time();
            let table = self.inner.table();
            let to = (from + SCAN).min(table.entries.len());
            let Some(some) = table
                .entries
                .get_range(from..to)
                .filter(|some| !some.is_empty())
            else {
                return held;
            };
            for (name, entry) in some {
                let Some(cached) = &entry.cached else {
                    continue;
                };
                let now = table
                    .clock
                    .now(boot, table.observations.of(name))
                    .for_kind(name.kind());
                let record = cached.stored.as_ref().map(|stored| &stored.record);
                let holders = record.into_iter().flat_map(|record| &record.holders);
                let live = |holder: &&Holder| holder.broken.is_none() && !now.is_expired(holder);
                held += holders.filter(live).count() as u64;
            }
            from = to;
        }
    }
}
