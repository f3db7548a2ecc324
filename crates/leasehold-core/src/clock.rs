//! The store's time as an interval, and what a step of its clock means for leases.

use std::time::Duration;

use crate::record::{Fence, Holder, Record};
use crate::time::micros;
use crate::{BootTime, Interval, Kind, Stamp, Time};

/// The most by which two honest clocks are taken to drift apart: 500 parts per million.
const DRIFT_PER_MILLION: u64 = 500;

/// By so much two writers that both know the store's time may differ in it: a call may take seconds, and what it tells
/// of the time is as wide as it took.
pub(crate) const LITTLE: Duration = Duration::from_secs(5);

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
/// It widens with age by 500 ppm and narrows again with every answer. What all answers together say finds the steps
/// of the store's clock; but the interval that it gives always contains the whole of what the last answer said, so
/// that an answer which was too slow to reveal a step does no harm either.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Clock {
    /// What all answers since the last step agree on, as of `at`.
    known: Offsets,
    /// What the last answer said, as of `at`.
    answer: Offsets,
    at: BootTime,
    margin: Duration,
    doubt: Option<Time>,
    stepped_at: Option<BootTime>,
    restarted: Option<Time>,
}

impl Clock {
    /// A clock that knows what one answer said. `margin` is what the store's clock may step by unnoticed.
    pub fn new(sent: BootTime, received: BootTime, stamp: Stamp, margin: Duration) -> Self {
        let answer = Offsets::told(sent, received, stamp);
        Self {
            known: answer,
            answer,
            at: received,
            margin,
            doubt: None,
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
        let answer = Offsets::told(sent, received, stamp).widened(at.since(received));
        let known = self.known.widened(at.since(self.at));
        let apart = known.apart(answer);
        let observed = if apart <= 0 {
            self.known = known.common(answer);
            Observed::Agrees
        } else if apart <= i128::from(micros(self.margin)) {
            self.known = known.both(answer);
            Observed::Widened
        } else {
            // Whatever either clock may have written so far.
            let written = answer.both(known).interval(at).latest;
            self.known = answer;
            self.doubt = self.doubt.max(Some(written));
            self.stepped_at = Some(at);
            Observed::Stepped
        };
        self.answer = if received < self.at {
            self.answer.both(answer)
        } else {
            answer
        };
        self.at = at;
        observed
    }

    /// What is known of the store's time at this moment of the boot clock.
    pub fn interval(&self, boot: BootTime) -> Interval {
        let offsets = self.known.both(self.answer);
        offsets.widened(boot.since(self.at)).interval(boot)
    }

    /// Everything that the core asks of time at this moment, with what has been seen of one record's holders.
    pub fn now<'a>(&self, boot: BootTime, seen: &'a Sightings) -> Now<'a> {
        Now {
            interval: self.interval(boot),
            boot,
            doubt: self.doubt,
            stepped_at: self.stepped_at,
            restarted: self.restarted,
            margin: self.margin,
            seen,
            high_water: Time::default(),
        }
    }

    /// The earliest expiry that a live holder may have.
    pub fn earliest_live_expiry(&self, boot: BootTime) -> Time {
        match (self.doubt, self.restarted) {
            (None, None) => self.interval(boot).earliest,
            // Expiries from before a step or a restart prove nothing; a record without holders counts as zero.
            _ => Time::from_micros(1),
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
        let drift = i128::from(micros(drift(age)));
        Self {
            lowest: self.lowest - drift,
            highest: self.highest + drift,
        }
    }

    /// How far these lie apart; not above zero if they overlap.
    fn apart(self, other: Self) -> i128 {
        (self.lowest - other.highest).max(other.lowest - self.highest)
    }

    /// What lies in both.
    fn common(self, other: Self) -> Self {
        Self {
            lowest: self.lowest.max(other.lowest),
            highest: self.highest.min(other.highest),
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
        let at = |offset: i128| {
            let time = (i128::from(boot.as_micros()) + offset).clamp(0, i128::from(u64::MAX));
            Time::from_micros(u64::try_from(time).unwrap_or(u64::MAX))
        };
        Interval {
            earliest: at(self.lowest),
            latest: at(self.highest),
        }
    }
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
    /// After a step of the store's clock: expiries counted from this or before mean nothing any more. Their holders
    /// are judged by observation only.
    pub doubt: Option<Time>,
    /// When the store's clock was last seen to step, by this machine's boot clock.
    pub stepped_at: Option<BootTime>,
    /// When the store resumed its own clock after an interruption of unknown length.
    pub restarted: Option<Time>,
    /// What the store's clock may step by unnoticed.
    pub margin: Duration,
    /// Since when this process has seen the holders in doubt.
    pub seen: &'a Sightings,
    /// The highest moment that this process has written, by [`high_water_with`](Self::high_water_with).
    pub high_water: Time,
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
    /// Either the store's clock has passed its expiry, unless that is in doubt; or it was watched for its whole ttl.
    pub fn left(&self, holder: &Holder) -> Option<Duration> {
        let unwatched = |watched: Duration| {
            let whole = holder.ttl + drift(holder.ttl) + Duration::from_micros(1);
            whole.checked_sub(watched).filter(|left| !left.is_zero())
        };
        let watched = self.seen.since(holder).map(|since| self.boot.since(since));
        if self.doubts(holder) {
            return unwatched(watched.unwrap_or_default());
        }
        let unexpired = self.until_past(self.expiry(holder));
        watched.map_or(unexpired, |watched| unexpired.min(unwatched(watched)))
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

    /// Whether the expiry that is written for this holder means nothing, because the clock that it was counted by has
    /// stepped since: this process saw it step, or no renewal by the present clock could have put it that far ahead,
    /// even by somebody who knew the time less well.
    pub(crate) fn doubts(&self, holder: &Holder) -> bool {
        let counted_from = holder.expires_at - holder.ttl;
        self.doubt.is_some_and(|step| counted_from <= step)
            || counted_from > self.interval.latest + self.margin + LITTLE
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

    fn since(&self, holder: &Holder) -> Option<BootTime> {
        self.0
            .iter()
            .find(|seen| seen.fence == holder.fence && seen.renewed_at == holder.renewed_at)
            .map(|seen| seen.since)
    }
}
