//! When a holder expires: by the store's clock, by its clocks before a step, or by observation.

use std::time::Duration;

use super::{Clock, drift};
use crate::record::{Fence, Holder, Record};
use crate::{BootTime, Interval, Kind, Time};

/// The largest difference between two writers' bounds of the store's time. An answer's bounds are as wide as the call
/// was long, and a call may take seconds.
pub(crate) const MAX_CLOCK_UNCERTAINTY: Duration = Duration::from_secs(5);

/// The time of a decision: everything that the core knows about time.
#[derive(Clone, Copy, Debug)]
pub struct Now<'a> {
    /// The store's time.
    pub interval: Interval,
    /// This machine's boot clock.
    pub boot: BootTime,
    /// The store's clocks before its last step, if this process noticed one.
    pub earlier: Option<EarlierClocks>,
    /// When the last step of the store's clock was noticed, by this machine's boot clock.
    pub stepped_at: Option<BootTime>,
    /// When the store resumed its own clock after an interruption of unknown length.
    pub restarted: Option<Time>,
    /// The largest step of the store's clock that may go unnoticed.
    pub margin: Duration,
    /// Since when this process has observed holders with an uncertain expiry.
    pub observations: &'a Observations,
    /// The process's high-water mark: see [`high_water_with`](Self::high_water_with).
    pub high_water: Time,
}

/// The store's clocks before its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierClocks {
    /// The latest time shown by any of them. Each of them may have written an expiry that counts from then or before.
    pub latest: Time,
    /// The earliest present time according to any of them.
    pub earliest: Time,
}

impl Now<'_> {
    /// Returns the time for a record of this kind. No holder of a gate outlives a restart of the store's clock, so a gate
    /// opens by the store's time alone.
    pub fn for_kind(self, kind: Kind) -> Self {
        Self {
            restarted: self.restarted.filter(|_| kind == Kind::Lock),
            ..self
        }
    }

    /// Returns when this holder expires by the store's clock.
    ///
    /// It may have been renewed just before the clock was restarted, so it keeps a whole ttl from the restart.
    pub(crate) fn expiry(&self, holder: &Holder) -> Time {
        let since_restart = self.restarted.map(|restarted| restarted + holder.ttl);
        holder.expires_at.max(since_restart.unwrap_or_default())
    }

    /// Returns how long until this holder has certainly expired; `None` once it has.
    ///
    /// A holder has expired once every clock that may have written its expiry has passed it, or once it was observed
    /// unchanged for its whole ttl.
    pub fn remaining(&self, holder: &Holder) -> Option<Duration> {
        let unexpired = self.until_expired(holder);
        let since = self.observations.since(holder);
        if since.is_none() && !self.is_uncertain(holder) {
            return unexpired;
        }
        let whole = holder.ttl + drift(holder.ttl) + Duration::from_micros(1);
        let observed = since.map_or(Duration::ZERO, |since| self.boot.since(since));
        let unobserved = whole
            .checked_sub(observed)
            .filter(|remaining| !remaining.is_zero());
        unexpired.min(unobserved)
    }

    /// Returns whether this holder has certainly expired.
    pub fn is_expired(&self, holder: &Holder) -> bool {
        self.remaining(holder).is_none()
    }

    /// Returns how long until every clock that may have written this holder's expiry has passed it.
    ///
    /// After a step forward, the clock from before decides: by the present one the holder might expire too early. After
    /// a step back, the present clock decides: the holder lasts longer, by the step at most.
    fn until_expired(&self, holder: &Holder) -> Option<Duration> {
        let earlier = self
            .earlier
            .filter(|earlier| counted_from(holder) <= earlier.latest);
        let earliest = self.interval.earliest;
        let earliest = earlier.map_or(earliest, |earlier| earlier.earliest.min(earliest));
        until_past(self.expiry(holder), earliest)
    }

    /// Returns how long until the store's clock has certainly passed this moment; `None` once it has.
    pub(crate) fn until_past(&self, moment: Time) -> Option<Duration> {
        until_past(moment, self.interval.earliest)
    }

    /// Returns whether the clock that wrote this holder's expiry may have stepped since. Either this process noticed the
    /// step, or the expiry is further ahead than any writer could have put it by the present clock.
    pub(crate) fn is_uncertain(&self, holder: &Holder) -> bool {
        let counted_from = counted_from(holder);
        self.earlier
            .is_some_and(|earlier| counted_from <= earlier.latest)
            || counted_from > self.interval.latest + self.margin + MAX_CLOCK_UNCERTAINTY
    }

    /// Returns whether a step of the store's clock was noticed within this last span.
    pub(crate) fn stepped_within(&self, span: Duration) -> bool {
        self.stepped_at
            .is_some_and(|stepped| self.boot.since(stepped) <= span)
    }
}

/// Returns the store time that this holder's expiry counts from.
fn counted_from(holder: &Holder) -> Time {
    holder.expires_at - holder.ttl
}

/// Returns how long until a clock that shows `earliest` has passed this moment; `None` once it has.
fn until_past(moment: Time, earliest: Time) -> Option<Duration> {
    (earliest <= moment).then(|| moment.since(earliest) + Duration::from_micros(1))
}

/// Observations of one record's holders whose written expiry is uncertain, and when this process made them first.
///
/// A holder that was observed unchanged for its whole ttl has expired, whatever any clock says: its own deadline counts
/// from a send before the first observation, and a renewal always changes `renewed_at`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Observations(Vec<Observation>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Observation {
    fence: Fence,
    renewed_at: Time,
    since: BootTime,
}

impl Observations {
    /// Returns an empty set of observations.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Adds the uncertain holders of a record that was received from the store at this moment, and drops holders that are
    /// no longer in it.
    pub fn update(&mut self, record: Option<&Record>, clock: &Clock, received: BootTime) {
        let holders = record.map_or(&[][..], |record| &record.holders);
        if self.0.is_empty() && holders.is_empty() {
            return;
        }
        let now = clock.now(received, self);
        let observations = holders
            .iter()
            .filter_map(|holder| {
                let first = now.is_uncertain(holder).then_some(received);
                Some(Observation {
                    fence: holder.fence,
                    renewed_at: holder.renewed_at,
                    since: self.since(holder).or(first)?,
                })
            })
            .collect();
        self.0 = observations;
    }

    /// Returns whether no uncertain holder was observed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn since(&self, holder: &Holder) -> Option<BootTime> {
        self.0
            .iter()
            .find(|one| one.fence == holder.fence && one.renewed_at == holder.renewed_at)
            .map(|one| one.since)
    }
}
