//! Which leases are kept, when each is to be renewed, and when each is over unless it is.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::BootTime;

use super::standing::Standing;

/// The most leases renewed in one call.
pub(super) const BATCH: usize = 256;

/// Identifies a lease within one keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(u64);

/// The leases of one keeper, in order of what is to be done next.
#[derive(Default)]
pub(super) struct Table {
    kept: HashMap<Id, Kept>,
    dues: BTreeSet<(BootTime, Id)>,
    ends: BTreeSet<(BootTime, Id)>,
    made: u64,
    /// Whether a task looks after this table…
    pub(super) attended: bool,
    /// …and when it will look next.
    pub(super) planned: BootTime,
}

/// One lease in the table.
pub(super) struct Kept {
    pub(super) standing: Arc<Standing>,
    /// When it is to be renewed; not while it is being renewed or let go.
    due: Option<BootTime>,
    ends: BootTime,
    pub(super) renewing: bool,
    /// Somebody lets go of it: no renewal starts any more, and the answer of one under way means nothing.
    pub(super) closing: bool,
    /// Renewals that failed in a row.
    pub(super) failures: u32,
}

impl Table {
    pub(super) fn insert(&mut self, standing: Arc<Standing>, due: BootTime) -> Id {
        self.made += 1;
        let id = Id(self.made);
        let ends = standing.ends();
        self.ends.insert((ends, id));
        self.kept.insert(
            id,
            Kept {
                standing,
                due: None,
                ends,
                renewing: false,
                closing: false,
                failures: 0,
            },
        );
        self.schedule(id, due);
        id
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut Kept> {
        self.kept.get_mut(&id)
    }

    pub(super) fn remove(&mut self, id: Id) -> Option<Kept> {
        let kept = self.kept.remove(&id)?;
        self.ends.remove(&(kept.ends, id));
        if let Some(due) = kept.due {
            self.dues.remove(&(due, id));
        }
        Some(kept)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Every lease, which are then kept no more.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Arc<Standing>> {
        self.dues.clear();
        self.ends.clear();
        std::mem::take(&mut self.kept)
            .into_values()
            .map(|kept| kept.standing)
    }

    /// Plans the next renewal.
    pub(super) fn schedule(&mut self, id: Id, due: BootTime) {
        self.unschedule(id);
        if let Some(kept) = self.kept.get_mut(&id) {
            kept.due = Some(due);
            self.dues.insert((due, id));
        }
    }

    /// Plans none for now.
    pub(super) fn unschedule(&mut self, id: Id) {
        if let Some(kept) = self.kept.get_mut(&id)
            && let Some(due) = kept.due.take()
        {
            self.dues.remove(&(due, id));
        }
    }

    /// Notes that the deadline may have moved.
    pub(super) fn moved(&mut self, id: Id) {
        if let Some(kept) = self.kept.get_mut(&id) {
            self.ends.remove(&(kept.ends, id));
            kept.ends = kept.standing.ends();
            self.ends.insert((kept.ends, id));
        }
    }

    /// Takes out a lease that is over by now.
    pub(super) fn take_over(&mut self, now: BootTime) -> Option<Arc<Standing>> {
        let &(ends, id) = self.ends.first()?;
        (ends <= now)
            .then(|| self.remove(id))
            .flatten()
            .map(|kept| kept.standing)
    }

    /// Up to [`BATCH`] leases to be renewed now, marked as being renewed; empty when none is due. Those that are due
    /// soon come along, so that leases taken one by one are renewed together before long. Those that failed go on
    /// their own: the little time that they have left would be all that the others get.
    pub(super) fn take_due(&mut self, now: BootTime) -> Vec<(Id, Arc<Standing>)> {
        let Some(first) = self.dues.first().filter(|(due, _)| *due <= now) else {
            return Vec::new();
        };
        let failing = self.kept[&first.1].is_failing();
        let batch: Vec<Id> = self
            .dues
            .iter()
            .take_while(|(due, id)| *due <= now + self.kept[id].early())
            .filter(|(_, id)| self.kept[id].is_failing() == failing)
            .take(BATCH)
            .map(|&(_, id)| id)
            .collect();
        batch.into_iter().filter_map(|id| self.start(id)).collect()
    }

    /// Marks a lease as being renewed, unless it is already or is let go.
    pub(super) fn start(&mut self, id: Id) -> Option<(Id, Arc<Standing>)> {
        self.unschedule(id);
        let kept = self.kept.get_mut(&id)?;
        if kept.renewing || kept.closing {
            return None;
        }
        kept.renewing = true;
        Some((id, kept.standing.clone()))
    }

    /// When there is something to do next.
    pub(super) fn next(&self) -> Option<BootTime> {
        let due = self.dues.first().map(|&(due, _)| due);
        let end = self.ends.first().map(|&(end, _)| end);
        due.into_iter().chain(end).min()
    }
}

impl Kept {
    fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// How much earlier than due it may be renewed for company. Retries wait on purpose.
    fn early(&self) -> Duration {
        if self.is_failing() {
            Duration::ZERO
        } else {
            self.standing.ttl / 12
        }
    }
}
