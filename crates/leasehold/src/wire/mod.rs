//! What the service and its clients say to each other: JSON with times in RFC 3339 and spans in whole milliseconds.
//!
//! A nonce's hash never gets here: these types have no place for one.

mod event;
mod history;
mod lease;
mod problem;
mod requests;
mod several;
mod view;
mod write;

pub use event::{EventKind, Told};
pub use history::{History, Minute, Tenure, Totals};
pub use lease::{
    BreakHow, Broken, Heartbeat, HeartbeatAnswer, Heartbeats, HeartbeatsAnswer, Lease, Released,
};
pub use problem::{Problem, Trouble};
pub use requests::{Answer, Answers, Requests, Single};
pub use several::{Items, NamedLease, NamedLeases, Names, Removed, Stored};
pub use view::{EndedAs, Ending, Gates, HolderView, LockView, Locks};

use std::time::Duration;

use leasehold_core::{GrantKind, Mode};
use serde::{Deserialize, Serialize};

/// The header that may carry the nonce instead of the URL.
pub const NONCE_HEADER: &str = "leasehold-nonce";
/// How many leases one call of `/heartbeats` may renew.
pub const MAX_HEARTBEATS: usize = 1_000;
/// How many requests one call of `/requests` may carry.
pub const MAX_REQUESTS: usize = 256;
/// How many names one page of a list may have.
pub const MAX_PAGE: usize = 1_000;
/// The longest that a call may wait in line: a day.
pub const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// A span in whole milliseconds, rounded down.
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The mode without its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// No other holder.
    Exclusive,
    /// Other sharers.
    Shared,
}

impl Sharing {
    /// A mode as its word and its limit.
    pub fn split(mode: Mode) -> (Self, Option<u16>) {
        match mode {
            Mode::Exclusive => (Self::Exclusive, None),
            Mode::Shared { limit } => (Self::Shared, limit),
        }
    }

    /// The mode again.
    pub fn join(self, limit: Option<u16>) -> Mode {
        match self {
            Self::Exclusive => Mode::Exclusive,
            Self::Shared => Mode::Shared { limit },
        }
    }
}

/// How a lease came to be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GrantedAs {
    /// It was free.
    Fresh,
    /// By the nonce that holds it already: the older fence is dead.
    Again,
    /// By nonce and fence: the fence stays.
    Kept,
}

impl From<GrantKind> for GrantedAs {
    fn from(granted: GrantKind) -> Self {
        match granted {
            GrantKind::Fresh => Self::Fresh,
            GrantKind::Again => Self::Again,
            GrantKind::Kept => Self::Kept,
        }
    }
}

impl From<GrantedAs> for GrantKind {
    fn from(granted: GrantedAs) -> Self {
        match granted {
            GrantedAs::Fresh => Self::Fresh,
            GrantedAs::Again => Self::Again,
            GrantedAs::Kept => Self::Kept,
        }
    }
}

/// The store's times as RFC 3339 in UTC, always with six digits, so that they sort as text.
pub(crate) mod rfc3339 {
    use std::borrow::Cow;

    use jiff::Timestamp;
    use jiff::tz::Offset;
    use leasehold_core::Time;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(time: &Time, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(std::str::from_utf8(&written(*time)).expect("digits are text"))
    }

    /// Every answer has some of these: two digits at a time, which is several times as fast as to format them.
    pub(super) fn written(time: Time) -> [u8; 27] {
        let at = Offset::UTC.to_datetime(timestamp(time));
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        let mut put = |place: usize, number: u32| {
            text[place] += (number / 10) as u8;
            text[place + 1] += (number % 10) as u8;
        };
        let year = u32::from(at.year().unsigned_abs());
        let micros = at.subsec_nanosecond().unsigned_abs() / 1_000;
        put(0, year / 100);
        put(2, year % 100);
        put(5, at.month().unsigned_abs().into());
        put(8, at.day().unsigned_abs().into());
        put(11, at.hour().unsigned_abs().into());
        put(14, at.minute().unsigned_abs().into());
        put(17, at.second().unsigned_abs().into());
        put(20, micros / 10_000);
        put(22, micros / 100 % 100);
        put(24, micros % 100);
        text
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
        let text = <Cow<'de, str>>::deserialize(from)?;
        parse(&text).ok_or_else(|| de::Error::custom("not a time in RFC 3339"))
    }

    /// A time that no calendar shows is the last one that it shows.
    fn timestamp(time: Time) -> Timestamp {
        i64::try_from(time.as_micros())
            .ok()
            .and_then(|micros| Timestamp::from_microsecond(micros).ok())
            .unwrap_or(Timestamp::MAX)
    }

    fn parse(text: &str) -> Option<Time> {
        let micros = text.parse::<Timestamp>().ok()?.as_microsecond();
        u64::try_from(micros).ok().map(Time::from_micros)
    }

    #[test]
    fn times_are_written_as_the_calendar_has_them() {
        let (day, year) = (86_400_000_000, 31_557_600_000_000);
        let days = (0..800).map(|number| number * day + number * 1_234_567);
        let years = (0..250).map(|number| number * 37 * year + number);
        for micros in days.chain(years).chain([u64::MAX]) {
            let time = Time::from_micros(micros);
            let text = String::from_utf8(written(time).into()).unwrap();
            assert_eq!(text, format!("{:.6}", timestamp(time)));
        }
    }

    pub(crate) mod option {
        use leasehold_core::Time;
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        #[derive(Serialize, Deserialize)]
        #[serde(transparent)]
        struct Wrapped(#[serde(with = "super")] Time);

        pub(crate) fn serialize<S: Serializer>(
            time: &Option<Time>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            time.map(Wrapped).serialize(serializer)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<Time>, D::Error> {
            Ok(Option::<Wrapped>::deserialize(from)?.map(|Wrapped(time)| time))
        }
    }
}
