//! Keeps the values that one process writes in order, although it knows the store's time only as an interval.
//!
//! The interval narrows and widens with every answer, so its upper end sometimes moves back. Two values must never
//! move back: the time at which an item entered its state, because the oldest item is claimed first, and the first
//! fence of a new record. A process therefore keeps the highest value it has written, its high-water mark, and stays
//! above it.

use std::time::Duration;

use crate::clock::{MAX_CLOCK_UNCERTAINTY, Now};
use crate::record::{Fence, Record, State, Text};
use crate::time::Time;

impl Now<'_> {
    /// Returns the high-water mark of a process that writes this record now.
    ///
    /// A fence counts as the microsecond that it starts from. A value too far ahead was written by a clock that has
    /// stepped since, and is ignored.
    pub fn high_water_with(&self, record: &Record) -> Time {
        let fence = Time::from_micros(record.fence.get());
        let since = record.state.as_ref().map(|state| state.since);
        [self.high_water, fence, since.unwrap_or_default()]
            .into_iter()
            .filter(|moment| self.is_plausible(*moment))
            .max()
            .unwrap_or_default()
    }

    /// Returns this state as entered now: later than the state before it and than every state this process has written.
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

    /// Returns where the fences of a new record start: at the store's time, and above all fences this process granted.
    pub(crate) fn first_fence(&self) -> Fence {
        let start = Fence::starting_at(self.interval.latest);
        let granted = Fence::new(self.high_water.as_micros());
        let granted = granted.filter(|_| self.is_plausible(self.high_water));
        start.max(granted.unwrap_or_default())
    }

    /// Whether a process that knows the store's time can have written this moment.
    fn is_plausible(&self, moment: Time) -> bool {
        moment <= self.interval.latest + self.margin + MAX_CLOCK_UNCERTAINTY
    }
}
