//! The client's cache of shut gates, and its pending requests for gates.
//!
//! The cache only refuses calls. It may drop any entry at any time: then the store is called.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{BootTime, Name};
use tokio::sync::watch;

use crate::{Error, Result};

/// The maximum number of cached gates.
const MAX_GATES: usize = 10_000;

/// The shut gates and the pending requests of a client.
#[derive(Default)]
pub(super) struct ThrottleCache {
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    shut: HashMap<Name, ShutGate>,
    pending: HashMap<Name, watch::Receiver<Option<Response>>>,
    /// How often a gate was reopened. A response to a request that was sent before is not cached.
    reopened: u64,
}

/// A gate that was shut when the store was called.
struct ShutGate {
    seen_at: BootTime,
    until: BootTime,
}

/// When the gate opens, or the error of the store.
pub(super) type Response = Result<BootTime>;

/// The result of a lookup.
pub(super) enum Lookup<'g> {
    /// The gate is shut until this time.
    Shut(BootTime),
    /// Another call has sent a request for this gate: await its response.
    Pending(watch::Receiver<Option<Response>>),
    /// The caller must call the store.
    Miss(PendingRequest<'g>),
}

impl ThrottleCache {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up a gate. Ignores entries that are older than `cache_for`.
    pub(super) fn look_up(&self, name: &Name, now: BootTime, cache_for: Duration) -> Lookup<'_> {
        let mut entries = self.entries();
        if let Some(shut) = entries.shut.get(name)
            && now < shut.until.min(shut.seen_at + cache_for)
        {
            return Lookup::Shut(shut.until);
        }
        if let Some(response) = entries.pending.get(name) {
            return Lookup::Pending(response.clone());
        }
        let (response, receiver) = watch::channel(None);
        entries.pending.insert(name.clone(), receiver);
        Lookup::Miss(PendingRequest {
            cache: self,
            name: name.clone(),
            response,
            reopened: entries.reopened,
            is_cached: !cache_for.is_zero(),
        })
    }

    /// Removes a gate that was reopened.
    pub(super) fn reopened(&self, name: &Name) {
        let mut entries = self.entries();
        entries.reopened += 1;
        entries.shut.remove(name);
    }
}

impl Entries {
    fn insert(&mut self, name: &Name, gate: ShutGate) {
        if self.shut.len() >= MAX_GATES {
            self.shut.retain(|_, entry| gate.seen_at < entry.until);
            // Drops at least half of the entries, so that evictions are rare.
            if self.shut.len() > MAX_GATES / 2 {
                self.shut.clear();
            }
        }
        self.shut.insert(name.clone(), gate);
    }
}

/// A request to the store on behalf of all concurrent calls at a gate. If it is dropped without a response, another call
/// sends a request.
pub(super) struct PendingRequest<'g> {
    cache: &'g ThrottleCache,
    name: Name,
    response: watch::Sender<Option<Response>>,
    reopened: u64,
    is_cached: bool,
}

impl PendingRequest<'_> {
    /// Completes the other calls: the gate is shut, by this caller or by another one.
    pub(super) fn complete_shut(self, seen_at: BootTime, until: BootTime) {
        let mut entries = self.cache.entries();
        if self.is_cached && self.reopened == entries.reopened {
            entries.insert(&self.name, ShutGate { seen_at, until });
        }
        drop(entries);
        self.response.send_replace(Some(Ok(until)));
    }

    /// Completes the other calls with this error, unless it concerns only the arguments of this call.
    pub(super) fn complete_failed(self, error: &Error) {
        if !matches!(error, Error::Invalid(_)) {
            self.response.send_replace(Some(Err(error.clone())));
        }
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.cache.entries().pending.remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_cached_gates_is_limited() {
        let cache = ThrottleCache::default();
        let minute = Duration::from_secs(60);
        for number in 0..3 * MAX_GATES {
            let (name, now) = (gate(number), BootTime::from_micros(1));
            let Lookup::Miss(request) = cache.look_up(&name, now, minute) else {
                panic!("{name} is not cached yet");
            };
            request.complete_shut(now, now + minute);
            let is_shut = matches!(cache.look_up(&name, now, minute), Lookup::Shut(_));
            assert!(is_shut, "the latest gate is cached");
            assert!(cache.entries().shut.len() <= MAX_GATES);
        }
        assert!(cache.entries().pending.is_empty());
    }

    fn gate(number: usize) -> Name {
        Name::gate(number.to_string()).expect("a valid name")
    }
}
