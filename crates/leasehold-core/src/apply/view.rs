//! The view of a record at a moment.

use std::time::Duration;

use super::conflict::live_reservation;
use super::pruned;
use crate::clock::Now;
use crate::record::Record;

/// A record at a moment, without expired holders. Only the last one that ended is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The record without expired holders. It contains the hashes of nonces: remove them before it leaves the process.
    pub record: Record,
    /// The remaining time of each holder, in the same order, unless it is renewed.
    pub remaining: Vec<Duration>,
    /// Whether a waiter has reserved the next grant.
    pub reserved: bool,
}

/// Returns the view of a record at this time.
pub fn view(record: &Record, now: &Now<'_>) -> View {
    let record = pruned(Some(record), now);
    let remaining = record
        .holders
        .iter()
        .map(|holder| now.remaining(holder).unwrap_or_default())
        .collect();
    let reserved = live_reservation(&record, now).is_some();
    View {
        record,
        remaining,
        reserved,
    }
}
