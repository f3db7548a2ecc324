//! The two kinds of time: the store's, and this machine's since it booted.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment of the **store's** time, in microseconds since 1970.
///
/// Every expiry is written in it. No client's wall clock is ever compared with it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(u64);

/// A moment of **this machine's** boot clock, in microseconds. It runs during suspend, never steps, and means
/// nothing on another machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootTime(u64);

/// A span as whole microseconds; spans beyond 580,000 years saturate.
pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

macro_rules! moment {
    ($type:ident) => {
        impl $type {
            /// From microseconds.
            pub const fn from_micros(micros: u64) -> Self {
                Self(micros)
            }

            /// In microseconds.
            pub const fn as_micros(self) -> u64 {
                self.0
            }

            /// How long after `earlier` this is; zero if it is before.
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
    /// In whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }
}

/// The store's time as one of its answers told it: the truth lies in `[time, time + resolution]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// What the answer said.
    pub time: Time,
    /// How coarse the source is: a microsecond, a millisecond, a second for an HTTP `Date`.
    pub resolution: Duration,
}

/// What is known of the store's present time: it is not before `earliest` and not after `latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    /// The store's clock shows at least this.
    pub earliest: Time,
    /// The store's clock shows at most this.
    pub latest: Time,
}

impl Interval {
    /// A clock known exactly.
    pub const fn exactly(time: Time) -> Self {
        Self {
            earliest: time,
            latest: time,
        }
    }
}
