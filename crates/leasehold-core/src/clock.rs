//! The store's time as an interval, and what a step of its clock means for leases.

use std::time::Duration;

use crate::record::{Fence, Holder, Record};
use crate::time::micros;
use crate::{BootTime, Interval, Stamp, Time};

/// The most by which two honest clocks are taken to drift apart: 500 parts per million.
const DRIFT_PER_MILLION: u64 = 500;

fn drift(span: Duration) -> Duration {
    Duration::from_micros(micros(span).saturating_mul(DRIFT_PER_MILLION) / 1_000_000)
}

/// What an answer of the store said about its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// It agrees with all that was known.
    Agrees,
    /// It is off by less than the margin: both may be right, so the interval now includes both.
    Widened,
    /// The clock has stepped. Holders renewed before it are judged by observation from now on.
    Stepped,
}

/// Keeps the offset between this machine's boot clock and the store's clock as an interval, learnt from the send
/// and receive times of each answer.
///
/// It widens with age by 500 ppm and narrows again with every answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Clock {
    /// Store time minus boot time, in microseconds, as of `at`.
    lowest: i128,
    highest: i128,
    at: BootTime,
    margin: Duration,
    doubt: Option<Time>,
    stepped_at: Option<BootTime>,
}

impl Clock {
    /// A clock that knows what one answer said. `margin` is what the store's clock may step by unnoticed.
    pub fn new(sent: BootTime, received: BootTime, stamp: Stamp, margin: Duration) -> Self {
        let (lowest, highest) = offsets(sent, received, stamp);
        Self {
            lowest,
            highest,
            at: received,
            margin,
            doubt: None,
            stepped_at: None,
        }
    }

    /// Learns from an answer that was received at `received` to a request sent at `sent`.
    pub fn observe(&mut self, sent: BootTime, received: BootTime, stamp: Stamp) -> Observed {
        // An answer may be looked at after a later one: it is then as old as that makes it.
        let at = received.max(self.at);
        let (lowest, highest) = widened(offsets(sent, received, stamp), at.since(received));
        let (old_lowest, old_highest) = self.offsets_at(at);
        let apart = (lowest - old_highest).max(old_lowest - highest);
        let observed = if apart <= 0 {
            (self.lowest, self.highest) = (lowest.max(old_lowest), highest.min(old_highest));
            Observed::Agrees
        } else if apart <= i128::from(micros(self.margin)) {
            (self.lowest, self.highest) = (lowest.min(old_lowest), highest.max(old_highest));
            Observed::Widened
        } else {
            // Whatever either clock may have written so far.
            let written = plus(at, highest.max(old_highest));
            (self.lowest, self.highest) = (lowest, highest);
            self.doubt = self.doubt.max(Some(written));
            self.stepped_at = Some(at);
            Observed::Stepped
        };
        self.at = at;
        observed
    }

    /// What is known of the store's time at this moment of the boot clock.
    pub fn interval(&self, boot: BootTime) -> Interval {
        let (lowest, highest) = self.offsets_at(boot);
        Interval {
            earliest: plus(boot, lowest),
            latest: plus(boot, highest),
        }
    }

    /// Everything that the core asks of time at this moment, with what has been seen of one record's holders.
    pub fn now<'a>(&self, boot: BootTime, seen: &'a Sightings) -> Now<'a> {
        Now {
            interval: self.interval(boot),
            boot,
            doubt: self.doubt,
            stepped_at: self.stepped_at,
            margin: self.margin,
            seen,
        }
    }

    /// How long ago the store was last heard of.
    pub fn age(&self, boot: BootTime) -> Duration {
        boot.since(self.at)
    }

    /// When the store's clock was last seen to step.
    pub fn stepped_at(&self) -> Option<BootTime> {
        self.stepped_at
    }

    fn offsets_at(&self, boot: BootTime) -> (i128, i128) {
        widened((self.lowest, self.highest), boot.since(self.at))
    }
}

fn widened((lowest, highest): (i128, i128), age: Duration) -> (i128, i128) {
    let widening = i128::from(micros(drift(age)));
    (lowest - widening, highest + widening)
}

fn offsets(sent: BootTime, received: BootTime, stamp: Stamp) -> (i128, i128) {
    let time = i128::from(stamp.time.as_micros());
    let earliest = time - i128::from(received.as_micros());
    let latest = time + i128::from(micros(stamp.resolution)) - i128::from(sent.as_micros());
    (earliest, latest)
}

fn plus(boot: BootTime, offset: i128) -> Time {
    let time = (i128::from(boot.as_micros()) + offset).clamp(0, i128::from(u64::MAX));
    Time::from_micros(u64::try_from(time).unwrap_or(u64::MAX))
}

/// How much before the store's expiry a holder lets go: what the store's clock may step by, and 0.1 % of the ttl
/// for drift.
pub fn holder_margin(store_margin: Duration, ttl: Duration) -> Duration {
    store_margin + ttl / 1_000
}

/// Until when a holder may believe, by its own boot clock: counted from the moment the granting request was
/// **sent**, so that a slow answer or a pause never makes it believe too long.
pub fn deadline(
    sent: BootTime,
    ttl: Duration,
    expires_at: Time,
    answer: Stamp,
    store_margin: Duration,
) -> BootTime {
    let left = expires_at.since(answer.time + answer.resolution);
    sent + ttl
        .min(left)
        .saturating_sub(holder_margin(store_margin, ttl))
}

/// All that the core asks of time.
#[derive(Clone, Copy, Debug)]
pub struct Now<'a> {
    /// The store's time.
    pub interval: Interval,
    /// This machine's boot clock.
    pub boot: BootTime,
    /// After a step of the store's clock: holders renewed at or before this are judged by observation only.
    pub doubt: Option<Time>,
    /// When the store's clock was last seen to step, by this machine's boot clock.
    pub stepped_at: Option<BootTime>,
    /// What the store's clock may step by unnoticed.
    pub margin: Duration,
    /// Since when this process has seen the holders in doubt.
    pub seen: &'a Sightings,
}

impl Now<'_> {
    /// How long until this holder is surely over; `None` once it is.
    pub fn left(&self, holder: &Holder) -> Option<Duration> {
        if self.doubts(holder) {
            let full = holder.ttl + drift(holder.ttl) + Duration::from_micros(1);
            let seen = self
                .seen
                .since(holder)
                .map_or(Duration::ZERO, |since| self.boot.since(since));
            full.checked_sub(seen).filter(|left| !left.is_zero())
        } else {
            self.until_past(holder.expires_at)
        }
    }

    /// Whether this holder is over.
    pub fn is_over(&self, holder: &Holder) -> bool {
        self.left(holder).is_none()
    }

    /// How long until the store's clock has surely passed this moment; `None` once it has.
    pub(crate) fn until_past(&self, moment: Time) -> Option<Duration> {
        let earliest = self.interval.earliest;
        (earliest <= moment).then(|| moment.since(earliest) + Duration::from_micros(1))
    }

    /// Whether the expiry that is written for this holder means nothing, because the clock it was written by has
    /// stepped since.
    fn doubts(&self, holder: &Holder) -> bool {
        self.doubt.is_some_and(|step| holder.renewed_at <= step) || self.is_far(holder)
    }

    /// Whether this holder's expiry is further ahead than any renewal by the present clock could put it.
    pub(crate) fn is_far(&self, holder: &Holder) -> bool {
        holder.expires_at > self.interval.latest + holder.ttl + self.margin
    }

    /// Whether the store's clock was seen to step in this last span.
    pub(crate) fn stepped_within(&self, span: Duration) -> bool {
        self.stepped_at
            .is_some_and(|stepped| self.boot.since(stepped) <= span)
    }
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

    /// Notes who is in doubt in a record that was received from the store at this moment, and forgets the others.
    pub fn note(&mut self, record: Option<&Record>, clock: &Clock, received: BootTime) {
        let holders = record.map_or(&[][..], |record| &record.holders);
        if self.0.is_empty() && holders.is_empty() {
            return;
        }
        let now = clock.now(received, self);
        let seen = holders
            .iter()
            .filter(|holder| now.doubts(holder))
            .map(|holder| Sighting {
                fence: holder.fence,
                renewed_at: holder.renewed_at,
                since: self.since(holder).unwrap_or(received),
            })
            .collect();
        self.0 = seen;
    }

    fn since(&self, holder: &Holder) -> Option<BootTime> {
        self.0
            .iter()
            .find(|seen| seen.fence == holder.fence && seen.renewed_at == holder.renewed_at)
            .map(|seen| seen.since)
    }
}
