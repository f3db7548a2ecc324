//! Keeps the cache within its limits. If the store is in memory, only few free records are cached.

use leasehold_core::Name;

use super::Config;
use super::table::{Entry, Table};

/// The number of free names to cache if the store is in memory. Small enough for the processor's cache.
const MAX_FREE: usize = 128;

impl Entry {
    /// Whether it has no operations and no waiters, and is not scheduled for a store call.
    fn is_evictable(&self) -> bool {
        self.is_idle() && !self.listed
    }

    /// Returns the number of the call that showed that it has no holders.
    pub(super) fn free_since(&self) -> Option<u64> {
        let cached = self.cached.as_ref()?;
        let stored = cached.stored.as_ref();
        let is_held = stored.is_some_and(|stored| !stored.record.holders.is_empty());
        (!is_held).then_some(cached.confirmed)
    }
}

impl Table {
    /// Notes that a name is idle, and free as of the call `since`. If the store is in memory, only the names that
    /// became free last stay cached. With subscribers all stay, because events are derived from the previous version.
    pub(super) fn note_free(&mut self, name: &Name, since: u64) {
        if !self.caches_few_free || self.watch.is_some() {
            return;
        }
        self.free_names.push_back((name.clone(), since));
        if self.free_names.len() > MAX_FREE
            && let Some((name, since)) = self.free_names.pop_front()
            && let Some((index, _, entry)) = self.entries.get_full(&name)
            && entry.is_evictable()
            && entry.free_since() == Some(since)
        {
            self.evict_at(index);
        }
    }

    /// Removes a name without a cached record and without operations.
    pub(super) fn remove_if_unused(&mut self, name: &Name) {
        if let Some((index, _, entry)) = self.entries.get_full(name)
            && entry.is_evictable()
            && entry.cached.is_none()
        {
            self.evict_at(index);
        }
    }

    /// Evicts names until the cache is within its limits, those not used recently first.
    pub(super) fn evict(&mut self, config: &Config) {
        let mut attempts = 2 * self.entries.len().min(64);
        while attempts > 0
            && (self.entries.len() > config.cache || self.cached_bytes > config.cache_bytes)
        {
            attempts -= 1;
            if self.eviction_hand >= self.entries.len() {
                self.eviction_hand = 0;
            }
            let Some((_, entry)) = self.entries.get_index_mut(self.eviction_hand) else {
                return;
            };
            if !entry.is_evictable() || std::mem::take(&mut entry.recently_used) {
                self.eviction_hand += 1;
                continue;
            }
            self.evict_at(self.eviction_hand);
        }
    }

    /// Evicts the name at this index. The last name moves to the index.
    fn evict_at(&mut self, index: usize) {
        if let Some((name, entry)) = self.entries.get_index(index)
            && entry.wake_at.is_some()
        {
            self.set_timer(&name.clone(), None);
        }
        if let Some((_, entry)) = self.entries.swap_remove_index(index) {
            self.cached_bytes -= entry.body_bytes();
        }
    }
}
