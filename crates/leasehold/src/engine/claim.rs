//! Claims work items of a state, and waits for some.
//!
//! A claim is one search and one batch of writes. The writes are based on what the search shows, because each write
//! checks the version that it was planned on. If other workers take some of the items first, further rounds search more
//! items and pick from them at random, so that a fleet of workers does not contend for the same oldest items.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{
    Acquire, BootTime, Fence, Hash, Kind, Mode, Name, Nonce, Operation, Outcome, Text, apply,
};

use super::table::Table;
use super::watch::RecordSource;
use super::{Engine, Reply, SEARCH_PAGE, jittered};
use crate::host::sleep_until;
use crate::leases::ClaimRequest;
use crate::store::{Availability, Query, Stored};
use crate::{Error, Result, json_bytes};

/// The maximum number of rounds of a claim. A further round replaces items that other workers took first.
const MAX_ROUNDS: u32 = 4;
/// How many times as many items a further round searches.
const SEARCH_FACTOR: usize = 8;
/// The maximum number of pages that one round reads. A store may also return items that are held.
const MAX_PAGES: usize = 640;
/// The size of an item in an answer without its name and body.
const ITEM_BYTES: usize = 512;
/// The minimum pause between two searches of a waiting claim, regardless of the number of hints.
const MIN_PAUSE: Duration = Duration::from_millis(10);
/// The maximum pause.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// How often per ttl a waiting claim searches items whose expiry is too far in the future.
const OBSERVATIONS_PER_TTL: u32 = 4;

impl Engine {
    /// Claims up to `limit` free items of a state, oldest first, as long as they fit into
    /// [`MAX_BYTES`](ClaimRequest::MAX_BYTES). If there is none, waits for up to the `wait` of the request: claims
    /// for the same state and prefix are served in arrival order. Returns an empty list if there is still none. Returns
    /// within the engine's timeout after the wait.
    ///
    /// A fresh grant in a reply that is dropped without [`take`](Reply::take) is released. The items belong to the
    /// principal, if the caller was authenticated.
    pub async fn claim(
        &self,
        request: ClaimRequest,
        principal: Option<Text>,
    ) -> Result<Vec<(Name, Reply)>> {
        let operation = self.claim_operation(&request, principal)?;
        let started = self.inner.host.boot_time();
        let wait_until = started + request.wait;
        let end = wait_until + self.inner.config.timeout;
        if request.wait.is_zero() {
            return self.claim_now(&request, &operation, end, true).await;
        }
        let position = self
            .inner
            .claim_queues
            .join(&request, self.inner.config.waiters)?;
        let turn = tokio::time::timeout(request.wait, position.queue.turn.lock());
        let Ok(_first) = turn.await else {
            let now = self.inner.host.boot_time();
            let since = started.max(now - self.inner.config.timeout);
            return match position.queue.was_empty_since(since) {
                true => Ok(Vec::new()),
                // The first claim of the queue has had no answer for this long.
                false => self.claim_now(&request, &operation, end, false).await,
            };
        };
        let mut pause = self.inner.facts.poll;
        let mut observe_at = BootTime::default();
        loop {
            let mut freed = std::pin::pin!(self.inner.item_freed.notified());
            // Enabled before the search, so that no notification is missed.
            freed.as_mut().enable();
            if self.inner.table().is_closed() {
                return Err(super::closing_error());
            }
            let now = self.inner.host.boot_time();
            let observes = now >= observe_at;
            if observes {
                observe_at = now + request.ttl / OBSERVATIONS_PER_TTL;
            }
            let claimed = self.claim_now(&request, &operation, end, observes).await?;
            if claimed.is_empty() {
                position.queue.note_empty(now);
            }
            if !claimed.is_empty() || self.inner.host.boot_time() >= wait_until {
                return Ok(claimed);
            }
            let search_again = jittered(&*self.inner.host, pause).min(wait_until);
            tokio::select! {
                () = freed => {
                    let pause_end = jittered(&*self.inner.host, MIN_PAUSE).min(wait_until);
                    sleep_until(&*self.inner.host, pause_end).await;
                }
                () = sleep_until(&*self.inner.host, search_again) => {
                    pause = (pause * 2).min(MAX_PAUSE.max(self.inner.facts.poll));
                }
            }
        }
    }

    /// Returns the operation that claims an item of the request, without the nonce.
    fn claim_operation(
        &self,
        request: &ClaimRequest,
        principal: Option<Text>,
    ) -> Result<Operation> {
        if !(1..=ClaimRequest::MAX_ITEMS).contains(&request.limit) {
            return Err(Error::invalid(format!(
                "the limit is {}: it must be from 1 to {}",
                request.limit,
                ClaimRequest::MAX_ITEMS
            )));
        }
        let operation = Operation::Acquire(Acquire {
            // Set for each item by `item_operation`.
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

    /// Claims items that are free now, until `end` at the latest. If there is none and `observes` is set, observes
    /// holders whose expiry is too far in the future.
    async fn claim_now(
        &self,
        request: &ClaimRequest,
        operation: &Operation,
        end: BootTime,
        observes: bool,
    ) -> Result<Vec<(Name, Reply)>> {
        let mut claimed = Vec::new();
        let mut bytes = ClaimRequest::MAX_BYTES;
        for round in 0..MAX_ROUNDS {
            if round > 0 && self.is_late(end) {
                break;
            }
            let wanted = request.limit - claimed.len();
            let factor = if round == 0 { 1 } else { SEARCH_FACTOR };
            let target = Amount {
                items: wanted * factor,
                bytes: bytes * factor,
            };
            let observes = observes && round == 0;
            let found = self.claimable(request, operation, target, end, observes);
            let mut found = match found.await {
                Ok(found) => found,
                Err(error) if claimed.is_empty() => return Err(error),
                Err(_) => break,
            };
            if round == 0 {
                found.items.truncate(wanted);
            } else {
                self.pick(&mut found.items, wanted);
            }
            found.truncate_to_fit(bytes, claimed.is_empty());
            let items = found.items.iter();
            let operations: Vec<_> = items
                .map(|item| {
                    let operation = item_operation(operation, &request.nonce, &item.name);
                    (item.name.clone(), operation)
                })
                .collect();
            let within = end.since(self.inner.host.boot_time());
            let answers = self.perform_all(operations, Some(within)).await;
            let mut failure = None;
            for (item, answer) in found.items.into_iter().zip(answers) {
                match answer {
                    Ok(reply) if matches!(reply.outcome(), Outcome::Granted(_)) => {
                        bytes = bytes.saturating_sub(item.bytes);
                        claimed.push((item.name, reply));
                    }
                    Ok(_) => found.contended = true,
                    Err(error) => failure = Some(error),
                }
            }
            match failure {
                Some(error) if claimed.is_empty() => return Err(error),
                None if found.contended && claimed.len() < request.limit => {}
                _ => break,
            }
        }
        Ok(claimed)
    }

    /// Whether it is too late for another search or round: the rest of the time is for those that have started.
    fn is_late(&self, end: BootTime) -> bool {
        self.inner.host.boot_time() + self.inner.config.timeout / 2 > end
    }

    /// Returns the next items that can probably be claimed: at least `target`, if there are as many.
    async fn claimable(
        &self,
        request: &ClaimRequest,
        operation: &Operation,
        target: Amount,
        end: BootTime,
        observes: bool,
    ) -> Result<ClaimableItems> {
        let free = self.free_items();
        let mut query = Query {
            kind: Kind::Lock,
            prefix: request.prefix.clone(),
            state: Some(request.state.clone()),
            availability: free,
            cursor: None,
            limit: match free {
                Some(_) => target.items.min(SEARCH_PAGE),
                None => SEARCH_PAGE,
            },
        };
        let found = self.search_items(&mut query, request, operation, target, end);
        let found = found.await?;
        let is_empty = found.items.is_empty() && !found.contended;
        if !(observes && is_empty && free.is_some()) || self.is_late(end) {
            return Ok(found);
        }
        // This engine has noticed no step of the store's clock, but there may have been one before its start.
        query.availability = Some(self.items_too_far_ahead(request.ttl));
        (query.cursor, query.limit) = (None, SEARCH_PAGE);
        let found = self.search_items(&mut query, request, operation, target, end);
        found.await
    }

    /// Searches page by page for items that can be claimed, until there are `target` of them.
    async fn search_items(
        &self,
        query: &mut Query,
        request: &ClaimRequest,
        operation: &Operation,
        target: Amount,
        end: BootTime,
    ) -> Result<ClaimableItems> {
        let mut found = ClaimableItems::default();
        for page in 0..MAX_PAGES {
            if page > 0 {
                // A store in memory answers immediately, and pages are large.
                tokio::task::yield_now().await;
            }
            let within = end.since(self.inner.host.boot_time());
            let searched = self.search_within(query, within).await?;
            let mut table = self.inner.table();
            for (name, stored) in searched.page.records {
                if found.is_enough(target) {
                    break;
                }
                let call = (searched.number, searched.received);
                let operation = item_operation(operation, &request.nonce, &name);
                let bytes =
                    ITEM_BYTES + json_bytes(name.as_str()) + json_bytes(&stored.record.body);
                match table.cache_found_item(&name, stored, call, &operation) {
                    ItemStatus::Claimable => found.add(Item { name, bytes }),
                    ItemStatus::Busy => found.contended = true,
                    ItemStatus::Taken => {}
                }
            }
            table.evict(&self.inner.config);
            query.cursor = searched.page.cursor;
            drop(table);
            if found.is_enough(target) || query.cursor.is_none() || self.is_late(end) {
                break;
            }
        }
        Ok(found)
    }

    /// Returns the restriction of a search to free items. `None` if the store's clock was stepped back: until it has
    /// caught up, an expiry proves nothing, and holders have to be observed.
    fn free_items(&self) -> Option<Availability> {
        let boot = self.inner.host.boot_time();
        let clock = &self.inner.table().clock;
        let earliest = clock.interval(boot).earliest;
        (!clock.is_behind(boot)).then_some(Availability::Free(earliest))
    }

    /// Returns the restriction of a search to items whose expiry is later than a claim with this ttl could have set it.
    /// The store's clock may have stepped back since, so these holders have to be observed.
    fn items_too_far_ahead(&self, ttl: Duration) -> Availability {
        let boot = self.inner.host.boot_time();
        Availability::Held(self.inner.table().clock.latest_expiry(boot, ttl))
    }

    /// Keeps this many items, chosen at random, in their order.
    fn pick(&self, items: &mut Vec<Item>, wanted: usize) {
        while items.len() > wanted {
            let at = self.inner.host.random() % items.len() as u128;
            items.remove(at as usize);
        }
    }
}

/// A limit on the number of items and on their bytes: the first that is reached applies.
#[derive(Clone, Copy)]
struct Amount {
    items: usize,
    bytes: usize,
}

/// An item that can probably be claimed, and its size in an answer.
struct Item {
    name: Name,
    bytes: usize,
}

/// Items that can probably be claimed.
#[derive(Default)]
struct ClaimableItems {
    items: Vec<Item>,
    bytes: usize,
    /// Whether other claims are taking some.
    contended: bool,
}

impl ClaimableItems {
    fn add(&mut self, item: Item) {
        self.bytes += item.bytes;
        self.items.push(item);
    }

    fn is_enough(&self, target: Amount) -> bool {
        self.items.len() >= target.items || self.bytes >= target.bytes
    }

    /// Keeps the first items that fit into this many bytes, and at least one if `at_least_one` is set.
    fn truncate_to_fit(&mut self, max_bytes: usize, at_least_one: bool) {
        let mut bytes = 0;
        let fitting = self.items.iter().take_while(|item| {
            bytes += item.bytes;
            bytes <= max_bytes
        });
        let fitting = fitting.count().max(usize::from(at_least_one));
        self.items.truncate(fitting);
    }
}

/// Whether an item that a search has shown can be claimed.
enum ItemStatus {
    Claimable,
    /// Another operation of this engine is queued for it.
    Busy,
    Taken,
}

impl Table {
    /// Caches an item that a search has shown, so that it can be claimed without a load. It does not count as
    /// confirmed, because an index may lag behind. A holder of uncertain expiry is observed from now on.
    fn cache_found_item(
        &mut self,
        name: &Name,
        stored: Stored,
        call: (u64, BootTime),
        operation: &Operation,
    ) -> ItemStatus {
        let (number, received) = call;
        let entry = self.entries.get(name);
        if entry.is_some_and(|entry| !entry.is_idle()) {
            return ItemStatus::Busy;
        }
        let known = entry.and_then(|entry| entry.cached.as_ref());
        let is_newer = known.is_some_and(|cached| cached.confirmed > number);
        let record = match known.filter(|_| is_newer) {
            Some(cached) => cached.stored.as_ref().map(|stored| &*stored.record),
            None => Some(&*stored.record),
        };
        let decision = apply(
            record,
            operation,
            &self.clock.now(received, self.observations.of(name)),
        );
        if !matches!(decision.outcome, Outcome::Granted(_)) {
            self.observe(name, Some(&stored.record), call);
            return ItemStatus::Taken;
        }
        if !is_newer {
            self.entries.entry(name.clone()).or_default();
            self.cache_record(name, Some(stored), 0, received, RecordSource::Read);
        }
        ItemStatus::Claimable
    }
}

/// Returns the operation with the nonce for this item.
fn item_operation(operation: &Operation, nonce: &Nonce, name: &Name) -> Operation {
    let mut operation = operation.clone();
    if let Operation::Acquire(acquire) = &mut operation {
        acquire.nonce = nonce.hash(name);
    }
    operation
}

/// Waiting claims, in a queue for each state and prefix. Only the first claim of a queue searches.
#[derive(Default)]
pub(super) struct ClaimQueues {
    queues: Mutex<HashMap<Key, Arc<ClaimQueue>>>,
}

type Key = (Text, String);

/// Claims that wait for items of one state and prefix.
#[derive(Default)]
struct ClaimQueue {
    turn: tokio::sync::Mutex<()>,
    /// When the last search that found no item began, in microseconds of the boot clock.
    empty_at: AtomicU64,
}

impl ClaimQueue {
    fn note_empty(&self, began: BootTime) {
        self.empty_at
            .fetch_max(began.as_micros(), Ordering::Relaxed);
    }

    /// Whether a search that began at this time or later has found no item.
    fn was_empty_since(&self, since: BootTime) -> bool {
        self.empty_at.load(Ordering::Relaxed) >= since.as_micros()
    }
}

impl ClaimQueues {
    fn join(&self, request: &ClaimRequest, max_waiters: usize) -> Result<QueuePosition<'_>> {
        let key = (request.state.clone(), request.prefix.clone());
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting: usize = queues
            .values()
            .map(|queue| Arc::strong_count(queue) - 1)
            .sum();
        if waiting >= max_waiters {
            return Err(Error::Unavailable(
                "too many waiters at the same time: retry later".into(),
            ));
        }
        let queue = queues.entry(key.clone()).or_default().clone();
        let queues = self;
        Ok(QueuePosition { queues, key, queue })
    }
}

/// The position of a claim in its queue. The queue is dropped with its last claim.
struct QueuePosition<'q> {
    queues: &'q ClaimQueues,
    key: Key,
    queue: Arc<ClaimQueue>,
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        let queues = self.queues.queues.lock();
        let mut queues = queues.unwrap_or_else(PoisonError::into_inner);
        if Arc::strong_count(&self.queue) <= 2 {
            queues.remove(&self.key);
        }
    }
}
