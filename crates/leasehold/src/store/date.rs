//! The time in an HTTP response.

use std::time::Duration;

use leasehold_core::{Stamp, Time};

/// Parses a `Date` header. The response was created at some time within that second.
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
