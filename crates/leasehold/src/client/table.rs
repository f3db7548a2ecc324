//! The leases of a keeper, ordered by their next renewal and by their expiry.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::BootTime;

use super::lease_state::LeaseState;

/// The maximum number of leases that are renewed in one call.
pub(super) const MAX_BATCH: usize = 256;

/// Identifies a lease within one keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(u64);

/// The leases of one keeper.
#[derive(Default)]
pub(super) struct Table {
    entries: HashMap<Id, Entry>,
    renewals: BTreeSet<(BootTime, Id)>,
    expiries: BTreeSet<(BootTime, Id)>,
    last_id: u64,
    /// Whether a keeper task is running.
    pub(super) has_task: bool,
    /// When the keeper task checks the table next.
    pub(super) next_check: BootTime,
}

/// One lease in the table.
pub(super) struct Entry {
    pub(super) lease: Arc<LeaseState>,
    /// When the next renewal starts; `None` while the lease is being renewed or released.
    renews_at: Option<BootTime>,
    expires_at: BootTime,
    pub(super) is_renewing: bool,
    /// The lease is being released: no renewal starts, and the result of a pending one is ignored.
    pub(super) is_closing: bool,
    /// The number of consecutive failed renewals.
    pub(super) failures: u32,
}

impl Table {
    pub(super) fn insert(&mut self, lease: Arc<LeaseState>, renews_at: BootTime) -> Id {
        self.last_id += 1;
        let id = Id(self.last_id);
        let expires_at = lease.gives_up_at();
        self.expiries.insert((expires_at, id));
        self.entries.insert(
            id,
            Entry {
                lease,
                renews_at: None,
                expires_at,
                is_renewing: false,
                is_closing: false,
                failures: 0,
            },
        );
        self.schedule(id, renews_at);
        id
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut Entry> {
        self.entries.get_mut(&id)
    }

    pub(super) fn remove(&mut self, id: Id) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.expiries.remove(&(entry.expires_at, id));
        if let Some(renews_at) = entry.renews_at {
            self.renewals.remove(&(renews_at, id));
        }
        Some(entry)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes and returns all leases.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Arc<LeaseState>> {
        self.renewals.clear();
        self.expiries.clear();
        std::mem::take(&mut self.entries)
            .into_values()
            .map(|entry| entry.lease)
    }

    /// Schedules the next renewal.
    pub(super) fn schedule(&mut self, id: Id, renews_at: BootTime) {
        self.unschedule(id);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.renews_at = Some(renews_at);
            self.renewals.insert((renews_at, id));
        }
    }

    /// Cancels the next renewal.
    pub(super) fn unschedule(&mut self, id: Id) {
        if let Some(entry) = self.entries.get_mut(&id)
            && let Some(renews_at) = entry.renews_at.take()
        {
            self.renewals.remove(&(renews_at, id));
        }
    }

    /// Updates the expiry after the lease was extended.
    pub(super) fn update_expiry(&mut self, id: Id) {
        if let Some(entry) = self.entries.get_mut(&id) {
            self.expiries.remove(&(entry.expires_at, id));
            entry.expires_at = entry.lease.gives_up_at();
            self.expiries.insert((entry.expires_at, id));
        }
    }

    /// Removes and returns a lease that has expired.
    pub(super) fn take_expired(&mut self, now: BootTime) -> Option<Arc<LeaseState>> {
        let &(expires_at, id) = self.expiries.first()?;
        (expires_at <= now)
            .then(|| self.remove(id))
            .flatten()
            .map(|entry| entry.lease)
    }

    /// Returns up to [`MAX_BATCH`] leases to renew now, and marks them as being renewed. Empty if none is due.
    ///
    /// Leases that are due soon are included, so that leases that were acquired one by one end up in common batches. Retries
    /// are batched separately, because the timeout of a batch depends on its shortest remaining time.
    pub(super) fn take_due(&mut self, now: BootTime) -> Vec<(Id, Arc<LeaseState>)> {
        let Some(first) = self.renewals.first().filter(|(due, _)| *due <= now) else {
            return Vec::new();
        };
        let is_retry = self.entries[&first.1].is_failing();
        let batch: Vec<Id> = self
            .renewals
            .iter()
            .take_while(|(due, id)| *due <= now + self.entries[id].batching_window())
            .filter(|(_, id)| self.entries[id].is_failing() == is_retry)
            .take(MAX_BATCH)
            .map(|&(_, id)| id)
            .collect();
        batch
            .into_iter()
            .filter_map(|id| self.start_renewal(id))
            .collect()
    }

    /// Marks a lease as being renewed. Returns `None` if it is already being renewed or released.
    pub(super) fn start_renewal(&mut self, id: Id) -> Option<(Id, Arc<LeaseState>)> {
        self.unschedule(id);
        let entry = self.entries.get_mut(&id)?;
        if entry.is_renewing || entry.is_closing {
            return None;
        }
        entry.is_renewing = true;
        Some((id, entry.lease.clone()))
    }

    /// Returns when the next renewal or expiry is due.
    pub(super) fn next_due(&self) -> Option<BootTime> {
        let renewal = self.renewals.first().map(|&(at, _)| at);
        let expiry = self.expiries.first().map(|&(at, _)| at);
        renewal.into_iter().chain(expiry).min()
    }
}

impl Entry {
    fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Returns how much earlier than due the lease may be renewed to join a batch. Zero for retries, whose delay is
    /// deliberate.
    fn batching_window(&self) -> Duration {
        if self.is_failing() {
            Duration::ZERO
        } else {
            self.lease.ttl / 12
        }
    }
}
