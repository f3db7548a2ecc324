//! The store's time as an interval, and how a step of its clock is noticed.

mod now;

use std::time::Duration;

use crate::time::micros;
use crate::{BootTime, Interval, Stamp, Time};

pub(crate) use now::MAX_CLOCK_UNCERTAINTY;
pub use now::{EarlierClocks, Now, Observations};

/// The assumed maximum drift between two clocks: 500 parts per million.
const DRIFT_PER_MILLION: u64 = 500;

fn drift(span: Duration) -> Duration {
    let drift = micros(span).saturating_mul(DRIFT_PER_MILLION);
    Duration::from_micros(drift.div_ceil(1_000_000))
}

/// What an answer of the store shows about its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockChange {
    /// All answers since the last step are consistent.
    None,
    /// The clock has shifted by less than the margin since the last step. The interval covers every time it showed.
    Widened,
    /// The clock has stepped, at once or by many small shifts. Earlier holders are judged by all known clocks.
    Stepped,
}

/// Keeps the offset between this machine's boot clock and the store's clock as an interval, computed from the send
/// and receive times of each answer.
///
/// Every answer bounds the offset. The strictest bounds since the last step are kept and age at 500 ppm. They cross
/// once the store's clock has certainly shifted, whether it was stepped or slewed. If they cross by more than the
/// margin, the clock has stepped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Clock {
    /// The strictest bounds of all answers since the last step.
    bounds: Bounds,
    /// The possible offsets as of `at`: all between the bounds, and all that the last answer allows. The latter keeps
    /// an answer that was too slow to reveal a step from doing harm.
    offsets: Offsets,
    at: BootTime,
    margin: Duration,
    earlier: Option<Earlier>,
    stepped_at: Option<BootTime>,
    restarted: Option<Time>,
}

/// Bounds of the store's clocks before its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Earlier {
    /// The latest time that any of these clocks may have shown.
    latest: Time,
    /// The lowest offset of any of these clocks.
    lowest: Bound,
}

impl Clock {
    /// Creates a clock from a first answer. `margin` is the largest step of the store's clock that may go unnoticed.
    pub fn new(sent: BootTime, received: BootTime, stamp: Stamp, margin: Duration) -> Self {
        let offsets = Offsets::from_answer(sent, received, stamp);
        Self {
            bounds: Bounds::new(offsets, received),
            offsets,
            at: received,
            margin,
            earlier: None,
            stepped_at: None,
            restarted: None,
        }
    }

    /// Sets when a store that keeps its own time resumed it after an interruption of unknown length, such as a reboot.
    /// Holders outlive the interruption: each keeps a whole ttl from this moment.
    pub fn restarted(mut self, at: Option<Time>) -> Self {
        self.restarted = at;
        self
    }

    /// Updates the clock from an answer received at `received` to a request sent at `sent`.
    pub fn observe(&mut self, sent: BootTime, received: BootTime, stamp: Stamp) -> ClockChange {
        // Answers may be processed out of order: an earlier one has aged until the latest.
        let at = received.max(self.at);
        let answer = Offsets::from_answer(sent, received, stamp);
        let before = self.offsets.widened(at.since(self.at));
        let bounds = self.bounds.tightened(answer, received, at);
        let shift = bounds.crossed_by(at);
        let aged = answer.widened(at.since(received));
        let change = if shift > i128::from(micros(self.margin)) {
            self.step(before, aged, at);
            self.bounds = Bounds::new(answer, received);
            ClockChange::Stepped
        } else {
            self.bounds = bounds;
            if shift > 0 {
                ClockChange::Widened
            } else {
                ClockChange::None
            }
        };
        let offsets = self.bounds.offsets(at).union(aged);
        self.offsets = if received < self.at {
            offsets.union(before)
        } else {
            offsets
        };
        self.at = at;
        change
    }

    /// Records a step of the clock between two answers.
    fn step(&mut self, before: Offsets, after: Offsets, at: BootTime) {
        let mut latest = before.union(after).interval(at).latest;
        let mut offset = before.lowest;
        if let Some(earlier) = self.earlier {
            latest = latest.max(earlier.latest);
            offset = offset.min(earlier.lowest.lower_at(at));
        }
        let lowest = Bound { offset, at };
        self.earlier = Some(Earlier { latest, lowest });
        self.stepped_at = Some(at);
    }

    /// Returns the store's time at this moment of the boot clock, as an interval.
    pub fn interval(&self, boot: BootTime) -> Interval {
        self.offsets.widened(boot.since(self.at)).interval(boot)
    }

    /// Returns the time of a decision at this moment of the boot clock, with the observations of one record's holders.
    pub fn now<'a>(&self, boot: BootTime, observations: &'a Observations) -> Now<'a> {
        Now {
            interval: self.interval(boot),
            boot,
            earlier: self.earlier_clocks(boot),
            stepped_at: self.stepped_at,
            restarted: self.restarted,
            margin: self.margin,
            observations,
            high_water: Time::default(),
        }
    }

    /// Returns the store's clocks before the last step; `None` if no step was noticed.
    fn earlier_clocks(&self, boot: BootTime) -> Option<EarlierClocks> {
        self.earlier.map(|earlier| EarlierClocks {
            latest: earlier.latest,
            earliest: time_at(boot, earlier.lowest.lower_at(boot)),
        })
    }

    /// Returns whether the store's clock was stepped back and has not caught up yet. Until then a holder may have expired
    /// by observation although its expiry is in the future.
    pub fn is_behind(&self, boot: BootTime) -> bool {
        let earliest = self.interval(boot).earliest;
        self.earlier
            .is_some_and(|earlier| earliest <= earlier.latest)
    }

    /// Returns the earliest expiry that a live holder may have. Every clock that the store has shown is past any earlier
    /// expiry.
    pub fn earliest_live_expiry(&self, boot: BootTime) -> Time {
        if self.restarted.is_some() {
            // A holder may outlive an expiry from before the restart. A record without holders counts as zero.
            return Time::from_micros(1);
        }
        let earliest = self.interval(boot).earliest;
        let earlier = self.earlier_clocks(boot);
        earlier.map_or(earliest, |earlier| earlier.earliest.min(earliest))
    }

    /// Returns the latest expiry that a writer can give to a lease of this ttl by the present clock. A later expiry belongs
    /// to a longer ttl, or was written by a clock that has stepped back since.
    pub fn latest_expiry(&self, boot: BootTime, ttl: Duration) -> Time {
        self.interval(boot).latest + ttl + self.margin + MAX_CLOCK_UNCERTAINTY
    }

    /// Returns how long ago the store last answered.
    pub fn age(&self, boot: BootTime) -> Duration {
        boot.since(self.at)
    }

    /// Returns when the last step of the store's clock was noticed.
    pub fn stepped_at(&self) -> Option<BootTime> {
        self.stepped_at
    }
}

/// A bound on the store's offset, as of the answer that set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Bound {
    offset: i128,
    at: BootTime,
}

impl Bound {
    /// Returns the offset as a lower bound at a later moment.
    fn lower_at(self, boot: BootTime) -> i128 {
        self.offset - drifted(boot.since(self.at))
    }

    /// Returns the offset as an upper bound at a later moment.
    fn upper_at(self, boot: BootTime) -> i128 {
        self.offset + drifted(boot.since(self.at))
    }
}

/// The strictest bounds set by answers. Each bound keeps the moment it was set, so that its ageing is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Bounds {
    lower: Bound,
    upper: Bound,
}

impl Bounds {
    fn new(offsets: Offsets, at: BootTime) -> Self {
        let bound = |offset| Bound { offset, at };
        Self {
            lower: bound(offsets.lowest),
            upper: bound(offsets.highest),
        }
    }

    /// Combines these with the bounds of an answer received at `received`: each end is the stricter one as of `at`.
    fn tightened(self, answer: Offsets, received: BootTime, at: BootTime) -> Self {
        let new = Self::new(answer, received);
        Self {
            lower: if new.lower.lower_at(at) >= self.lower.lower_at(at) {
                new.lower
            } else {
                self.lower
            },
            upper: if new.upper.upper_at(at) <= self.upper.upper_at(at) {
                new.upper
            } else {
                self.upper
            },
        }
    }

    /// Returns the smallest shift of the store's clock that explains these bounds. Zero or less means that the clock need
    /// not have shifted.
    fn crossed_by(self, at: BootTime) -> i128 {
        self.lower.lower_at(at) - self.upper.upper_at(at)
    }

    /// Returns the offsets between the bounds, whether or not they have crossed.
    fn offsets(self, at: BootTime) -> Offsets {
        let (lower, upper) = (self.lower.lower_at(at), self.upper.upper_at(at));
        Offsets {
            lowest: lower.min(upper),
            highest: lower.max(upper),
        }
    }
}

/// Store time minus boot time, in microseconds: not below `lowest`, not above `highest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Offsets {
    lowest: i128,
    highest: i128,
}

impl Offsets {
    /// Returns the offsets that one answer allows: the store read its clock between the send and the receipt.
    fn from_answer(sent: BootTime, received: BootTime, stamp: Stamp) -> Self {
        let time = i128::from(stamp.time.as_micros());
        Self {
            lowest: time - i128::from(received.as_micros()),
            highest: time + i128::from(micros(stamp.resolution)) - i128::from(sent.as_micros()),
        }
    }

    fn widened(self, age: Duration) -> Self {
        let drift = drifted(age);
        Self {
            lowest: self.lowest - drift,
            highest: self.highest + drift,
        }
    }

    /// Returns the smallest range that contains both.
    fn union(self, other: Self) -> Self {
        Self {
            lowest: self.lowest.min(other.lowest),
            highest: self.highest.max(other.highest),
        }
    }

    fn interval(self, boot: BootTime) -> Interval {
        Interval {
            earliest: time_at(boot, self.lowest),
            latest: time_at(boot, self.highest),
        }
    }
}

/// Returns how far two clocks may drift apart in this span, in microseconds.
fn drifted(span: Duration) -> i128 {
    i128::from(micros(drift(span)))
}

/// Returns the store's time at this moment of the boot clock, by this offset.
fn time_at(boot: BootTime, offset: i128) -> Time {
    let time = (i128::from(boot.as_micros()) + offset).clamp(0, i128::from(u64::MAX));
    Time::from_micros(u64::try_from(time).unwrap_or(u64::MAX))
}

/// Returns how long before the store's expiry a holder stops relying on its lease: the largest unnoticed step of the
/// store's clock, and 0.1 % of the ttl for drift.
pub fn holder_margin(store_margin: Duration, ttl: Duration) -> Duration {
    store_margin + ttl / 1_000
}

/// Returns the shortest ttl on a store with this margin: four margins. The holder can use nearly three of them.
pub fn min_ttl(store_margin: Duration) -> Duration {
    store_margin * 4
}

/// Returns until when a holder may rely on its lease, by its own boot clock. It counts from the moment the granting
/// request was **sent**, so that neither a slow answer nor a pause extends it.
pub fn deadline(
    sent: BootTime,
    ttl: Duration,
    expires_at: Time,
    answer: Stamp,
    store_margin: Duration,
) -> BootTime {
    let remaining = expires_at.since(answer.time + answer.resolution);
    sent + ttl
        .min(remaining)
        .saturating_sub(holder_margin(store_margin, ttl))
}
