//! Recent holders of each name, for the timeline of the dashboard, and the load of the last hour.
//!
//! It is kept in memory from the start of the service, and is bounded. Changes by this service are recorded at once, which
//! costs a lookup in a table. Changes by other services, and expired leases, are recorded while there are subscribers to
//! events, or when the next grant shows how the holder before it ended.
//!
//! | file | what it does |
//! |---|---|
//! | `hold_periods.rs` | keeps the recent hold periods of each name |
//! | `last_hour.rs` | counts each minute of the last hour |

mod hold_periods;
mod last_hour;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::core::{
    BootTime, Break, EndReason, Event, Fence, GrantKind, HolderRef, Name, Operation, Outcome, Text,
    Time,
};
use leasehold::engine::Engine;
use leasehold::measure::Counter;
use leasehold::wire::{self, EndKind, HoldPeriod, Minute, ModeKind, Totals};
use tokio::time::Instant;

use crate::answer::{self, Answer};
use crate::metrics::Metrics;
use crate::rejection::Rejection;
use crate::service::{Call, Service};
use hold_periods::HoldPeriodCache;
use last_hour::LastHour;

const MINUTE: Duration = Duration::from_secs(60);
/// How long a count of held leases is reused: many dashboards request it.
const HELD_COUNT_TTL: Duration = Duration::from_secs(2);

/// Recent hold periods and counts since the service started.
pub(crate) struct History {
    engine: Engine,
    started: Time,
    /// The store's time minus the boot clock's, in microseconds and modulo 2^64. Updated once a minute, which is precise
    /// enough for display.
    offset: AtomicU64,
    hold_periods: Mutex<HoldPeriodCache>,
    grants: Counter,
    last_hour: Mutex<LastHour>,
    /// When held leases were last counted, and how many there were.
    held: Mutex<Option<(Instant, u64)>>,
}

/// The change of hold periods that an operation may make.
pub(crate) enum HoldChange {
    /// Begins a hold period of this owner.
    Take(Text, ModeKind),
    /// Ends the hold period with this fence, or all of them.
    End(Option<Fence>),
    /// None, or one of an unknown holder. The latter is recorded with the next grant or event.
    Unknown,
}

impl HoldChange {
    pub(crate) fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Acquire(acquire) => {
                Self::Take(acquire.owner.clone(), ModeKind::split(acquire.mode).0)
            }
            Operation::Release(release) | Operation::Break(Break::Own(release)) => {
                match release.holder {
                    HolderRef::Fence(fence) => Self::End(Some(fence)),
                    HolderRef::Nonce(_) => Self::Unknown,
                }
            }
            Operation::Break(Break::Force { fence, .. }) => Self::End(*fence),
            Operation::Update(update) if update.then_release => Self::End(Some(update.fence)),
            _ => Self::Unknown,
        }
    }
}

impl History {
    pub(crate) fn new(engine: Engine) -> Self {
        let history = Self {
            started: engine.store_time().latest,
            offset: AtomicU64::new(0),
            hold_periods: Mutex::default(),
            grants: Counter::default(),
            last_hour: Mutex::default(),
            held: Mutex::default(),
            engine,
        };
        history.update_offset();
        history
    }

    /// Records the result of an operation.
    pub(crate) fn record(&self, name: &Name, change: HoldChange, outcome: &Outcome) {
        match (change, outcome) {
            (HoldChange::Take(owner, mode), Outcome::Granted(grant)) => {
                if grant.granted == GrantKind::Kept {
                    return;
                }
                self.grants.count();
                let period = HoldPeriod {
                    fence: grant.fence,
                    owner,
                    mode,
                    from: grant.acquired_at,
                    until: None,
                    how: None,
                };
                let last = grant.last.as_ref();
                self.hold_periods().add(name, period, last);
            }
            (HoldChange::End(fence), outcome) => {
                let how = match outcome {
                    Outcome::Released => EndKind::Released,
                    Outcome::Completed => EndKind::Completed,
                    Outcome::Broken { .. } => EndKind::Broken,
                    _ => return,
                };
                let at = self.time(self.engine.host().boot_time());
                self.hold_periods().end(name, fence, at, Some(how));
            }
            _ => {}
        }
    }

    /// Records an event: also changes by other services, and expired leases.
    pub(crate) fn record_event(&self, name: &Name, event: &Event, at: Time) {
        match event {
            Event::Granted(holder) => {
                let period = HoldPeriod {
                    fence: holder.fence,
                    owner: holder.owner.clone(),
                    mode: ModeKind::split(holder.mode).0,
                    from: holder.acquired_at,
                    until: None,
                    how: None,
                };
                self.hold_periods().add(name, period, None);
            }
            Event::Ended {
                fence,
                owner,
                since,
                how,
            } => {
                let ended = how.map(EndKind::from);
                let Some(from) = *since else {
                    return self.hold_periods().end(name, Some(*fence), at, ended);
                };
                let period = HoldPeriod {
                    fence: *fence,
                    owner: owner.clone(),
                    // Only used if the grant was not recorded. A record does not contain how a shared holder ended, unless
                    // it was broken.
                    mode: match how {
                        None | Some(EndReason::Broken) => ModeKind::Shared,
                        Some(_) => ModeKind::Exclusive,
                    },
                    from,
                    until: Some(at),
                    how: ended,
                };
                self.hold_periods().add(name, period, None);
            }
            _ => {}
        }
    }

    /// Closes a minute every minute while it is polled.
    pub(crate) async fn count_minutes(&self, metrics: &Metrics) {
        let mut minutes = tokio::time::interval_at(Instant::now() + MINUTE, MINUTE);
        loop {
            minutes.tick().await;
            self.update_offset();
            self.last_hour().end_minute(self.counts(metrics));
        }
    }

    /// Returns the counts since the service started.
    fn counts(&self, metrics: &Metrics) -> Minute {
        let (waits, waited) = metrics.waits();
        Minute {
            grants: self.grants.get(),
            refusals: metrics.refusals(),
            waits,
            waited: wire::millis(waited),
        }
    }

    /// Returns how many leases are held, counted at most [`HELD_COUNT_TTL`] ago.
    fn held(&self) -> u64 {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match *held {
            Some((at, count)) if at.elapsed() < HELD_COUNT_TTL => count,
            _ => {
                let count = self.engine.held();
                *held = Some((Instant::now(), count));
                count
            }
        }
    }

    fn update_offset(&self) {
        let boot = self.engine.host().boot_time().as_micros();
        let store = self.engine.store_time().latest.as_micros();
        self.offset
            .store(store.wrapping_sub(boot), Ordering::Relaxed);
    }

    /// Returns the store's time as of the last update of the offset: for display only.
    fn time(&self, boot: BootTime) -> Time {
        let offset = self.offset.load(Ordering::Relaxed);
        Time::from_micros(boot.as_micros().wrapping_add(offset))
    }

    fn hold_periods(&self) -> MutexGuard<'_, HoldPeriodCache> {
        let hold_periods = self.hold_periods.lock();
        hold_periods.unwrap_or_else(PoisonError::into_inner)
    }

    fn last_hour(&self) -> MutexGuard<'_, LastHour> {
        let last_hour = self.last_hour.lock();
        last_hour.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service {
    /// Answers with the recent hold periods of a name.
    pub(crate) fn history(&self, call: &Call<'_>, name: &Name) -> Result<Answer, Rejection> {
        call.query.allow_only(&["name"])?;
        let history = &self.events.history;
        Ok(answer::ok(&wire::History {
            since: history.started,
            time: history.time(call.arrival),
            tenures: history.hold_periods().of(name),
        }))
    }

    /// Answers with the present load, and that of the last hour.
    pub(crate) fn totals(&self, call: &Call<'_>) -> Result<Answer, Rejection> {
        call.query.allow_only(&[])?;
        let history = &self.events.history;
        let counts = history.counts(&self.metrics);
        Ok(answer::ok(&Totals {
            since: history.started,
            time: history.time(call.arrival),
            held: history.held(),
            waiters: self.engine.stats().waiters,
            minutes: history.last_hour().minutes(counts),
        }))
    }
}
