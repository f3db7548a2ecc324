//! Observations of holders in doubt, kept apart from the cache so that no eviction restarts one.

use std::time::Duration;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use leasehold_core::{BootTime, Clock, Name, Observations, Record};

/// The most names that are observed at once.
const MAX_NAMES: usize = 65_536;
/// How many are looked at to make room for one more.
const SCAN: usize = 64;

static NONE: Observations = Observations::none();

/// The holders in doubt that this engine has seen, by name.
///
/// When it is full, a new name is not observed rather than an old one forgotten: so the observations that have begun
/// complete, whatever else is seen, and make room when their names are taken.
#[derive(Default)]
pub(super) struct ObservationCache {
    names: IndexMap<Name, Observed, RandomState>,
    hand: usize,
}

struct Observed {
    holders: Observations,
    /// A ttl after it was last seen. From then on it can be dropped without a loss.
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

    /// Notes the holders that a call has shown under this name, and drops those that are gone.
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
        if let Some((place, _, observed)) = self.names.get_full_mut(name) {
            observed.holders.update(record, clock, received);
            observed.keep_until = keep_until;
            if observed.holders.is_empty() {
                self.names.swap_remove_index(place);
            }
            return;
        }
        let mut observed = Observations::none();
        observed.update(record, clock, received);
        if !observed.is_empty() && self.has_room(received) {
            let observed = Observed {
                holders: observed,
                keep_until,
            };
            self.names.insert(name.clone(), observed);
        }
    }

    /// Whether another name can be observed. Names that the store has not shown for a whole ttl make room.
    fn has_room(&mut self, now: BootTime) -> bool {
        let mut tries = SCAN.min(self.names.len());
        while tries > 0 && self.names.len() >= MAX_NAMES {
            tries -= 1;
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
        self.names.len() < MAX_NAMES
    }
}
