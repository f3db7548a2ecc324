//! Publishes events to subscribers.
//!
//! While there are subscribers, the engine sends every new version of a record to one task, which compares it with the
//! version before it by the core's [`events`]. Operations never wait for that task. Names that the store hints at are
//! loaded, so that changes by other engines are published too. Names whose holder should have expired are also loaded,
//! because nothing is written when a lease expires.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::{BootTime, EndReason, Event, Fence, Name, Record, Time, events, latest, view};
use tokio::sync::{broadcast, mpsc};

use super::table::Table;
use super::{Config, Engine, Inner, SEARCH_PAGE};
use crate::Result;
use crate::host::{Host, sleep_until};
use crate::store::{Query, Stored};

/// How often to check whether there are subscribers, and to notify the store of them.
const WATCH_INTERVAL: Duration = Duration::from_secs(10);
/// How long after the expiry of a holder to load its record.
const EXPIRY_GRACE: Duration = Duration::from_millis(20);
/// The maximum number of names to load at the same time.
const MAX_LOADS: usize = 500;

/// An event under a name, as this engine observed it.
#[derive(Clone, Debug)]
pub struct EngineEvent {
    /// The name.
    pub name: Name,
    /// The event.
    pub event: Event,
    /// When this engine observed it, in the store's time.
    pub at: Time,
}

/// Some events were missed. A subscriber that needs the present state has to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventsMissed;

/// A subscription to events. Ends with the engine.
#[derive(Debug)]
pub struct Events {
    receiver: broadcast::Receiver<Result<EngineEvent, EventsMissed>>,
}

impl Events {
    /// Waits for the next event. Returns `None` once the engine has been dropped.
    pub async fn next(&mut self) -> Option<Result<EngineEvent, EventsMissed>> {
        match self.receiver.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Err(EventsMissed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// Sends changes to the task that publishes events.
pub(super) struct ChangeSender {
    changes: mpsc::Sender<VersionChange>,
    /// Set if a change was lost because the task was too slow.
    missed: Arc<AtomicBool>,
}

/// A version of a record that is new to this engine, or whose load was requested.
pub(super) struct VersionChange {
    name: Name,
    before: PreviousVersion,
    after: Option<Arc<Record>>,
    at: Time,
    received: BootTime,
    /// The fences of holders that have expired, although the record still contains them.
    expired: Vec<Fence>,
    /// The shortest time that a live holder has left.
    remaining: Option<Duration>,
}

/// The version before a change.
enum PreviousVersion {
    /// Unknown to this engine.
    Unknown,
    /// The same version: nothing changed.
    Same,
    Known(Option<Arc<Record>>),
}

/// How a version of a record became known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordSource {
    /// This engine wrote it, based on the version before.
    Written,
    /// It was read from the store.
    Read,
}

impl Engine {
    /// Subscribes to all events from now on: changes by this engine, and changes by others if the store hints at them.
    /// A subscriber that lags behind gets [`EventsMissed`].
    ///
    /// For a name that was unknown to this engine, only the [last](latest) event is published.
    pub fn subscribe(&self) -> Events {
        let mut table = self.inner.table();
        let receiver = self.inner.events.subscribe();
        if table.watch.is_none() {
            let (changes, incoming) = mpsc::channel(self.inner.config.events);
            let missed: Arc<AtomicBool> = Arc::default();
            let publisher = EventPublisher::new(&self.inner, Arc::clone(&missed));
            table.watch = Some(ChangeSender { changes, missed });
            self.inner.runtime.spawn(publisher.run(incoming));
        }
        Events { receiver }
    }

    /// Returns whether the store hints at changes by others, so that they are published.
    pub fn has_change_hints(&self) -> bool {
        self.inner.has_change_hints
    }

    /// Reads all names that start with `prefix`, and publishes what has changed since this engine last read them. For
    /// stores that give no hints. The `first` time, unknown names are cached without an event.
    pub async fn scan_for_changes(&self, prefix: &str, first: bool) -> Result<()> {
        for kind in leasehold_core::Kind::ALL {
            let mut query = Query {
                prefix: prefix.to_owned(),
                limit: SEARCH_PAGE,
                ..Query::all(kind)
            };
            loop {
                let found = self.search(&query).await?;
                let mut table = self.inner.table();
                for (name, stored) in found.page.records {
                    let call = (found.number, found.received);
                    table.cache_scanned(name, stored, call, first, &self.inner.config);
                }
                table.evict(&self.inner.config);
                query.cursor = found.page.cursor;
                if query.cursor.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl Table {
    /// Requests loads of these names, because others may have changed them or their holder may have expired.
    pub(super) fn request_loads<'n>(&mut self, names: impl IntoIterator<Item = &'n Name>) {
        for name in names {
            let number = self.next_number();
            let entry = self.entries.entry(name.clone()).or_default();
            entry.publish_after = Some(number);
            entry.load_first = true;
            self.make_ready(name, false);
        }
    }

    /// Caches a record that a scan has read, unless the cached one is newer or in use.
    fn cache_scanned(
        &mut self,
        name: Name,
        stored: Stored,
        (number, received): (u64, BootTime),
        first: bool,
        config: &Config,
    ) {
        let has_room = self.entries.len() < config.cache;
        let entry = self.entries.entry(name.clone()).or_default();
        let cached = entry.cached.as_ref();
        let is_newer = cached.is_some_and(|cached| {
            let fence = cached.stored.as_ref().map(|stored| stored.record.fence);
            cached.confirmed > number || fence > Some(stored.record.fence)
        });
        if entry.is_idle() && !is_newer {
            entry.publish_after = (!first && has_room).then_some(0);
            self.cache_record(&name, Some(stored), number, received, RecordSource::Read);
        }
    }

    /// Sends a new version of a record to the task that publishes events. `before` is what was cached until now.
    pub(super) fn send_change(
        &mut self,
        name: &Name,
        before: Option<Option<Stored>>,
        call: u64,
        received: BootTime,
        source: RecordSource,
    ) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        let is_requested = entry
            .publish_after
            .take_if(|number| *number <= call)
            .is_some();
        let cached = entry.cached.as_ref();
        let stored = cached.and_then(|cached| cached.stored.as_ref());
        let version = |stored: &Stored| stored.version.write;
        let before = match before {
            Some(old) if old.as_ref().map(version) == stored.map(version) => PreviousVersion::Same,
            Some(old) => PreviousVersion::Known(old.map(|old| old.record)),
            None if source == RecordSource::Written => PreviousVersion::Known(None),
            None if is_requested => PreviousVersion::Unknown,
            None => PreviousVersion::Same,
        };
        if matches!(before, PreviousVersion::Same) && !is_requested {
            return;
        }
        let (expired, remaining) = match stored {
            Some(stored) if is_requested => {
                let observations = self.observations.of(name);
                let now = self.clock.now(received, observations).for_kind(name.kind());
                let view = view(&stored.record, &now);
                let is_live = |fence| view.record.holders.iter().any(|is| is.fence == fence);
                let fences = stored.record.holders.iter().map(|is| is.fence);
                let expired = fences.filter(|fence| !is_live(*fence)).collect();
                (expired, view.remaining.into_iter().min())
            }
            _ => (Vec::new(), None),
        };
        let change = VersionChange {
            name: name.clone(),
            before,
            after: stored.map(|stored| stored.record.clone()),
            at: self.clock.interval(received).latest,
            received,
            expired,
            remaining,
        };
        if let Some(watch) = &self.watch
            && watch.changes.try_send(change).is_err()
        {
            watch.missed.store(true, Ordering::Release);
        }
    }
}

/// The task that publishes events.
struct EventPublisher {
    inner: Weak<Inner>,
    host: Arc<dyn Host>,
    /// Names with holders.
    held: HashMap<Name, HeldName>,
    timers: BTreeSet<(BootTime, Name)>,
    max_held: usize,
    missed: Arc<AtomicBool>,
}

/// A name with holders.
#[derive(Default)]
struct HeldName {
    /// When to check whether a holder has expired.
    check_at: Option<BootTime>,
    /// Holders whose end was published although the record still contains them.
    ended: Vec<Fence>,
}

impl EventPublisher {
    fn new(inner: &Arc<Inner>, missed: Arc<AtomicBool>) -> Self {
        Self {
            inner: Arc::downgrade(inner),
            host: Arc::clone(&inner.host),
            held: HashMap::new(),
            timers: BTreeSet::new(),
            max_held: inner.config.cache,
            missed,
        }
    }

    async fn run(mut self, mut incoming: mpsc::Receiver<VersionChange>) {
        let mut interval = tokio::time::interval(WATCH_INTERVAL);
        loop {
            let due = self.timers.first().map(|(at, _)| *at);
            let host = Arc::clone(&self.host);
            let timer = async {
                match due {
                    Some(at) => sleep_until(&*host, at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = interval.tick() => {
                    let Some(inner) = self.inner.upgrade() else { return };
                    if inner.stop_watching() {
                        return;
                    }
                    inner.store.watch();
                }
                change = incoming.recv() => match (change, self.inner.upgrade()) {
                    (Some(change), Some(inner)) => self.publish(change, &inner),
                    _ => return,
                },
                () = timer => {
                    let Some(inner) = self.inner.upgrade() else { return };
                    self.check_expired(&inner);
                }
            }
        }
    }

    fn publish(&mut self, change: VersionChange, inner: &Inner) {
        if self.missed.swap(false, Ordering::AcqRel) {
            let _ = inner.events.send(Err(EventsMissed));
        }
        let mut held = self.held.remove(&change.name).unwrap_or_default();
        if let Some(at) = held.check_at.take() {
            self.timers.remove(&(at, change.name.clone()));
        }
        let after = change.after.as_deref();
        let mut events = match &change.before {
            PreviousVersion::Unknown => latest(after).into_iter().collect(),
            PreviousVersion::Same => Vec::new(),
            PreviousVersion::Known(before) => events(before.as_deref(), after),
        };
        let is_published = |event: &Event| matches!(event, Event::Ended { fence, .. } if held.ended.contains(fence));
        events.retain(|event| !is_published(event));
        let holders = after.map_or(&[][..], |record| &record.holders);
        held.ended
            .retain(|fence| holders.iter().any(|is| is.fence == *fence));
        for holder in holders
            .iter()
            .filter(|is| change.expired.contains(&is.fence))
        {
            if !held.ended.contains(&holder.fence) {
                held.ended.push(holder.fence);
                if holder.broken.is_none() {
                    events.push(Event::ended(holder, Some(EndReason::Expired)));
                }
            }
        }
        let live = holders.iter().filter(|is| !held.ended.contains(&is.fence));
        let expires_at = live.map(|is| is.expires_at).min();
        let remaining = expires_at.map(|at| change.remaining.unwrap_or(at.since(change.at)));
        held.check_at = remaining.map(|remaining| change.received + remaining + EXPIRY_GRACE);
        for event in events {
            let (name, at) = (change.name.clone(), change.at);
            let _ = inner.events.send(Ok(EngineEvent { name, event, at }));
        }
        if !holders.is_empty() && self.held.len() < self.max_held {
            let timer = held.check_at.map(|at| (at, change.name.clone()));
            self.timers.extend(timer);
            self.held.insert(change.name, held);
        }
    }

    /// Requests loads of the names whose holder should have expired. The results come back as changes.
    fn check_expired(&mut self, inner: &Arc<Inner>) {
        let boot = self.host.boot_time();
        let mut due = Vec::new();
        while let Some((at, name)) = self.timers.pop_first() {
            if at > boot || due.len() >= MAX_LOADS {
                self.timers.insert((at, name));
                break;
            }
            if let Some(held) = self.held.get_mut(&name) {
                held.check_at = None;
            }
            due.push(name);
        }
        inner.table().request_loads(&due);
        inner.drive();
    }
}

impl Inner {
    /// Stops watching if there are no subscribers. Returns whether it has stopped.
    fn stop_watching(&self) -> bool {
        let mut table = self.table();
        let is_unused = self.events.receiver_count() == 0;
        if is_unused {
            table.watch = None;
        }
        is_unused
    }
}
