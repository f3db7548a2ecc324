//! The two kinds of time: the store's, and this machine's boot clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment of the **store's** time, in microseconds since 1970.
///
/// Every expiry is a store time. It is never compared with a client's wall clock.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(u64);

/// A moment of **this machine's** boot clock, in microseconds. The clock runs during suspend, never steps, and has no
/// meaning on another machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootTime(u64);

/// Returns a span as whole microseconds. Spans beyond 580,000 years saturate.
pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

macro_rules! moment {
    ($type:ident) => {
        impl $type {
            /// Creates a moment from microseconds.
            pub const fn from_micros(micros: u64) -> Self {
                Self(micros)
            }

            /// Returns the moment in microseconds.
            pub const fn as_micros(self) -> u64 {
                self.0
            }

            /// Returns the time since `earlier`, or zero if this moment is before it.
            pub const fn since(self, earlier: Self) -> Duration {
                Duration::from_micros(self.0.saturating_sub(earlier.0))
            }
        }

        impl Add<Duration> for $type {
            type Output = Self;
            fn add(self, span: Duration) -> Self {
                Self(self.0.saturating_add(micros(span)))
            }
        }

        impl Sub<Duration> for $type {
            type Output = Self;
            fn sub(self, span: Duration) -> Self {
                Self(self.0.saturating_sub(micros(span)))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}.{:06}s", self.0 / 1_000_000, self.0 % 1_000_000)
            }
        }
    };
}

moment!(Time);
moment!(BootTime);

impl Time {
    /// Returns the moment in whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }
}

/// The store's time in one of its answers: the true time is in `[time, time + resolution]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The time in the answer.
    pub time: Time,
    /// The resolution of the source: a microsecond, a millisecond, or a second for an HTTP `Date`.
    pub resolution: Duration,
}

/// The store's present time, as bounds: not before `earliest` and not after `latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    /// The lower bound of the store's clock.
    pub earliest: Time,
    /// The upper bound of the store's clock.
    pub latest: Time,
}

impl Interval {
    /// Returns the interval of a clock that is known exactly.
    pub const fn exactly(time: Time) -> Self {
        Self {
            earliest: time,
            latest: time,
        }
    }
}
