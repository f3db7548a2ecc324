//! Forgets records again: what is remembered is bounded, and of a store in memory few free ones are worth it.

use leasehold_core::Name;

use super::Config;
use super::table::{Entry, Table};

/// How many free names of a store in memory are remembered: so few that they stay in the processor's cache.
const FREE: usize = 128;

impl Entry {
    /// Nothing is asked of it, nobody waits for it, and nobody is about to look at it.
    fn is_forgettable(&self) -> bool {
        self.is_quiet() && !self.listed
    }

    /// The call that showed that it has no holders.
    pub(super) fn free_since(&self) -> Option<u64> {
        let cached = self.cached.as_ref()?;
        let stored = cached.stored.as_ref();
        let is_held = stored.is_some_and(|stored| !stored.record.holders.is_empty());
        (!is_held).then_some(cached.confirmed)
    }
}

impl Table {
    /// Nothing is asked of a name any more, which the call `since` showed to be free. Where looking again costs next to
    /// nothing, only those that came free last are remembered, unless somebody watches: then it has to be known what each
    /// was before.
    pub(super) fn leave_alone(&mut self, name: &Name, since: u64) {
        if !self.forgets_free || self.watch.is_some() {
            return;
        }
        self.free.push_back((name.clone(), since));
        if self.free.len() > FREE
            && let Some((name, since)) = self.free.pop_front()
            && let Some((place, _, entry)) = self.entries.get_full(&name)
            && entry.is_forgettable()
            && entry.free_since() == Some(since)
        {
            self.forget(place);
        }
    }

    /// Forgets a name of which nothing is known and nothing asked.
    pub(super) fn tidy(&mut self, name: &Name) {
        if let Some((place, _, entry)) = self.entries.get_full(name)
            && entry.is_forgettable()
            && entry.cached.is_none()
        {
            self.forget(place);
        }
    }

    /// Keeps the cache within its bounds: names not used for a while go first.
    pub(super) fn evict(&mut self, config: &Config) {
        let mut tries = 2 * self.entries.len().min(64);
        while tries > 0
            && (self.entries.len() > config.cache || self.cached_bytes > config.cache_bytes)
        {
            tries -= 1;
            if self.eviction_hand >= self.entries.len() {
                self.eviction_hand = 0;
            }
            let Some((_, entry)) = self.entries.get_index_mut(self.eviction_hand) else {
                return;
            };
            if !entry.is_forgettable() || std::mem::take(&mut entry.recently_used) {
                self.eviction_hand += 1;
                continue;
            }
            self.forget(self.eviction_hand);
        }
    }

    /// Forgets the name at this place; the last one takes it.
    fn forget(&mut self, place: usize) {
        if let Some((name, entry)) = self.entries.get_index(place)
            && entry.wake_at.is_some()
        {
            self.set_timer(&name.clone(), None);
        }
        if let Some((_, entry)) = self.entries.swap_remove_index(place) {
            self.cached_bytes -= entry.body_bytes();
        }
    }
}
