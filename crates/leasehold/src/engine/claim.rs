//! Leases work items of a state, and waits for some.
//!
//! A claim is one search and one batch of writes: what the search shows is tried at once, since every write checks the
//! version that it was planned on. Items that others were quicker to take are made up for in further rounds, which look
//! further and pick at random, so that a fleet does not fight for the same oldest few.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{
    Acquire, BootTime, Fence, Hash, Kind, Mode, Name, Nonce, Operation, Outcome, Text, apply,
};

use super::table::Table;
use super::watch::Learnt;
use super::{Engine, Reply, bounded, jittered};
use crate::host::sleep_until;
use crate::leases::ClaimRequest;
use crate::store::{Answer, Availability, Page, Query, Stored};
use crate::{Error, Result};

/// How often a claim looks again for items in place of those that others were quicker to take.
const ROUNDS: u32 = 4;
/// How much further it looks then.
const FURTHER: usize = 8;
/// The most pages that one round reads: a store may show items that are held.
const PAGES: usize = 64;
/// The shortest pause between two searches of one who waits, however many hints there are.
const BREATH: Duration = Duration::from_millis(10);
/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often in a ttl a waiting claim looks at items whose expiry is too far ahead.
const LOOKS_PER_TTL: u32 = 4;

impl Engine {
    /// Leases up to `limit` free items of a state, oldest first. While there is none it waits for as long as the
    /// request says: those who wait for the same are served first come, first served. Empty if there still is none.
    /// It is answered within the engine's timeout after that wait.
    ///
    /// A fresh grant in a reply that is dropped without [`take`](Reply::take) is released. What is claimed belongs to the
    /// principal, where somebody has authenticated.
    pub async fn claim(
        &self,
        request: ClaimRequest,
        principal: Option<Text>,
    ) -> Result<Vec<(Name, Reply)>> {
        let operation = self.claiming(&request, principal)?;
        let asked = self.inner.host.boot_time();
        let give_up = asked + request.wait;
        let end = give_up + self.inner.config.timeout;
        if request.wait.is_zero() {
            return self.claim_now(&request, &operation, end, true).await;
        }
        let line = self
            .inner
            .claimants
            .join(&request, self.inner.config.waiters)?;
        let turn = tokio::time::timeout(request.wait, line.queue.turn.lock());
        let Ok(_first) = turn.await else {
            let now = self.inner.host.boot_time();
            let since = asked.max(now - self.inner.config.timeout);
            return match line.queue.was_empty_since(since) {
                true => Ok(Vec::new()),
                // The first claim in line has had no answer for so long.
                false => self.claim_now(&request, &operation, end, false).await,
            };
        };
        let mut pause = self.inner.facts.poll;
        let mut observe_at = BootTime::default();
        loop {
            let mut freed = std::pin::pin!(self.inner.items.notified());
            // From before the search, so that nothing falls between the two.
            freed.as_mut().enable();
            if self.inner.table().is_closed() {
                return Err(super::closing());
            }
            let now = self.inner.host.boot_time();
            let observes = now >= observe_at;
            if observes {
                observe_at = now + request.ttl / LOOKS_PER_TTL;
            }
            let claimed = self.claim_now(&request, &operation, end, observes).await?;
            if claimed.is_empty() {
                line.queue.note_empty(now);
            }
            if !claimed.is_empty() || self.inner.host.boot_time() >= give_up {
                return Ok(claimed);
            }
            let look_again = jittered(&*self.inner.host, pause).min(give_up);
            tokio::select! {
                () = freed => {
                    let breath = jittered(&*self.inner.host, BREATH).min(give_up);
                    sleep_until(&*self.inner.host, breath).await;
                }
                () = sleep_until(&*self.inner.host, look_again) => {
                    pause = (pause * 2).min(LONGEST_PAUSE.max(self.inner.facts.poll));
                }
            }
        }
    }

    /// The operation that leases an item of the request, of whichever name.
    fn claiming(&self, request: &ClaimRequest, principal: Option<Text>) -> Result<Operation> {
        if !(1..=ClaimRequest::MOST_ITEMS).contains(&request.limit) {
            return Err(Error::invalid(format!(
                "the limit is {}: it must be from 1 to {}",
                request.limit,
                ClaimRequest::MOST_ITEMS
            )));
        }
        let operation = Operation::Acquire(Acquire {
            // Each item has its own: see `claiming_item`.
            nonce: Hash::of(&[]),
            owner: request.owner.clone(),
            principal,
            ttl: request.ttl,
            mode: Mode::Exclusive,
            fence: None,
            floor: Fence::default(),
            in_state: Some(request.state.clone()),
        });
        operation.check(Kind::Lock)?;
        self.check_ttl(Kind::Lock, &operation)?;
        Ok(operation)
    }

    /// Claims what is free now, until `end` at the latest. Where nothing is, it `observes` holders whose expiry is too far
    /// ahead.
    async fn claim_now(
        &self,
        request: &ClaimRequest,
        operation: &Operation,
        end: BootTime,
        observes: bool,
    ) -> Result<Vec<(Name, Reply)>> {
        let mut claimed = Vec::new();
        for round in 0..ROUNDS {
            if round > 0 && self.is_late(end) {
                break;
            }
            let want = request.limit - claimed.len();
            let look = if round == 0 { want } else { want * FURTHER };
            let observes = observes && round == 0;
            let found = self.claimable(request, operation, look, end, observes);
            let mut found = match found.await {
                Ok(found) => found,
                Err(error) if claimed.is_empty() => return Err(error),
                Err(_) => break,
            };
            if round == 0 {
                found.names.truncate(want);
            } else {
                self.pick(&mut found.names, want);
            }
            let tries = found.names.into_iter();
            let tries: Vec<_> = tries
                .map(|name| {
                    (
                        name.clone(),
                        claiming_item(operation, &request.nonce, &name),
                    )
                })
                .collect();
            let names: Vec<_> = tries.iter().map(|(name, _)| name.clone()).collect();
            let within = end.since(self.inner.host.boot_time());
            let answers = self.perform_all(tries, Some(within)).await;
            let mut trouble = None;
            for (name, answer) in names.into_iter().zip(answers) {
                match answer {
                    Ok(reply) if matches!(reply.outcome(), Outcome::Granted(_)) => {
                        claimed.push((name, reply));
                    }
                    Ok(_) => found.contended = true,
                    Err(error) => trouble = Some(error),
                }
            }
            match trouble {
                Some(error) if claimed.is_empty() => return Err(error),
                None if found.contended && claimed.len() < request.limit => {}
                _ => break,
            }
        }
        Ok(claimed)
    }

    /// Whether so much of the time of a claim is over that no further search or round begins: what has begun needs the rest.
    fn is_late(&self, end: BootTime) -> bool {
        self.inner.host.boot_time() + self.inner.config.timeout / 2 > end
    }

    /// Returns items that could be claimed as far as the store shows: `look` of them, if there are as many.
    async fn claimable(
        &self,
        request: &ClaimRequest,
        operation: &Operation,
        look: usize,
        end: BootTime,
        observes: bool,
    ) -> Result<Claimable> {
        let free = self.free_items();
        let mut query = Query {
            kind: Kind::Lock,
            prefix: request.prefix.clone(),
            state: Some(request.state.clone()),
            availability: free,
            cursor: None,
            limit: match free {
                Some(_) => look.min(ClaimRequest::MOST_ITEMS),
                None => ClaimRequest::MOST_ITEMS,
            },
        };
        let found = self.search_items(&mut query, request, operation, look, end);
        let found = found.await?;
        let is_empty = found.names.is_empty() && !found.contended;
        if !(observes && is_empty && free.is_some()) || self.is_late(end) {
            return Ok(found);
        }
        // No step of the store's clock was noticed, but there may have been one before this engine was started.
        query.availability = Some(self.items_too_far_ahead(request.ttl));
        (query.cursor, query.limit) = (None, ClaimRequest::MOST_ITEMS);
        let found = self.search_items(&mut query, request, operation, look, end);
        found.await
    }

    /// Searches page by page for items that could be claimed, until there are `look` of them.
    async fn search_items(
        &self,
        query: &mut Query,
        request: &ClaimRequest,
        operation: &Operation,
        look: usize,
        end: BootTime,
    ) -> Result<Claimable> {
        let mut found = Claimable::default();
        for _ in 0..PAGES {
            let within = end.since(self.inner.host.boot_time());
            let searched = self.search_within(query, within).await?;
            let mut table = self.inner.table();
            for (name, stored) in searched.page.records {
                let call = (searched.number, searched.received);
                let claiming = claiming_item(operation, &request.nonce, &name);
                match table.learn(&name, stored, call, &claiming) {
                    Learned::Claimable => found.names.push(name),
                    Learned::Busy => found.contended = true,
                    Learned::Taken => {}
                }
            }
            table.evict(&self.inner.config);
            query.cursor = searched.page.cursor;
            drop(table);
            if found.names.len() >= look || query.cursor.is_none() || self.is_late(end) {
                break;
            }
        }
        Ok(found)
    }

    /// What to skip in a search for free items: those whose expiry is ahead, unless the store's clock was stepped back. Then
    /// an expiry proves nothing until the clock has caught up, and holders are to be observed.
    fn free_items(&self) -> Option<Availability> {
        let boot = self.inner.host.boot_time();
        let clock = &self.inner.table().clock;
        let earliest = clock.interval(boot).earliest;
        (!clock.is_behind(boot)).then_some(Availability::Free(earliest))
    }

    /// Items whose expiry is further ahead than a claim with this ttl could have put it: a clock that has stepped back
    /// since may have written it, so these holders are to be observed.
    fn items_too_far_ahead(&self, ttl: Duration) -> Availability {
        let boot = self.inner.host.boot_time();
        Availability::Held(self.inner.table().clock.latest_expiry(boot, ttl))
    }

    /// Picks so many at random, and leaves them in their order.
    fn pick(&self, names: &mut Vec<Name>, want: usize) {
        while names.len() > want {
            let at = self.inner.host.random() % names.len() as u128;
            names.remove(at as usize);
        }
    }

    /// Asks the store for a page of records.
    pub(super) async fn search(&self, query: &Query) -> Result<Searched> {
        self.search_within(query, self.inner.config.timeout).await
    }

    async fn search_within(&self, query: &Query, within: Duration) -> Result<Searched> {
        let number = {
            let mut table = self.inner.table();
            table.counts.searches += 1;
            table.next_number()
        };
        let sent = self.inner.host.boot_time();
        let within = within.min(self.inner.config.timeout);
        let answer = bounded(within, self.inner.store.find(query)).await;
        let received = self.inner.host.boot_time();
        self.inner.measures.find.took(received.since(sent));
        let answer = answer.inspect_err(|failure| self.inner.measures.failed(failure, received))?;
        let Answer { value: page, stamp } = answer;
        self.inner.table().learn_time(sent, received, stamp);
        Ok(Searched {
            page,
            number,
            received,
        })
    }
}

/// A page of records, and the call that showed it.
pub(super) struct Searched {
    pub(super) page: Page,
    pub(super) number: u64,
    pub(super) received: BootTime,
}

/// Items that could be claimed.
#[derive(Default)]
struct Claimable {
    names: Vec<Name>,
    /// Others are taking some.
    contended: bool,
}

/// What a search means for one who wants the item.
enum Learned {
    Claimable,
    /// Somebody in this engine is at it.
    Busy,
    Taken,
}

impl Table {
    /// Takes what a search has shown into the cache, so that it can be tried at once. It confirms nothing: an index may
    /// lag behind. A holder in doubt that is in the way is observed from now on.
    fn learn(
        &mut self,
        name: &Name,
        stored: Stored,
        call: (u64, BootTime),
        wanted: &Operation,
    ) -> Learned {
        let (number, received) = call;
        let entry = self.entries.get(name);
        if entry.is_some_and(|entry| !entry.is_quiet()) {
            return Learned::Busy;
        }
        let known = entry.and_then(|entry| entry.cached.as_ref());
        let newer = known.is_some_and(|cached| cached.confirmed > number);
        let record = match known.filter(|_| newer) {
            Some(cached) => cached.stored.as_ref().map(|stored| &*stored.record),
            None => Some(&*stored.record),
        };
        let decision = apply(
            record,
            wanted,
            &self.clock.now(received, self.observations.of(name)),
        );
        if !matches!(decision.outcome, Outcome::Granted(_)) {
            self.observe(name, Some(&stored.record), call);
            return Learned::Taken;
        }
        if !newer {
            self.entries.entry(name.clone()).or_default();
            self.remember(name, Some(stored), 0, received, Learnt::Shown);
        }
        Learned::Claimable
    }
}

/// The same operation for one item, with what identifies it under that name.
fn claiming_item(operation: &Operation, nonce: &Nonce, name: &Name) -> Operation {
    let mut operation = operation.clone();
    if let Operation::Acquire(acquire) = &mut operation {
        acquire.nonce = nonce.hash(name);
    }
    operation
}

/// Waiting claims: a queue for each state and prefix, of which only the first searches.
#[derive(Default)]
pub(super) struct Lines {
    lines: Mutex<HashMap<Key, Arc<Queue>>>,
}

type Key = (Text, String);

/// The claims that wait for items of one state and prefix.
#[derive(Default)]
struct Queue {
    turn: tokio::sync::Mutex<()>,
    /// When the last search that found no item began, in microseconds of the boot clock.
    empty_at: AtomicU64,
}

impl Queue {
    fn note_empty(&self, began: BootTime) {
        self.empty_at
            .fetch_max(began.as_micros(), Ordering::Relaxed);
    }

    /// Whether a search that began at this moment or later has found no item.
    fn was_empty_since(&self, since: BootTime) -> bool {
        self.empty_at.load(Ordering::Relaxed) >= since.as_micros()
    }
}

impl Lines {
    fn join(&self, request: &ClaimRequest, most: usize) -> Result<Place<'_>> {
        let key = (request.state.clone(), request.prefix.clone());
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting: usize = lines
            .values()
            .map(|queue| Arc::strong_count(queue) - 1)
            .sum();
        if waiting >= most {
            return Err(Error::Unavailable(
                "too many waiters at once: ask again later".into(),
            ));
        }
        let queue = lines.entry(key.clone()).or_default().clone();
        let lines = self;
        Ok(Place { lines, key, queue })
    }
}

/// A claim's place in its queue. The queue is dropped with the last one.
struct Place<'l> {
    lines: &'l Lines,
    key: Key,
    queue: Arc<Queue>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let lines = self.lines.lines.lock();
        let mut lines = lines.unwrap_or_else(PoisonError::into_inner);
        if Arc::strong_count(&self.queue) <= 2 {
            lines.remove(&self.key);
        }
    }
}
