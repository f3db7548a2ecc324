//! Observations of holders of uncertain expiry. Separate from the record cache, so that an eviction does not restart
//! one.

use std::time::Duration;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use leasehold_core::{BootTime, Clock, Name, Observations, Record};

/// The maximum number of observed names.
const MAX_OBSERVED: usize = 65_536;
/// The number of names to check for one that can be dropped.
const SCAN: usize = 64;

static NONE: Observations = Observations::none();

/// The observed holders of uncertain expiry, by name.
///
/// When it is full, new names are not observed and old ones stay. So the observations that have started complete, and
/// make room once their leases are acquired.
#[derive(Default)]
pub(super) struct ObservationCache {
    names: IndexMap<Name, ObservedName, RandomState>,
    hand: usize,
}

struct ObservedName {
    holders: Observations,
    /// A ttl after the store has last shown it. From then on it can be dropped without a loss.
    keep_until: BootTime,
}

impl ObservationCache {
    /// Returns the observations of the holders of this name.
    pub(super) fn of(&self, name: &Name) -> &Observations {
        if self.names.is_empty() {
            return &NONE;
        }
        self.names
            .get(name)
            .map_or(&NONE, |observed| &observed.holders)
    }

    /// Updates the observations from the record that a call has shown under this name.
    pub(super) fn note(
        &mut self,
        name: &Name,
        record: Option<&Record>,
        clock: &Clock,
        received: BootTime,
    ) {
        let holders = record.map_or(&[][..], |record| &record.holders);
        let ttl = holders.iter().map(|holder| holder.ttl).max();
        let keep_until = received + ttl.unwrap_or(Duration::ZERO);
        if let Some((index, _, observed)) = self.names.get_full_mut(name) {
            observed.holders.update(record, clock, received);
            observed.keep_until = keep_until;
            if observed.holders.is_empty() {
                self.names.swap_remove_index(index);
            }
            return;
        }
        let mut observed = Observations::none();
        observed.update(record, clock, received);
        if !observed.is_empty() && self.has_room(received) {
            let observed = ObservedName {
                holders: observed,
                keep_until,
            };
            self.names.insert(name.clone(), observed);
        }
    }

    /// Whether another name can be observed. Drops names that the store has not shown for a whole ttl.
    fn has_room(&mut self, now: BootTime) -> bool {
        let mut attempts = SCAN.min(self.names.len());
        while attempts > 0 && self.names.len() >= MAX_OBSERVED {
            attempts -= 1;
            if self.hand >= self.names.len() {
                self.hand = 0;
            }
            match self.names.get_index(self.hand) {
                Some((_, observed)) if observed.keep_until < now => {
                    self.names.swap_remove_index(self.hand);
                }
                _ => self.hand += 1,
            }
        }
        self.names.len() < MAX_OBSERVED
    }
}
