//! The engine's state: cached records, queued operations, waiters.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use leasehold_core::{BootTime, Clock, ClockChange, Held, Name, Operation, Record, Stamp, Time};
use tokio::sync::Notify;

use super::metrics::Metrics;
use super::observe::ObservationCache;
use super::pending::PendingOperation;
use super::watch::{ChangeSender, RecordSource};
use super::{Config, Stats, closing_error};
use crate::store::{Store, Stored};
use crate::{Error, Result};

/// How long a renewal is delayed to be batched with other operations.
const RENEWAL_DELAY: Duration = Duration::from_millis(10);

/// After this many calls in a row for a single operation, the next one is not delayed for a batch…
const SINGLE_CALLS: u32 = 4;
/// …except for every 16th call, to detect that operations are concurrent again.
const BATCH_RETRY: u32 = 16;

/// The engine's state, behind one lock that is never held during I/O.
pub(super) struct Table {
    pub(super) clock: Clock,
    /// The latest time that was written, so that items keep the order in which they were put.
    pub(super) high_water: Time,
    pub(super) entries: IndexMap<Name, Entry, RandomState>,
    pub(super) observations: ObservationCache,
    /// Names with operations to plan, those of holders first.
    pub(super) ready: VecDeque<Name>,
    /// Names whose only operations are renewals that are delayed for a batch.
    pub(super) delayed_renewals: Vec<Name>,
    /// When a renewal was last sent.
    renewed: BootTime,
    /// Whether commits are expensive enough to delay renewals for a batch.
    delays_renewals: bool,
    /// How often, recently, an unknown name existed in the store.
    pub(super) wrong_guesses: u8,
    /// Whether a task is about to call the store.
    pub(super) batch_scheduled: bool,
    /// The number of calls in a row with a single operation.
    single_calls: u32,
    /// Names that must be loaded before they can be planned.
    pub(super) to_load: VecDeque<Name>,
    pub(super) timers: BTreeSet<(BootTime, Name)>,
    /// Notified when a timer earlier than all others was set.
    timer: Arc<Notify>,
    /// The number of loads in flight.
    pub(super) loading: usize,
    /// The number of batches of writes in flight.
    pub(super) swapping: usize,
    /// Failed store calls since the last success.
    pub(super) failures: u32,
    /// The message of the last one.
    pub(super) last_failure: Option<String>,
    pub(super) counts: Stats,
    pub(super) metrics: Arc<Metrics>,
    /// Set while there are subscribers.
    pub(super) watch: Option<ChangeSender>,
    pub(super) cached_bytes: usize,
    pub(super) eviction_hand: usize,
    /// Whether only the names that became free last stay cached…
    pub(super) caches_few_free: bool,
    /// …which are these, each with the number of the call that showed it.
    pub(super) free_names: VecDeque<(Name, u64)>,
    numbers: u64,
    pub(super) closed: bool,
}

/// The state of one name.
#[derive(Default)]
pub(super) struct Entry {
    /// The last known version; `None` if unknown.
    pub(super) cached: Option<CachedRecord>,
    /// Operations in order of arrival.
    pub(super) queue: VecDeque<Box<PendingOperation>>,
    /// Waiters in order of arrival.
    pub(super) wait_queue: BTreeMap<u64, Box<PendingOperation>>,
    /// Why the first waiter has to wait.
    pub(super) held: Option<Held>,
    /// Whether a store call for this name is in flight.
    pub(super) busy: bool,
    /// Whether it is in `ready` or `to_load`.
    pub(super) listed: bool,
    /// Whether it must be loaded before it is planned.
    pub(super) load_first: bool,
    /// Whether calls for it wait for its timer, because the store has failed.
    pub(super) backing_off: bool,
    /// Whether it must be loaded separately, because a load with others failed.
    pub(super) load_alone: bool,
    /// Whether it must be loaded before a waiter is kept waiting, because it may have changed.
    pub(super) recheck: bool,
    /// Publish what a call with a higher number than this shows.
    pub(super) publish_after: Option<u64>,
    /// When its timer fires.
    pub(super) wake_at: Option<BootTime>,
    /// When to poll the store for its waiters.
    pub(super) poll_at: Option<BootTime>,
    pub(super) recently_used: bool,
}

/// A cached record, or the fact that there is none.
pub(super) struct CachedRecord {
    pub(super) stored: Option<Stored>,
    /// The number of the call that showed it. Operations with lower numbers arrived before that call was sent, so
    /// they may be refused by what it showed.
    pub(super) confirmed: u64,
    /// When that call was answered.
    pub(super) received: BootTime,
}

impl Entry {
    /// Whether it has no operations, no waiters and no call in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.wait_queue.is_empty() && !self.busy
    }

    /// Schedules it to be loaded or planned, unless a call for it is in flight or backing off.
    pub(super) fn make_ready(
        &mut self,
        name: &Name,
        urgent: bool,
        ready: &mut VecDeque<Name>,
        to_load: &mut VecDeque<Name>,
    ) {
        if self.busy || self.listed || self.backing_off {
            return;
        }
        self.listed = true;
        if self.load_first {
            to_load.push_back(name.clone());
        } else if urgent {
            ready.push_front(name.clone());
        } else {
            ready.push_back(name.clone());
        }
    }

    pub(super) fn body_bytes(&self) -> usize {
        let stored = self
            .cached
            .as_ref()
            .and_then(|cached| cached.stored.as_ref());
        stored.map_or(0, |stored| stored.record.body.len())
    }
}

/// Whether an operation can be delayed for a batch: only a renewal whose ttl is much longer than the delay.
fn can_be_delayed(entry: Option<&Entry>, operation: &Operation) -> bool {
    let Operation::Renew(renew) = operation else {
        return false;
    };
    let known = || {
        let stored = entry?.cached.as_ref()?.stored.as_ref()?;
        let mut holders = stored.record.holders.iter();
        Some(holders.find(|holder| holder.fence == renew.fence)?.ttl)
    };
    let ttl = renew.ttl.or_else(known);
    ttl.is_some_and(|ttl| ttl >= 100 * RENEWAL_DELAY)
}

impl Table {
    pub(super) fn new(
        clock: Clock,
        store: &dyn Store,
        timer: Arc<Notify>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            clock,
            high_water: Time::default(),
            delayed_renewals: Vec::new(),
            renewed: BootTime::default(),
            delays_renewals: store.has_expensive_commits(),
            wrong_guesses: 0,
            batch_scheduled: false,
            single_calls: 0,
            entries: IndexMap::default(),
            observations: ObservationCache::default(),
            ready: VecDeque::new(),
            to_load: VecDeque::new(),
            timers: BTreeSet::new(),
            timer,
            loading: 0,
            swapping: 0,
            failures: 0,
            last_failure: None,
            counts: Stats::default(),
            metrics,
            watch: None,
            cached_bytes: 0,
            eviction_hand: 0,
            caches_few_free: store.is_in_process(),
            free_names: VecDeque::new(),
            numbers: 0,
            closed: false,
        }
    }

    /// Returns the next number. Operations and calls share one sequence, so that their order is known.
    pub(super) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Returns an error if the limits do not allow another operation.
    pub(super) fn admit(&self, config: &Config, waits: bool) -> Result<()> {
        let full = |what: &str| {
            Err(Error::Unavailable(format!(
                "too many {what} at the same time: retry later"
            )))
        };
        if self.closed {
            return Err(closing_error());
        }
        if self.counts.queued >= config.queue as u64 {
            return full("operations");
        }
        if waits && self.counts.waiters >= config.waiters as u64 {
            return full("waiters");
        }
        Ok(())
    }

    /// Notes whether the next call has more than one operation.
    pub(super) fn note_batch_size(&mut self) {
        self.single_calls = match self.counts.queued {
            0 | 1 => self.single_calls.wrapping_add(1),
            _ => 0,
        };
    }

    /// Whether recent calls had a single operation each. Sometimes `false` nevertheless, to detect a change.
    pub(super) fn expects_single_calls(&self) -> bool {
        self.single_calls >= SINGLE_CALLS && !self.single_calls.is_multiple_of(BATCH_RETRY)
    }

    /// Queues an operation under its name.
    pub(super) fn enqueue(&mut self, name: &Name, pending: Box<PendingOperation>, boot: BootTime) {
        // Operations of holders come before acquisitions, because leases expire.
        let urgent = !matches!(pending.operation, Operation::Acquire(_));
        let can_wait =
            self.delays_renewals && can_be_delayed(self.entries.get(name), &pending.operation);
        if !can_wait {
            self.send_delayed_renewals(boot);
        }
        let guesses_absent = self.guesses_absent();
        let entry = self.entries.entry(name.clone()).or_default();
        entry.load_first |= entry.cached.is_none() && !guesses_absent;
        let is_free = !(entry.busy || entry.listed || entry.backing_off || entry.load_first);
        entry.recently_used = true;
        entry.queue.push_back(pending);
        self.counts.queued += 1;
        if can_wait && boot.since(self.renewed) >= RENEWAL_DELAY {
            self.renewed = boot;
        } else if can_wait && is_free && self.ready.is_empty() {
            entry.listed = true;
            if self.delayed_renewals.is_empty() {
                self.set_timer(name, Some(boot + RENEWAL_DELAY));
            }
            self.delayed_renewals.push(name.clone());
            return;
        }
        entry.make_ready(name, urgent, &mut self.ready, &mut self.to_load);
    }

    /// Makes the delayed renewals ready, because their delay has ended or a call is about to be made.
    pub(super) fn send_delayed_renewals(&mut self, boot: BootTime) {
        if !self.delayed_renewals.is_empty() {
            self.renewed = self.renewed.max(boot);
            self.ready.extend(self.delayed_renewals.drain(..));
        }
    }

    /// Queues an operation of the engine itself.
    pub(super) fn enqueue_internal(&mut self, name: &Name, operation: Operation) {
        let id = self.next_number();
        let pending = PendingOperation::new(id, operation, None, None);
        self.enqueue(name, pending, BootTime::default());
    }

    /// Schedules this name to be loaded or planned with the next call.
    pub(super) fn make_ready(&mut self, name: &Name, urgent: bool) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.make_ready(name, urgent, &mut self.ready, &mut self.to_load);
        }
    }

    /// Caches a version that was read or written. Returns whether the name was unknown before.
    pub(super) fn cache_record(
        &mut self,
        name: &Name,
        stored: Option<Stored>,
        call: u64,
        received: BootTime,
        source: RecordSource,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(name) else {
            return false;
        };
        self.cached_bytes -= entry.body_bytes();
        let before = entry.cached.take().map(|cached| cached.stored);
        let record = stored.as_ref().map(|stored| &*stored.record);
        self.observations.note(name, record, &self.clock, received);
        entry.cached = Some(CachedRecord {
            stored,
            confirmed: call,
            received,
        });
        entry.load_first = false;
        entry.recheck = false;
        self.cached_bytes += entry.body_bytes();
        if source == RecordSource::Written {
            let old = before.as_ref().and_then(|before| before.as_ref());
            let new = entry.cached.as_ref().and_then(|now| now.stored.as_ref());
            self.metrics.record_ended_holds(
                old.map(|stored| &*stored.record),
                new.map(|stored| &*stored.record),
                || self.clock.interval(received).latest,
            );
        }
        let is_first = before.is_none();
        if self.watch.is_some() {
            self.send_change(name, before, call, received, source);
        }
        is_first
    }

    /// Updates the observations of holders from a call with this number, unless a later call has shown the record.
    pub(super) fn observe(
        &mut self,
        name: &Name,
        record: Option<&Record>,
        (number, received): (u64, BootTime),
    ) {
        let cached = self
            .entries
            .get(name)
            .and_then(|entry| entry.cached.as_ref());
        if cached.is_none_or(|cached| cached.confirmed <= number) {
            self.observations.note(name, record, &self.clock, received);
        }
    }

    /// Notes a successful call, and updates the clock from its answer.
    pub(super) fn observe_time(
        &mut self,
        sent: BootTime,
        received: BootTime,
        stamp: Stamp,
    ) -> ClockChange {
        self.metrics.note_success(sent);
        let change = self.clock.observe(sent, received, stamp);
        if change == ClockChange::Stepped {
            self.metrics.steps.count();
        }
        change
    }

    /// Sets the timer of a name, or clears it.
    pub(super) fn set_timer(&mut self, name: &Name, at: Option<BootTime>) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        if entry.wake_at == at {
            return;
        }
        if let Some(old) = entry.wake_at {
            self.timers.remove(&(old, name.clone()));
        }
        entry.wake_at = at;
        if let Some(at) = at {
            self.timers.insert((at, name.clone()));
            if self.timers.first().is_some_and(|(first, _)| *first == at) {
                self.timer.notify_one();
            }
        }
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            cached: self.entries.len() as u64,
            ..self.counts
        }
    }
}
