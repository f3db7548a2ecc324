//! When a holder is over: by the store's clock, by its clocks before a step, or by observation.

use std::time::Duration;

use super::{Clock, drift};
use crate::record::{Fence, Holder, Record};
use crate::{BootTime, Interval, Kind, Time};

/// The most by which two writers that both know the store's time may differ in it. An answer's bounds on the time are
/// as wide as the call was long, and a call may take seconds.
pub(crate) const MAX_CLOCK_UNCERTAINTY: Duration = Duration::from_secs(5);

/// All that the core asks of time.
#[derive(Clone, Copy, Debug)]
pub struct Now<'a> {
    /// The store's time.
    pub interval: Interval,
    /// This machine's boot clock.
    pub boot: BootTime,
    /// The store's clocks before its last step, if this process saw one.
    pub earlier: Option<EarlierClocks>,
    /// When the store's clock was last seen to step, by this machine's boot clock.
    pub stepped_at: Option<BootTime>,
    /// When the store resumed its own clock after an interruption of unknown length.
    pub restarted: Option<Time>,
    /// The largest step of the store's clock that may go unnoticed.
    pub margin: Duration,
    /// Since when this process has seen the holders in doubt.
    pub seen: &'a Sightings,
    /// The highest moment that this process has written, by [`high_water_with`](Self::high_water_with).
    pub high_water: Time,
}

/// The store's clocks before its last step, and the present time by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierClocks {
    /// The latest time that any of them showed: an expiry counted from this or before may have been written by any.
    pub latest: Time,
    /// The earliest present time by any of them.
    pub earliest: Time,
}

impl Now<'_> {
    /// The same for a record of this kind. A gate has no holder that could outlive a restart of the store's clock: it
    /// opens by the store's time alone.
    pub fn of(self, kind: Kind) -> Self {
        Self {
            restarted: self.restarted.filter(|_| kind == Kind::Lock),
            ..self
        }
    }

    /// When this holder is over by the store's clock.
    ///
    /// It may have been renewed just before the clock was restarted, so it has a whole ttl from then on. A later
    /// renewal always counts from later.
    pub(crate) fn expiry(&self, holder: &Holder) -> Time {
        let since_restart = self.restarted.map(|restarted| restarted + holder.ttl);
        holder.expires_at.max(since_restart.unwrap_or_default())
    }

    /// How long until this holder is surely over; `None` once it is.
    ///
    /// Either every clock that its expiry may have been counted by has passed it, or the holder was seen unchanged
    /// for its whole ttl.
    pub fn left(&self, holder: &Holder) -> Option<Duration> {
        let unexpired = self.until_expired(holder);
        let since = self.seen.since(holder);
        if since.is_none() && !self.doubts(holder) {
            return unexpired;
        }
        let whole = holder.ttl + drift(holder.ttl) + Duration::from_micros(1);
        let observed = since.map_or(Duration::ZERO, |since| self.boot.since(since));
        let unobserved = whole.checked_sub(observed).filter(|left| !left.is_zero());
        unexpired.min(unobserved)
    }

    /// Whether this holder is over.
    pub fn is_over(&self, holder: &Holder) -> bool {
        self.left(holder).is_none()
    }

    /// How long until every clock that this holder's expiry may have been counted by has passed it.
    ///
    /// Where the clock was stepped forward, that is the one from before: by the present one the holder might be over
    /// too early. Where it was stepped back, it is the present one: the holder waits longer, by the step at most.
    fn until_expired(&self, holder: &Holder) -> Option<Duration> {
        let earlier = self
            .earlier
            .filter(|earlier| counted_from(holder) <= earlier.latest);
        let earliest = self.interval.earliest;
        let earliest = earlier.map_or(earliest, |earlier| earlier.earliest.min(earliest));
        until_past(self.expiry(holder), earliest)
    }

    /// How long until the store's clock has surely passed this moment; `None` once it has.
    pub(crate) fn until_past(&self, moment: Time) -> Option<Duration> {
        until_past(moment, self.interval.earliest)
    }

    /// Whether the clock that this holder's expiry was counted by may have stepped since: this process saw it step,
    /// or no renewal by the present clock could have put the expiry that far ahead, even by a writer that knew the
    /// time less well.
    pub(crate) fn doubts(&self, holder: &Holder) -> bool {
        let counted_from = counted_from(holder);
        self.earlier
            .is_some_and(|earlier| counted_from <= earlier.latest)
            || counted_from > self.interval.latest + self.margin + MAX_CLOCK_UNCERTAINTY
    }

    /// Whether the store's clock was seen to step in this last span.
    pub(crate) fn stepped_within(&self, span: Duration) -> bool {
        self.stepped_at
            .is_some_and(|stepped| self.boot.since(stepped) <= span)
    }
}

/// The store's time that this holder's expiry was counted from.
fn counted_from(holder: &Holder) -> Time {
    holder.expires_at - holder.ttl
}

/// How long until a clock that shows `earliest` has passed this moment; `None` once it has.
fn until_past(moment: Time, earliest: Time) -> Option<Duration> {
    (earliest <= moment).then(|| moment.since(earliest) + Duration::from_micros(1))
}

/// Since when this process has itself seen holders whose written expiry is in doubt, as entries of one record.
///
/// A holder that is seen unchanged for its whole ttl is over, whatever any clock says: its own deadline counts from
/// a send that was before the first sighting, and a renewal always changes `renewed_at`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sightings(Vec<Sighting>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sighting {
    fence: Fence,
    renewed_at: Time,
    since: BootTime,
}

impl Sightings {
    /// Nothing seen.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Notes who is in doubt in a record that was received from the store at this moment, and forgets who is gone.
    pub fn note(&mut self, record: Option<&Record>, clock: &Clock, received: BootTime) {
        let holders = record.map_or(&[][..], |record| &record.holders);
        if self.0.is_empty() && holders.is_empty() {
            return;
        }
        let now = clock.now(received, self);
        let seen = holders
            .iter()
            .filter_map(|holder| {
                let doubted = now.doubts(holder).then_some(received);
                Some(Sighting {
                    fence: holder.fence,
                    renewed_at: holder.renewed_at,
                    since: self.since(holder).or(doubted)?,
                })
            })
            .collect();
        self.0 = seen;
    }

    /// Whether no holder in doubt was seen.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn since(&self, holder: &Holder) -> Option<BootTime> {
        self.0
            .iter()
            .find(|seen| seen.fence == holder.fence && seen.renewed_at == holder.renewed_at)
            .map(|seen| seen.since)
    }
}
