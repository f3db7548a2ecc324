//! The order of what one process writes, although it knows the store's time only as an interval.
//!
//! The interval narrows and widens with every answer, so its upper end runs backwards now and then. Two things must
//! not: when an item entered its state, because the oldest is claimed first, and where the fences of a new record
//! start. A process therefore remembers the highest of them, its high-water mark, and goes on above it.

use std::time::Duration;

use crate::clock::{LITTLE, Now};
use crate::record::{Fence, Record, State, Text};
use crate::time::Time;

impl Now<'_> {
    /// The high-water mark of a process that writes this record now.
    ///
    /// A fence counts as the microsecond that it starts from. What lies too far ahead was written by a clock that has
    /// stepped since: it does not count, and neither does a mark that stems from such a clock.
    pub fn high_water_with(&self, record: &Record) -> Time {
        let fence = Time::from_micros(record.fence.get());
        let since = record.state.as_ref().map(|state| state.since);
        [self.high_water, fence, since.unwrap_or_default()]
            .into_iter()
            .filter(|moment| self.is_plausible(*moment))
            .max()
            .unwrap_or_default()
    }

    /// This state, entered now: later than the state before it, and than all that this process has dated.
    pub(crate) fn enter(&self, label: Text, before: Option<&State>) -> State {
        let before = before.map(|state| state.since).unwrap_or_default();
        let after = |moment| match self.is_plausible(moment) {
            true => moment + Duration::from_micros(1),
            false => Time::default(),
        };
        let since = self.interval.latest;
        let since = since.max(after(before)).max(after(self.high_water));
        State { label, since }
    }

    /// Where the fences of a new record start: at the store's time, above all fences that this process has granted.
    pub(crate) fn first_fence(&self) -> Fence {
        let start = Fence::starting_at(self.interval.latest);
        let granted = Fence::new(self.high_water.as_micros());
        let granted = granted.filter(|_| self.is_plausible(self.high_water));
        start.max(granted.unwrap_or_default())
    }

    /// Whether a process that knows the store's time may have written this moment.
    fn is_plausible(&self, moment: Time) -> bool {
        moment <= self.interval.latest + self.margin + LITTLE
    }
}
