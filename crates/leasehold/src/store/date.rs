//! The time that an HTTP answer tells.

use std::time::Duration;

use leasehold_core::{Stamp, Time};

/// When an answer was made: somewhere in the second that its `Date` header says.
pub(super) fn stamp(date: &str) -> Option<Stamp> {
    let time = jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(date)
        .ok()?;
    let micros = u64::try_from(time.as_microsecond()).ok()?;
    Some(Stamp {
        time: Time::from_micros(micros),
        resolution: Duration::from_secs(1),
    })
}
