//! Watching: what happens under every name, for those who subscribe.
//!
//! While somebody does, the engine hands every version of a record that is new to it to one task, which compares it
//! with the one before by the core's [`events`]. Operations never wait for that. Names that the store hints at are
//! loaded, so that what other engines do is told too; and so are those whose holder's time is over, since nothing is
//! written when a lease expires.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::{BootTime, EndReason, Event, Fence, Name, Record, Time, events, latest, view};
use tokio::sync::{broadcast, mpsc};

use super::table::Table;
use super::{Config, Engine, Inner};
use crate::Result;
use crate::host::{Host, sleep_until};
use crate::store::{Query, Stored};

/// How often the store is told that somebody watches, and how often it is looked whether anybody still does.
const ROUND: Duration = Duration::from_secs(10);
/// How long after a holder's time the store is asked whether it is over.
const GRACE: Duration = Duration::from_millis(20);
/// The most names that are looked at together.
const PAGE: usize = 500;

/// Something that happened, as this engine saw it.
#[derive(Clone, Debug)]
pub struct Happened {
    /// Under which name.
    pub name: Name,
    /// What.
    pub event: Event,
    /// When this engine saw it, in the store's time.
    pub at: Time,
}

/// Some events were missed: whoever wants to know what is has to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed;

/// What happens, one after the other. Ends with the engine.
#[derive(Debug)]
pub struct Events {
    receiver: broadcast::Receiver<Result<Happened, Missed>>,
}

impl Events {
    /// The next. `None` once the engine is gone.
    pub async fn next(&mut self) -> Option<Result<Happened, Missed>> {
        match self.receiver.recv().await {
            Ok(told) => Some(told),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Err(Missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// Where new versions of records go while somebody watches.
pub(super) struct Watch {
    seen: mpsc::Sender<Seen>,
    /// The task was too slow for some.
    missed: Arc<AtomicBool>,
}

/// A version of a record that is new to this engine, or that it was asked to look at.
pub(super) struct Seen {
    name: Name,
    before: Before,
    after: Option<Arc<Record>>,
    at: Time,
    received: BootTime,
    /// The fences of holders that are over although nobody has written so; and how long the others have at least.
    over: Vec<Fence>,
    left: Option<Duration>,
}

/// The version before.
enum Before {
    /// This engine never saw one.
    Unknown,
    /// The same: nothing happened.
    Same,
    Known(Option<Arc<Record>>),
}

/// How a version of a record came to be known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Learnt {
    /// This engine wrote it, on the version before.
    Written,
    /// A store showed it.
    Shown,
}

impl Engine {
    /// Everything that happens from now on: what this engine does, and what others do as far as the store hints at it.
    /// A subscriber that lags behind is told that it [`Missed`] some.
    ///
    /// Of a name that this engine had not seen before, only what happened [last](latest) is told.
    pub fn subscribe(&self) -> Events {
        let mut table = self.inner.table();
        let receiver = self.inner.events.subscribe();
        if table.watch.is_none() {
            let (seen, incoming) = mpsc::channel(self.inner.config.events);
            let missed: Arc<AtomicBool> = Arc::default();
            let watcher = Watcher::new(&self.inner, Arc::clone(&missed));
            table.watch = Some(Watch { seen, missed });
            self.inner.runtime.spawn(watcher.run(incoming));
        }
        Events { receiver }
    }

    /// Whether the store hints at what others do, so that subscribers are told of it.
    pub fn is_hinted(&self) -> bool {
        self.inner.hints
    }

    /// Looks at all names that start with `prefix`, so that subscribers are told what has changed since this engine
    /// last saw them: for stores that give no hints. The `first` time nothing is told of names not seen before.
    pub async fn look_over(&self, prefix: &str, first: bool) -> Result<()> {
        for kind in leasehold_core::Kind::ALL {
            let mut query = Query {
                prefix: prefix.to_owned(),
                limit: PAGE,
                ..Query::all(kind)
            };
            loop {
                let found = self.search(&query).await?;
                let mut table = self.inner.table();
                for (name, stored) in found.page.records {
                    let call = (found.number, found.received);
                    table.look_over(name, stored, call, first, &self.inner.config);
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
    /// Has the store asked for these names, because others may have changed them or their holder's time is over.
    pub(super) fn look_at<'n>(&mut self, names: impl IntoIterator<Item = &'n Name>) {
        for name in names {
            let number = self.next_number();
            let entry = self.entries.entry(name.clone()).or_default();
            entry.look = Some(number);
            entry.load_first = true;
            self.make_ready(name, false);
        }
    }

    fn look_over(
        &mut self,
        name: Name,
        stored: Stored,
        (number, received): (u64, BootTime),
        first: bool,
        config: &Config,
    ) {
        let room = self.entries.len() < config.cache;
        let entry = self.entries.entry(name.clone()).or_default();
        let known = entry.cached.as_ref();
        let newer = known.is_some_and(|cached| {
            let fence = cached.stored.as_ref().map(|stored| stored.record.fence);
            cached.confirmed > number || fence > Some(stored.record.fence)
        });
        if entry.is_quiet() && !newer {
            entry.look = (!first && room).then_some(0);
            self.remember(&name, Some(stored), number, received, Learnt::Shown);
        }
    }

    /// Hands on a version of a record, if it is news to those who watch. `before` is what was known until now.
    pub(super) fn tell(
        &mut self,
        name: &Name,
        before: Option<Option<Stored>>,
        call: u64,
        received: BootTime,
        learnt: Learnt,
    ) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        let looked = entry.look.take_if(|number| *number <= call).is_some();
        let cached = entry.cached.as_ref();
        let stored = cached.and_then(|cached| cached.stored.as_ref());
        let version = |stored: &Stored| stored.version.write;
        let before = match before {
            Some(old) if old.as_ref().map(version) == stored.map(version) => Before::Same,
            Some(old) => Before::Known(old.map(|old| old.record)),
            None if learnt == Learnt::Written => Before::Known(None),
            None if looked => Before::Unknown,
            None => Before::Same,
        };
        if matches!(before, Before::Same) && !looked {
            return;
        }
        let (over, left) = match stored {
            Some(stored) if looked => {
                let seen = self.observations.of(name);
                let now = self.clock.now(received, seen).for_kind(name.kind());
                let now = view(&stored.record, &now);
                let live = |fence| now.record.holders.iter().any(|is| is.fence == fence);
                let fences = stored.record.holders.iter().map(|is| is.fence);
                let over = fences.filter(|fence| !live(*fence)).collect();
                (over, now.remaining.into_iter().min())
            }
            _ => (Vec::new(), None),
        };
        let seen = Seen {
            name: name.clone(),
            before,
            after: stored.map(|stored| stored.record.clone()),
            at: self.clock.interval(received).latest,
            received,
            over,
            left,
        };
        if let Some(watch) = &self.watch
            && watch.seen.try_send(seen).is_err()
        {
            watch.missed.store(true, Ordering::Release);
        }
    }
}

/// Tells subscribers what they see change.
struct Watcher {
    inner: Weak<Inner>,
    host: Arc<dyn Host>,
    /// Names that somebody holds.
    held: HashMap<Name, Held>,
    timers: BTreeSet<(BootTime, Name)>,
    most: usize,
    missed: Arc<AtomicBool>,
}

/// A name that somebody holds.
#[derive(Default)]
struct Held {
    /// When to ask whether that is over.
    at: Option<BootTime>,
    /// Holders of whose end was told before anybody wrote it.
    over: Vec<Fence>,
}

impl Watcher {
    fn new(inner: &Arc<Inner>, missed: Arc<AtomicBool>) -> Self {
        Self {
            inner: Arc::downgrade(inner),
            host: Arc::clone(&inner.host),
            held: HashMap::new(),
            timers: BTreeSet::new(),
            most: inner.config.cache,
            missed,
        }
    }

    async fn run(mut self, mut incoming: mpsc::Receiver<Seen>) {
        let mut round = tokio::time::interval(ROUND);
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
                _ = round.tick() => {
                    let Some(inner) = self.inner.upgrade() else { return };
                    if inner.stop_watching() {
                        return;
                    }
                    inner.store.watch();
                }
                seen = incoming.recv() => match (seen, self.inner.upgrade()) {
                    (Some(seen), Some(inner)) => self.tell(seen, &inner),
                    _ => return,
                },
                () = timer => {
                    let Some(inner) = self.inner.upgrade() else { return };
                    self.wake(&inner);
                }
            }
        }
    }

    fn tell(&mut self, seen: Seen, inner: &Inner) {
        if self.missed.swap(false, Ordering::AcqRel) {
            let _ = inner.events.send(Err(Missed));
        }
        let mut held = self.held.remove(&seen.name).unwrap_or_default();
        if let Some(at) = held.at.take() {
            self.timers.remove(&(at, seen.name.clone()));
        }
        let after = seen.after.as_deref();
        let mut told = match &seen.before {
            Before::Unknown => latest(after).into_iter().collect(),
            Before::Same => Vec::new(),
            Before::Known(before) => events(before.as_deref(), after),
        };
        let known = |event: &Event| matches!(event, Event::Ended { fence, .. } if held.over.contains(fence));
        told.retain(|event| !known(event));
        let holders = after.map_or(&[][..], |record| &record.holders);
        held.over
            .retain(|fence| holders.iter().any(|is| is.fence == *fence));
        for holder in holders.iter().filter(|is| seen.over.contains(&is.fence)) {
            if !held.over.contains(&holder.fence) {
                held.over.push(holder.fence);
                if holder.broken.is_none() {
                    told.push(Event::ended(holder, Some(EndReason::Expired)));
                }
            }
        }
        let live = holders.iter().filter(|is| !held.over.contains(&is.fence));
        let ends = live.map(|is| is.expires_at).min();
        let left = ends.map(|ends| seen.left.unwrap_or(ends.since(seen.at)));
        held.at = left.map(|left| seen.received + left + GRACE);
        for event in told {
            let (name, at) = (seen.name.clone(), seen.at);
            let _ = inner.events.send(Ok(Happened { name, event, at }));
        }
        if !holders.is_empty() && self.held.len() < self.most {
            let timer = held.at.map(|at| (at, seen.name.clone()));
            self.timers.extend(timer);
            self.held.insert(seen.name, held);
        }
    }

    /// Has all names looked at whose holder's time is over. What the store shows comes back as seen.
    fn wake(&mut self, inner: &Arc<Inner>) {
        let boot = self.host.boot_time();
        let mut due = Vec::new();
        while let Some((at, name)) = self.timers.pop_first() {
            if at > boot || due.len() >= PAGE {
                self.timers.insert((at, name));
                break;
            }
            if let Some(held) = self.held.get_mut(&name) {
                held.at = None;
            }
            due.push(name);
        }
        inner.table().look_at(&due);
        inner.drive();
    }
}

impl Inner {
    /// Stops watching if nobody subscribes any more.
    fn stop_watching(&self) -> bool {
        let mut table = self.table();
        let over = self.events.receiver_count() == 0;
        if over {
            table.watch = None;
        }
        over
    }
}
