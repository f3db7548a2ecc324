//! The store's time as an interval, and what a step of its clock means for leases.

mod now;

use std::time::Duration;

use crate::time::micros;
use crate::{BootTime, Interval, Stamp, Time};

pub(crate) use now::MAX_CLOCK_UNCERTAINTY;
pub use now::{EarlierClocks, Now, Sightings};

/// The most by which two honest clocks are taken to drift apart: 500 parts per million.
const DRIFT_PER_MILLION: u64 = 500;

fn drift(span: Duration) -> Duration {
    let drift = micros(span).saturating_mul(DRIFT_PER_MILLION);
    Duration::from_micros(drift.div_ceil(1_000_000))
}

/// What an answer of the store said about its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// All answers since the last step can be right.
    Agrees,
    /// The clock has shifted by less than the margin since the last step. The interval includes every time it showed.
    Widened,
    /// The clock has stepped, at once or by many small shifts. Earlier holders are judged by every clock that is known.
    Stepped,
}

/// Keeps the offset between this machine's boot clock and the store's clock as an interval, learnt from the send
/// and receive times of each answer.
///
/// Every answer bounds the offset. The strictest bounds since the last step are kept, and only age loosens them, by
/// 500 ppm: so they cross once the store's clock has surely shifted, whether it was stepped or slewed, at once or
/// little by little. Crossed by more than the margin, they prove a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Clock {
    /// The strictest bounds of all answers since the last step.
    bounds: Bounds,
    /// The offsets that are possible as of `at`: all between the bounds, and all that the last answer allows, so that
    /// an answer which was too slow to reveal a step does no harm either.
    offsets: Offsets,
    at: BootTime,
    margin: Duration,
    earlier: Option<Earlier>,
    stepped_at: Option<BootTime>,
    restarted: Option<Time>,
}

/// The store's clocks before its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Earlier {
    /// The latest time that any of them may have shown.
    latest: Time,
    /// The lowest offset of any of them.
    lowest: Bound,
}

impl Clock {
    /// A clock that knows what one answer said. `margin` is what the store's clock may step by unnoticed.
    pub fn new(sent: BootTime, received: BootTime, stamp: Stamp, margin: Duration) -> Self {
        let offsets = Offsets::told(sent, received, stamp);
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

    /// The same for a store that keeps its own time and resumed it at this moment, after an interruption of unknown
    /// length such as a reboot. Holders outlive the interruption: each keeps a whole ttl from this moment.
    pub fn restarted(mut self, at: Option<Time>) -> Self {
        self.restarted = at;
        self
    }

    /// Learns from an answer that was received at `received` to a request sent at `sent`.
    pub fn observe(&mut self, sent: BootTime, received: BootTime, stamp: Stamp) -> Observed {
        // An answer may be looked at after a later one: it is then as old as that makes it.
        let at = received.max(self.at);
        let answer = Offsets::told(sent, received, stamp);
        let before = self.offsets.widened(at.since(self.at));
        let bounds = self.bounds.tightened(answer, received, at);
        let shift = bounds.crossed_by(at);
        let told = answer.widened(at.since(received));
        let observed = if shift > i128::from(micros(self.margin)) {
            self.step(before, told, at);
            self.bounds = Bounds::new(answer, received);
            Observed::Stepped
        } else {
            self.bounds = bounds;
            if shift > 0 {
                Observed::Widened
            } else {
                Observed::Agrees
            }
        };
        let offsets = self.bounds.offsets(at).both(told);
        self.offsets = if received < self.at {
            offsets.both(before)
        } else {
            offsets
        };
        self.at = at;
        observed
    }

    /// Records that the clock has stepped between two answers.
    fn step(&mut self, before: Offsets, after: Offsets, at: BootTime) {
        let mut latest = before.both(after).interval(at).latest;
        let mut offset = before.lowest;
        if let Some(earlier) = self.earlier {
            latest = latest.max(earlier.latest);
            offset = offset.min(earlier.lowest.lower_at(at));
        }
        let lowest = Bound { offset, at };
        self.earlier = Some(Earlier { latest, lowest });
        self.stepped_at = Some(at);
    }

    /// What is known of the store's time at this moment of the boot clock.
    pub fn interval(&self, boot: BootTime) -> Interval {
        self.offsets.widened(boot.since(self.at)).interval(boot)
    }

    /// Everything that the core asks of time at this moment, with what has been seen of one record's holders.
    pub fn now<'a>(&self, boot: BootTime, seen: &'a Sightings) -> Now<'a> {
        Now {
            interval: self.interval(boot),
            boot,
            earlier: self.earlier_clocks(boot),
            stepped_at: self.stepped_at,
            restarted: self.restarted,
            margin: self.margin,
            seen,
            high_water: Time::default(),
        }
    }

    /// Returns the present time by the clocks before the last step; `None` if no step was noticed.
    fn earlier_clocks(&self, boot: BootTime) -> Option<EarlierClocks> {
        self.earlier.map(|earlier| EarlierClocks {
            latest: earlier.latest,
            earliest: time_at(boot, earlier.lowest.lower_at(boot)),
        })
    }

    /// Whether the store's clock was stepped back and has not caught up yet. Until then a holder may have expired by
    /// observation although its expiry is ahead.
    pub fn is_behind(&self, boot: BootTime) -> bool {
        let earliest = self.interval(boot).earliest;
        self.earlier
            .is_some_and(|earlier| earliest <= earlier.latest)
    }

    /// Returns the earliest expiry that a live holder may have. An earlier one has passed by every clock that the store
    /// has shown.
    pub fn earliest_live_expiry(&self, boot: BootTime) -> Time {
        if self.restarted.is_some() {
            // Expiries from before a restart prove nothing; a record without holders counts as zero.
            return Time::from_micros(1);
        }
        let earliest = self.interval(boot).earliest;
        let earlier = self.earlier_clocks(boot);
        earlier.map_or(earliest, |earlier| earlier.earliest.min(earliest))
    }

    /// Returns the latest expiry that the present clock can have given to a lease of this ttl. A later one belongs to a
    /// longer ttl, or was written by a clock that has stepped back since.
    pub fn latest_expiry(&self, boot: BootTime, ttl: Duration) -> Time {
        self.interval(boot).latest + ttl + self.margin + MAX_CLOCK_UNCERTAINTY
    }

    /// How long ago the store was last heard of.
    pub fn age(&self, boot: BootTime) -> Duration {
        boot.since(self.at)
    }

    /// When the store's clock was last seen to step.
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

/// The strictest bounds that answers have set. Each keeps the moment it was set, so that ageing adds up exactly.
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
        let told = Self::new(answer, received);
        Self {
            lower: if told.lower.lower_at(at) >= self.lower.lower_at(at) {
                told.lower
            } else {
                self.lower
            },
            upper: if told.upper.upper_at(at) <= self.upper.upper_at(at) {
                told.upper
            } else {
                self.upper
            },
        }
    }

    /// Returns the least shift of the store's clock between the answers that set these bounds. Zero or less means that
    /// it need not have shifted.
    fn crossed_by(self, at: BootTime) -> i128 {
        self.lower.lower_at(at) - self.upper.upper_at(at)
    }

    /// Returns the offsets between the bounds, crossed or not.
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
    /// What one answer says: its stamp was made somewhere between the send and the receipt.
    fn told(sent: BootTime, received: BootTime, stamp: Stamp) -> Self {
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

    /// Everything from the lower end of either to the upper end of either.
    fn both(self, other: Self) -> Self {
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

/// How much before the store's expiry a holder lets go: what the store's clock may step by, and 0.1 % of the ttl
/// for drift.
pub fn holder_margin(store_margin: Duration, ttl: Duration) -> Duration {
    store_margin + ttl / 1_000
}

/// Returns the shortest ttl on a store with this margin: four margins, of which the holder can use nearly three.
pub fn min_ttl(store_margin: Duration) -> Duration {
    store_margin * 4
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
