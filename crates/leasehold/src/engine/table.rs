//! What the engine knows: cached records, queued operations, waiters in line.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use leasehold_core::{BootTime, Clock, ClockChange, Held, Name, Operation, Record, Stamp, Time};
use tokio::sync::Notify;

use super::measures::Measures;
use super::observe::ObservationCache;
use super::pending::Pending;
use super::watch::{Learnt, Watch};
use super::{Config, Stats, closing};
use crate::store::{Store, Stored};
use crate::{Error, Result};

/// How long a renewal waits for company.
const LINGER: Duration = Duration::from_millis(10);

/// After how many calls for one operation alone nobody is expected to come along…
const ALONE: u32 = 4;
/// …and after how many it is tried again.
const TRIES: u32 = 16;

/// Everything that the engine knows, behind one lock that is only ever held for a moment.
pub(super) struct Table {
    pub(super) clock: Clock,
    /// The highest moment that was written, so that items keep the order in which they were put.
    pub(super) high_water: Time,
    pub(super) entries: IndexMap<Name, Entry, RandomState>,
    pub(super) observations: ObservationCache,
    /// Names with something to plan, those whose leases would otherwise run out first.
    pub(super) ready: VecDeque<Name>,
    /// Names with nothing but renewals, which wait a moment for company.
    pub(super) patient: Vec<Name>,
    /// When a renewal was last sent.
    renewed: BootTime,
    /// Whether a commit is dear enough to wait for company.
    lingers: bool,
    /// How often a name that was never seen turned out to be in the store after all, of late.
    pub(super) surprises: u8,
    /// A task is about to call the store.
    pub(super) gathering: bool,
    /// How many calls in a row were for one operation alone.
    alone: u32,
    /// Names that must be loaded before anything can be planned.
    pub(super) to_load: VecDeque<Name>,
    pub(super) timers: BTreeSet<(BootTime, Name)>,
    /// Told when a timer earlier than all others was set.
    timer: Arc<Notify>,
    pub(super) loading: usize,
    pub(super) swapping: usize,
    /// Calls of the store that failed, without a success since.
    pub(super) failures: u32,
    /// Why the last one failed.
    pub(super) trouble: Option<String>,
    pub(super) counts: Stats,
    pub(super) measures: Arc<Measures>,
    /// Set while somebody watches.
    pub(super) watch: Option<Watch>,
    pub(super) cached_bytes: usize,
    pub(super) eviction_hand: usize,
    /// Whether only the names that came free last are remembered…
    pub(super) forgets_free: bool,
    /// …which are these, each with the call that showed it so.
    pub(super) free: VecDeque<(Name, u64)>,
    numbers: u64,
    pub(super) closed: bool,
}

/// One name.
#[derive(Default)]
pub(super) struct Entry {
    /// The record as last seen; `None`: never seen.
    pub(super) cached: Option<Cached>,
    /// Operations in order of arrival.
    pub(super) queue: VecDeque<Box<Pending>>,
    /// Waiters by order of arrival.
    pub(super) line: BTreeMap<u64, Box<Pending>>,
    /// What keeps the first in line waiting.
    pub(super) held: Option<Held>,
    /// A call of the store for this name is under way.
    pub(super) busy: bool,
    /// In `ready` or `to_load`.
    pub(super) listed: bool,
    /// Must be loaded before anything else.
    pub(super) load_first: bool,
    /// The store has failed: leave it alone until the timer fires.
    pub(super) backing_off: bool,
    /// Loading it together with others failed.
    pub(super) load_alone: bool,
    /// Somebody may have changed it: look before believing that it is held.
    pub(super) recheck: bool,
    /// Those who watch are to be told what the store shows in a call with a higher number than this.
    pub(super) look: Option<u64>,
    /// When to look at it again.
    pub(super) wake_at: Option<BootTime>,
    pub(super) poll_at: Option<BootTime>,
    pub(super) recently_used: bool,
}

/// A record as last seen.
pub(super) struct Cached {
    pub(super) stored: Option<Stored>,
    /// The number of the call that showed it. Operations with lower numbers arrived before that call was sent, so
    /// they may be refused by what it showed.
    pub(super) confirmed: u64,
    /// When that call was answered.
    pub(super) received: BootTime,
}

impl Entry {
    /// Nothing is asked of it and nobody waits for it.
    pub(super) fn is_quiet(&self) -> bool {
        self.queue.is_empty() && self.line.is_empty() && !self.busy
    }

    /// Puts it among those that have to be loaded, or that have something to plan, unless it has to wait.
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

/// Whether an operation may wait a moment for others, so that they share a commit: a renewal of a ttl next to which
/// that moment is nothing.
fn may_linger(entry: Option<&Entry>, operation: &Operation) -> bool {
    let Operation::Renew(renew) = operation else {
        return false;
    };
    let known = || {
        let stored = entry?.cached.as_ref()?.stored.as_ref()?;
        let mut holders = stored.record.holders.iter();
        Some(holders.find(|holder| holder.fence == renew.fence)?.ttl)
    };
    let ttl = renew.ttl.or_else(known);
    ttl.is_some_and(|ttl| ttl >= 100 * LINGER)
}

impl Table {
    pub(super) fn new(
        clock: Clock,
        store: &dyn Store,
        timer: Arc<Notify>,
        measures: Arc<Measures>,
    ) -> Self {
        Self {
            clock,
            high_water: Time::default(),
            patient: Vec::new(),
            renewed: BootTime::default(),
            lingers: store.is_dear(),
            surprises: 0,
            gathering: false,
            alone: 0,
            entries: IndexMap::default(),
            observations: ObservationCache::default(),
            ready: VecDeque::new(),
            to_load: VecDeque::new(),
            timers: BTreeSet::new(),
            timer,
            loading: 0,
            swapping: 0,
            failures: 0,
            trouble: None,
            counts: Stats::default(),
            measures,
            watch: None,
            cached_bytes: 0,
            eviction_hand: 0,
            forgets_free: store.is_near(),
            free: VecDeque::new(),
            numbers: 0,
            closed: false,
        }
    }

    /// The next number. Operations and calls share one sequence, so that it tells which came first.
    pub(super) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Whether there is room for another operation.
    pub(super) fn admit(&self, config: &Config, waits: bool) -> Result<()> {
        let full = |what: &str| {
            Err(Error::Unavailable(format!(
                "too many {what} at once: ask again later"
            )))
        };
        if self.closed {
            return Err(closing());
        }
        if self.counts.queued >= config.queue as u64 {
            return full("operations");
        }
        if waits && self.counts.waiters >= config.waiters as u64 {
            return full("waiters");
        }
        Ok(())
    }

    /// The store is about to be called: is it for more than one?
    pub(super) fn note_company(&mut self) {
        self.alone = match self.counts.queued {
            0 | 1 => self.alone.wrapping_add(1),
            _ => 0,
        };
    }

    /// Whether nobody is likely to come along: nobody has of late. Now and then it is tried all the same.
    pub(super) fn expects_nobody(&self) -> bool {
        self.alone >= ALONE && !self.alone.is_multiple_of(TRIES)
    }

    /// Queues an operation under its name.
    pub(super) fn enqueue(&mut self, name: &Name, pending: Box<Pending>, boot: BootTime) {
        // Those who hold come before those who want to: their time is running.
        let urgent = !matches!(pending.operation, Operation::Acquire(_));
        let patient = self.lingers && may_linger(self.entries.get(name), &pending.operation);
        if !patient {
            self.end_patience(boot);
        }
        let guesses = self.guesses();
        let entry = self.entries.entry(name.clone()).or_default();
        entry.load_first |= entry.cached.is_none() && !guesses;
        let free = !(entry.busy || entry.listed || entry.backing_off || entry.load_first);
        entry.recently_used = true;
        entry.queue.push_back(pending);
        self.counts.queued += 1;
        if patient && boot.since(self.renewed) >= LINGER {
            self.renewed = boot;
        } else if patient && free && self.ready.is_empty() {
            entry.listed = true;
            if self.patient.is_empty() {
                self.set_timer(name, Some(boot + LINGER));
            }
            self.patient.push(name.clone());
            return;
        }
        entry.make_ready(name, urgent, &mut self.ready, &mut self.to_load);
    }

    /// A call of the store is about to be made, or time is up: renewals come along.
    pub(super) fn end_patience(&mut self, boot: BootTime) {
        if !self.patient.is_empty() {
            self.renewed = self.renewed.max(boot);
            self.ready.extend(self.patient.drain(..));
        }
    }

    /// Queues an operation that the engine itself needs done.
    pub(super) fn enqueue_own(&mut self, name: &Name, operation: Operation) {
        let id = self.next_number();
        let pending = Pending::new(id, operation, None, None);
        self.enqueue(name, pending, BootTime::default());
    }

    /// Has this name planned as soon as a call of the store is free for it.
    pub(super) fn make_ready(&mut self, name: &Name, urgent: bool) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.make_ready(name, urgent, &mut self.ready, &mut self.to_load);
        }
    }

    /// Puts what the store showed into the cache; whether it is the first that was seen of this name.
    pub(super) fn remember(
        &mut self,
        name: &Name,
        stored: Option<Stored>,
        call: u64,
        received: BootTime,
        learnt: Learnt,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(name) else {
            return false;
        };
        self.cached_bytes -= entry.body_bytes();
        let before = entry.cached.take().map(|cached| cached.stored);
        let record = stored.as_ref().map(|stored| &*stored.record);
        self.observations.note(name, record, &self.clock, received);
        entry.cached = Some(Cached {
            stored,
            confirmed: call,
            received,
        });
        entry.load_first = false;
        entry.recheck = false;
        self.cached_bytes += entry.body_bytes();
        if learnt == Learnt::Written {
            let old = before.as_ref().and_then(|before| before.as_ref());
            let new = entry.cached.as_ref().and_then(|now| now.stored.as_ref());
            self.measures.landed(
                old.map(|stored| &*stored.record),
                new.map(|stored| &*stored.record),
                || self.clock.interval(received).latest,
            );
        }
        let is_first = before.is_none();
        if self.watch.is_some() {
            self.tell(name, before, call, received, learnt);
        }
        is_first
    }

    /// Notes the holders in doubt that a call of this number has shown, unless a later call has shown the record since.
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

    /// Learns from an answer that the store is there, and its time.
    pub(super) fn learn_time(
        &mut self,
        sent: BootTime,
        received: BootTime,
        stamp: Stamp,
    ) -> ClockChange {
        self.measures.answered(sent);
        let observed = self.clock.observe(sent, received, stamp);
        if observed == ClockChange::Stepped {
            self.measures.steps.count();
        }
        observed
    }

    /// Sets when to look at a name again; `None`: not by itself.
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
