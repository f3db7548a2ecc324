//! What was: who held a name, for the timeline of the dashboard, and how much there was to do in the last hour.
//!
//! It is kept in memory, from the start of the service on, and bounded. What the service does itself is noted as it
//! happens, for the price of a look into a table. What others do, and that a lease has expired, is noted when somebody
//! subscribes to events, or when the next grant tells how the holder before it ended.
//!
//! | file | what it has |
//! |---|---|
//! | `past.rs` | who held what, as much of it as fits |
//! | `minutes.rs` | the last hour, minute by minute |

mod minutes;
mod past;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::core::{
    BootTime, Break, EndReason, Event, Fence, GrantKind, HolderRef, Name, Operation, Outcome, Text,
    Time,
};
use leasehold::engine::Engine;
use leasehold::measure::Counter;
use leasehold::wire::{self, EndedAs, Minute, Sharing, Tenure, Totals};
use tokio::time::Instant;

use crate::answer::{self, Answer};
use crate::metrics::Metrics;
use crate::refused::Refused;
use crate::service::{Call, Service};
use minutes::Minutes;
use past::Past;

const MINUTE: Duration = Duration::from_secs(60);
/// For how long a count of all leases is good enough: many dashboards ask for it.
const COUNTED: Duration = Duration::from_secs(2);

/// What was, since the service started.
pub(crate) struct History {
    engine: Engine,
    started: Time,
    /// The store's time minus the boot clock's, in microseconds and modulo 2^64. Looked up once a minute: it is for people.
    offset: AtomicU64,
    past: Mutex<Past>,
    grants: Counter,
    minutes: Mutex<Minutes>,
    /// How many leases were held when they were last counted.
    held: Mutex<Option<(Instant, u64)>>,
}

/// What an operation may do to the past of a name.
pub(crate) enum Deed {
    Take(Text, Sharing),
    /// Ends the holder with this fence, or all of them.
    End(Option<Fence>),
    /// Or it is not known to whom: the record tells that when it is asked, or with the next grant.
    Nothing,
}

impl Deed {
    pub(crate) fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Acquire(acquire) => {
                Self::Take(acquire.owner.clone(), Sharing::split(acquire.mode).0)
            }
            Operation::Release(release) | Operation::Break(Break::Own(release)) => {
                match release.holder {
                    HolderRef::Fence(fence) => Self::End(Some(fence)),
                    HolderRef::Nonce(_) => Self::Nothing,
                }
            }
            Operation::Break(Break::Force { fence, .. }) => Self::End(*fence),
            Operation::Update(update) if update.then_release => Self::End(Some(update.fence)),
            _ => Self::Nothing,
        }
    }
}

impl History {
    pub(crate) fn new(engine: Engine) -> Self {
        let history = Self {
            started: engine.store_time().latest,
            offset: AtomicU64::new(0),
            past: Mutex::default(),
            grants: Counter::default(),
            minutes: Mutex::default(),
            held: Mutex::default(),
            engine,
        };
        history.look_at_the_clock();
        history
    }

    /// Notes what came of an operation.
    pub(crate) fn note(&self, name: &Name, deed: Deed, outcome: &Outcome) {
        match (deed, outcome) {
            (Deed::Take(owner, mode), Outcome::Granted(grant)) => {
                if grant.granted == GrantKind::Kept {
                    return;
                }
                self.grants.count();
                let tenure = Tenure {
                    fence: grant.fence,
                    owner,
                    mode,
                    from: grant.acquired_at,
                    until: None,
                    how: None,
                };
                self.past().held(name, tenure, grant.last.as_ref());
            }
            (Deed::End(fence), outcome) => {
                let how = match outcome {
                    Outcome::Released => EndedAs::Released,
                    Outcome::Completed => EndedAs::Completed,
                    Outcome::Broken { .. } => EndedAs::Broken,
                    _ => return,
                };
                let at = self.time(self.engine.host().boot_time());
                self.past().ended(name, fence, at, Some(how));
            }
            _ => {}
        }
    }

    /// Notes what subscribers to events are told: also what others did, and what has expired.
    pub(crate) fn happened(&self, name: &Name, event: &Event, at: Time) {
        match event {
            Event::Granted(holder) => {
                let tenure = Tenure {
                    fence: holder.fence,
                    owner: holder.owner.clone(),
                    mode: Sharing::split(holder.mode).0,
                    from: holder.acquired_at,
                    until: None,
                    how: None,
                };
                self.past().held(name, tenure, None);
            }
            Event::Ended {
                fence,
                owner,
                since,
                how,
            } => {
                let ended = how.map(EndedAs::from);
                let Some(from) = *since else {
                    return self.past().ended(name, Some(*fence), at, ended);
                };
                let tenure = Tenure {
                    fence: *fence,
                    owner: owner.clone(),
                    // Matters only if its beginning was missed. Of how a sharer ended a record says nothing but that.
                    mode: match how {
                        None | Some(EndReason::Broken) => Sharing::Shared,
                        Some(_) => Sharing::Exclusive,
                    },
                    from,
                    until: Some(at),
                    how: ended,
                };
                self.past().held(name, tenure, None);
            }
            _ => {}
        }
    }

    /// Ends minute after minute, for as long as it is polled.
    pub(crate) async fn keep_counting(&self, metrics: &Metrics) {
        let mut minutes = tokio::time::interval_at(Instant::now() + MINUTE, MINUTE);
        loop {
            minutes.tick().await;
            self.look_at_the_clock();
            self.minutes().end(self.counted(metrics));
        }
    }

    /// What was counted since the start.
    fn counted(&self, metrics: &Metrics) -> Minute {
        let (waits, waited) = metrics.waits();
        Minute {
            grants: self.grants.get(),
            refusals: metrics.refusals(),
            waits,
            waited: wire::millis(waited),
        }
    }

    /// How many leases are held, or were a moment ago.
    fn held(&self) -> u64 {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match *held {
            Some((at, count)) if at.elapsed() < COUNTED => count,
            _ => {
                let count = self.engine.held();
                *held = Some((Instant::now(), count));
                count
            }
        }
    }

    fn look_at_the_clock(&self) {
        let boot = self.engine.host().boot_time().as_micros();
        let store = self.engine.store_time().latest.as_micros();
        self.offset
            .store(store.wrapping_sub(boot), Ordering::Relaxed);
    }

    /// The store's time, as far as people care.
    fn time(&self, boot: BootTime) -> Time {
        let offset = self.offset.load(Ordering::Relaxed);
        Time::from_micros(boot.as_micros().wrapping_add(offset))
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn minutes(&self) -> MutexGuard<'_, Minutes> {
        self.minutes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service {
    /// Who held a name.
    pub(crate) fn history(&self, call: &Call<'_>, name: &Name) -> Result<Answer, Refused> {
        call.query.only(&["name"])?;
        let history = &self.events.history;
        Ok(answer::ok(&wire::History {
            since: history.started,
            time: history.time(call.arrival),
            tenures: history.past().of(name),
        }))
    }

    /// How much there is to do, and was in the last hour.
    pub(crate) fn totals(&self, call: &Call<'_>) -> Result<Answer, Refused> {
        call.query.only(&[])?;
        let history = &self.events.history;
        let counted = history.counted(&self.metrics);
        Ok(answer::ok(&Totals {
            since: history.started,
            time: history.time(call.arrival),
            held: history.held(),
            waiters: self.engine.stats().waiters,
            minutes: history.minutes().all(counted),
        }))
    }
}
