//! The JSON types of the HTTP API. Times are in RFC 3339, durations in whole milliseconds.
//!
//! No response type has a field for the hash of a nonce, so that none can leak.

mod event;
mod history;
mod lease;
mod problem;
mod requests;
mod view;
mod work;
mod write;

pub use event::{EventKind, EventMessage};
pub use history::{History, HoldPeriod, Minute, Totals};
pub use lease::{
    BreakOptions, BreakResponse, Heartbeat, HeartbeatResult, Heartbeats, HeartbeatsResponse, Lease,
    ReleaseResponse,
};
pub use problem::{Problem, ProblemType};
pub use requests::{Answer, Answers, Requests, SingleRequest};
pub use view::{EndKind, Gates, HolderView, LastHolderView, LockView, Locks};
pub use work::{Items, NamedLease, NamedLeases, Names, PutResponse, RemoveResponse};

use std::time::Duration;

use leasehold_core::{Mode, Text};
use serde::{Deserialize, Serialize};

/// The header for the nonce, an alternative to the URL parameter.
pub const NONCE_HEADER: &str = "leasehold-nonce";
/// The maximum number of leases in one request to `/heartbeats`.
pub const MAX_HEARTBEATS: usize = 1_000;
/// The maximum number of requests in one request to `/requests`.
pub const MAX_REQUESTS: usize = 256;
/// The maximum number of names in one page of a list.
pub const MAX_PAGE: usize = 1_000;
/// The length in bytes to which a body in a list is truncated, unless the request asks for whole bodies.
pub const CUT_BODY: usize = 256;
/// The maximum time that a request may wait in the queue.
pub const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Truncates a body. Returns the length of the whole body if it was truncated.
fn cut(body: Text) -> (Text, Option<u64>) {
    if body.len() <= CUT_BODY {
        return (body, None);
    }
    let beginning = &body[..body.floor_char_boundary(CUT_BODY)];
    (beginning.into(), Some(body.len() as u64))
}

/// Returns a duration in whole milliseconds, rounded down.
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// How a lease is held, without the limit of shared holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModeKind {
    /// No other holder of any mode.
    Exclusive,
    /// No exclusive holder.
    Shared,
}

impl ModeKind {
    /// Splits a mode into its kind and its limit.
    pub fn split(mode: Mode) -> (Self, Option<u16>) {
        match mode {
            Mode::Exclusive => (Self::Exclusive, None),
            Mode::Shared { limit } => (Self::Shared, limit),
        }
    }

    /// Returns the mode of this kind with this limit.
    pub fn join(self, limit: Option<u16>) -> Mode {
        match self {
            Self::Exclusive => Mode::Exclusive,
            Self::Shared => Mode::Shared { limit },
        }
    }
}

/// How a lease was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GrantKind {
    /// The lease was free.
    Fresh,
    /// The caller already held the lease by the same nonce. Its older fence is now refused.
    Again,
    /// The caller already held the lease and presented its fence, which stays valid.
    Kept,
}

impl From<leasehold_core::GrantKind> for GrantKind {
    fn from(granted: leasehold_core::GrantKind) -> Self {
        match granted {
            leasehold_core::GrantKind::Fresh => Self::Fresh,
            leasehold_core::GrantKind::Again => Self::Again,
            leasehold_core::GrantKind::Kept => Self::Kept,
        }
    }
}

impl From<GrantKind> for leasehold_core::GrantKind {
    fn from(granted: GrantKind) -> Self {
        match granted {
            GrantKind::Fresh => Self::Fresh,
            GrantKind::Again => Self::Again,
            GrantKind::Kept => Self::Kept,
        }
    }
}

/// Times as RFC 3339 in UTC, always with six fractional digits, so that they sort as text.
pub(crate) mod rfc3339 {
    use std::borrow::Cow;

    use jiff::Timestamp;
    use jiff::tz::Offset;
    use leasehold_core::Time;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(time: &Time, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(std::str::from_utf8(&format(*time)).expect("the text is ASCII"))
    }

    /// Formats a time. Writes two digits at a time, which is several times as fast as `format!`; every response has times.
    pub(super) fn format(time: Time) -> [u8; 27] {
        let date = Offset::UTC.to_datetime(timestamp(time));
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        let mut put = |offset: usize, number: u32| {
            text[offset] += (number / 10) as u8;
            text[offset + 1] += (number % 10) as u8;
        };
        let year = u32::from(date.year().unsigned_abs());
        let micros = date.subsec_nanosecond().unsigned_abs() / 1_000;
        put(0, year / 100);
        put(2, year % 100);
        put(5, date.month().unsigned_abs().into());
        put(8, date.day().unsigned_abs().into());
        put(11, date.hour().unsigned_abs().into());
        put(14, date.minute().unsigned_abs().into());
        put(17, date.second().unsigned_abs().into());
        put(20, micros / 10_000);
        put(22, micros / 100 % 100);
        put(24, micros % 100);
        text
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
        let text = <Cow<'de, str>>::deserialize(from)?;
        parse(&text).ok_or_else(|| {
            de::Error::custom("invalid time: RFC 3339 is required, such as `2026-01-31T12:00:00Z`")
        })
    }

    /// Converts a time. Times beyond the range of a timestamp become the last timestamp.
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
    fn formatted_times_equal_those_of_jiff() {
        let (day, year) = (86_400_000_000, 31_557_600_000_000);
        let days = (0..800).map(|number| number * day + number * 1_234_567);
        let years = (0..250).map(|number| number * 37 * year + number);
        for micros in days.chain(years).chain([u64::MAX]) {
            let time = Time::from_micros(micros);
            let text = String::from_utf8(format(time).into()).unwrap();
            assert_eq!(text, format!("{:.6}", timestamp(time)));
        }
    }

    pub(crate) mod option {
        use leasehold_core::Time;
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        #[derive(Serialize, Deserialize)]
        #[serde(transparent)]
        struct Rfc3339(#[serde(with = "super")] Time);

        pub(crate) fn serialize<S: Serializer>(
            time: &Option<Time>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            time.map(Rfc3339).serialize(serializer)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<Time>, D::Error> {
            Ok(Option::<Rfc3339>::deserialize(from)?.map(|Rfc3339(time)| time))
        }
    }
}
