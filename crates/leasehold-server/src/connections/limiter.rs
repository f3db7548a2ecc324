//! Admits connections, and displaces idle ones when all slots are taken.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::core::BootTime;
use leasehold::host::Host;
use leasehold::measure::Counter;
use tokio::task::AbortHandle;

use super::{ClientAddress, Connection, ConnectionSlot};
use crate::Config;

/// How long a connection may be idle before it can be displaced.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// The same for a connection of an address that has more connections than the newcomer's address.
const SHORT_GRACE: Duration = Duration::from_millis(100);
/// How long to wait before another search after a fruitless one: a search examines every connection.
const SEARCH_PAUSE: Duration = Duration::from_millis(5);
/// Connections beyond the limit on which only probes are answered.
const RESERVE: usize = 32;

/// The limits of connections and subscribers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) total: usize,
    pub(crate) per_address: usize,
    pub(crate) subscribers: usize,
    pub(crate) subscribers_per_address: usize,
}

impl ConnectionLimits {
    pub(crate) fn new(config: &Config) -> Self {
        let total = config.max_connections.max(1);
        let half = total.div_ceil(2);
        let per_address = config.max_connections_per_address.unwrap_or(half);
        let per_address = per_address.clamp(1, total);
        let subscribers = config.max_subscribers.min(half);
        Self {
            total,
            per_address,
            subscribers,
            // The same share of the subscribers as of the connections.
            subscribers_per_address: (subscribers * per_address).div_ceil(total),
        }
    }
}

/// Admits connections up to the limits.
///
/// When all slots are taken, a newcomer displaces idle connections of the address with the most connections, the longest
/// idle first. If none is idle, the newcomer joins the reserve, on which only probes are answered.
pub(crate) struct ConnectionLimiter {
    limits: ConnectionLimits,
    host: Arc<dyn Host>,
    state: Mutex<State>,
    pub(crate) displaced: Counter,
    pub(crate) refused: Counter,
}

#[derive(Default)]
struct State {
    /// How many connections were admitted so far.
    admitted: u64,
    connections: HashMap<u64, Entry>,
    /// The connections of the reserve, oldest first.
    reserve: BTreeSet<u64>,
    addresses: HashMap<ClientAddress, Counts>,
    subscribers: usize,
    /// The last search that found nothing to displace.
    fruitless: Search,
}

/// A search for idle connections.
#[derive(Clone, Copy, Default)]
struct Search {
    at: BootTime,
    /// How many connections the newcomer's address would have had.
    share: usize,
}

struct Entry {
    address: ClientAddress,
    slot: Arc<ConnectionSlot>,
    task: Option<AbortHandle>,
}

/// The connections and subscribers of one address.
#[derive(Clone, Copy, Default)]
struct Counts {
    connections: usize,
    subscribers: usize,
    /// The last search among its own connections that found nothing to displace.
    fruitless: Search,
}

impl ConnectionLimiter {
    pub(crate) fn new(limits: ConnectionLimits, host: Arc<dyn Host>) -> Arc<Self> {
        Arc::new(Self {
            limits,
            host,
            state: Mutex::default(),
            displaced: Counter::default(),
            refused: Counter::default(),
        })
    }

    /// Admits a connection to a slot if one is free or can be freed, otherwise to the reserve.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Connection {
        let (address, now) = (ClientAddress::from(address), self.host.boot_time());
        let mut state = self.state();
        let reserved = state.has_waiting(address) || !self.find_room(&mut state, address, now);
        state.admitted += 1;
        let number = state.admitted;
        if reserved {
            if state.reserve.len() >= RESERVE {
                self.displace_reserved(&mut state);
            }
            state.reserve.insert(number);
        } else {
            state.addresses.entry(address).or_default().connections += 1;
        }
        let slot = Arc::new(ConnectionSlot::new(self.host.clone(), now, reserved));
        let entry = Entry {
            address,
            slot: slot.clone(),
            task: None,
        };
        state.connections.insert(number, entry);
        Connection {
            limiter: self.clone(),
            number,
            address,
            slot,
        }
    }

    /// Sets the task that serves a connection, in order to abort it on displacement.
    pub(crate) fn set_task(&self, number: u64, task: AbortHandle) {
        match self.state().connections.get_mut(&number) {
            Some(entry) => entry.task = Some(task),
            // The connection was displaced before.
            None => task.abort(),
        }
    }

    /// Counts a subscriber until the result is dropped; `None` if there are too many, of this address or in all.
    pub(crate) fn subscribe(self: &Arc<Self>, address: ClientAddress) -> Option<Subscription> {
        let mut state = self.state();
        let of_address = state.addresses.entry(address).or_default();
        let is_full = of_address.subscribers >= self.limits.subscribers_per_address;
        if !is_full && state.subscribers < self.limits.subscribers {
            state.subscribers += 1;
            state.addresses.entry(address).or_default().subscribers += 1;
            let limiter = self.clone();
            return Some(Subscription { limiter, address });
        }
        state.forget_unused(address);
        None
    }

    pub(super) fn promote(&self, connection: &Connection) -> bool {
        let mut state = self.state();
        let number = connection.number;
        if !state.reserve.contains(&number) {
            return !connection.is_reserved();
        }
        let now = self.host.boot_time();
        let found = self.find_room(&mut state, connection.address, now);
        if found {
            // Its request is about to begin, so its time in the reserve does not count as idle.
            connection.slot.mark_idle(now);
            state.reserve.remove(&number);
            let counts = state.addresses.entry(connection.address).or_default();
            counts.connections += 1;
            connection.slot.reserved.store(false, Ordering::Relaxed);
        }
        found
    }

    pub(super) fn remove(&self, number: u64) {
        self.state().remove(number);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there is a slot for a connection of this address. Displaces others if necessary.
    fn find_room(&self, state: &mut State, address: ClientAddress, now: BootTime) -> bool {
        let counts = state.counts(address);
        let search = Search {
            at: now,
            share: counts.connections + 1,
        };
        if counts.connections >= self.limits.per_address {
            if counts.fruitless.rules_out(search) {
                return false;
            }
            let found = self.displace_idle(state, search, |other| other == address);
            if !found && let Some(counts) = state.addresses.get_mut(&address) {
                counts.fruitless = search;
            }
            return found;
        }
        if state.connections.len() - state.reserve.len() < self.limits.total {
            return true;
        }
        if state.fruitless.rules_out(search) {
            return false;
        }
        let found = self.displace_idle(state, search, |_| true);
        if !found {
            state.fruitless = search;
        }
        found
    }

    /// Displaces idle connections, up to one percent of all. Returns whether there were any.
    fn displace_idle(
        &self,
        state: &mut State,
        search: Search,
        is_candidate: impl Fn(ClientAddress) -> bool,
    ) -> bool {
        let mut idle: Vec<_> = { state.connections.iter() }
            .filter(|(_, entry)| is_candidate(entry.address) && !entry.slot.is_reserved())
            .filter_map(|(number, entry)| {
                let share = state.counts(entry.address).connections;
                let grace = if share > search.share {
                    SHORT_GRACE
                } else {
                    GRACE
                };
                let since = entry.slot.idle_since(search.at, grace)?;
                Some((Reverse(share), since, *number))
            })
            .collect();
        idle.sort_unstable();
        idle.truncate(1 + state.connections.len() / 100);
        let mut any = false;
        for (_, since, number) in idle {
            if state.connections[&number].slot.displace(since) {
                state.abort(number);
                self.displaced.count();
                any = true;
            }
        }
        any
    }

    /// Displaces a connection in the reserve, of the address with the most connections there: the oldest without a waiting
    /// request, or else the oldest.
    fn displace_reserved(&self, state: &mut State) {
        let address = |number: &u64| state.connections[number].address;
        let has = |number: &u64| {
            let others = state.reserve.iter();
            others
                .filter(|other| address(other) == address(number))
                .count()
        };
        let is_idle = |number: &u64| !state.connections[number].slot.is_waiting();
        let first = { state.reserve.iter() }
            .max_by_key(|number| (has(number), is_idle(number), Reverse(**number)));
        if let Some(number) = first.copied() {
            state.connections[&number].slot.displace_at_once();
            state.abort(number);
            self.refused.count();
        }
    }
}

impl Search {
    /// Whether this search makes another one pointless: it is recent, and its newcomer's address had no larger share.
    fn rules_out(self, search: Self) -> bool {
        self.share > 0 && search.share >= self.share && search.at.since(self.at) < SEARCH_PAUSE
    }
}

impl State {
    fn counts(&self, address: ClientAddress) -> Counts {
        self.addresses.get(&address).copied().unwrap_or_default()
    }

    /// Whether a request of an address with no more connections than this one waits in the reserve for a slot.
    fn has_waiting(&self, newcomer: ClientAddress) -> bool {
        let most = self.counts(newcomer).connections;
        let mut reserve = self.reserve.iter().map(|number| &self.connections[number]);
        reserve
            .any(|entry| entry.slot.is_waiting() && self.counts(entry.address).connections <= most)
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.connections.remove(&number)?;
        if !self.reserve.remove(&number)
            && let Some(counts) = self.addresses.get_mut(&entry.address)
        {
            counts.connections -= 1;
            self.forget_unused(entry.address);
        }
        Some(entry)
    }

    fn abort(&mut self, number: u64) {
        let removed = self.remove(number);
        if let Some(task) = removed.and_then(|entry| entry.task) {
            task.abort();
        }
    }

    fn unsubscribe(&mut self, address: ClientAddress) {
        self.subscribers -= 1;
        if let Some(counts) = self.addresses.get_mut(&address) {
            counts.subscribers -= 1;
        }
        self.forget_unused(address);
    }

    fn forget_unused(&mut self, address: ClientAddress) {
        let counts = self.counts(address);
        if counts.connections == 0 && counts.subscribers == 0 {
            self.addresses.remove(&address);
        }
    }
}

/// Counts as one subscriber until it is dropped.
pub(crate) struct Subscription {
    limiter: Arc<ConnectionLimiter>,
    address: ClientAddress,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.limiter.state().unsubscribe(self.address);
    }
}

#[cfg(test)]
mod tests;
