//! Looking at a record.

use std::time::Duration;

use super::obstacle::live_reservation;
use super::pruned;
use crate::clock::Now;
use crate::record::Record;

/// A record as it stands at a moment: holders that are over do not show, except as how the last one ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The record, pruned. It shows nonces' hashes: drop them before it leaves the process.
    pub record: Record,
    /// How long each of the holders still has, in the same order, if nobody renews it.
    pub left: Vec<Duration>,
    /// Whether a waiter has reserved it.
    pub reserved: bool,
}

/// Looks at a record.
pub fn view(record: &Record, now: &Now<'_>) -> View {
    let record = pruned(Some(record), now);
    let left = record
        .holders
        .iter()
        .map(|holder| now.left(holder).unwrap_or_default())
        .collect();
    let reserved = live_reservation(&record, now).is_some();
    View {
        record,
        left,
        reserved,
    }
}
