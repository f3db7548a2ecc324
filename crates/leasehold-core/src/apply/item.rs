//! Putting and removing work items, and purging records.

use std::time::Duration;

use super::conflict::{leased, live_reservation};
use super::{Change, Decision, pruned};
use crate::clock::Now;
use crate::operation::{Outcome, Put};
use crate::record::{Fence, Record, Text};

pub(super) fn put(record: Option<&Record>, put: &Put, now: &Now<'_>) -> Decision {
    if put.nonce.is_some() && record.is_some_and(|record| record.put == put.nonce) {
        return Decision::unchanged(Outcome::Put);
    }
    if let Some(held) = record.and_then(|record| leased(record, now)) {
        return Decision::unchanged(Outcome::Held(held));
    }
    let mut next = pruned(record, now);
    if let Some(body) = &put.body {
        next.body = body.clone();
    }
    next.state = Some(now.enter(put.state.clone(), next.state.as_ref()));
    next.put = put.nonce;
    Decision::write(next, Outcome::Put)
}

/// Empties an item. The record keeps the nonce of the last `put`, so that a late repetition does not restore the item.
pub(super) fn remove(record: Option<&Record>, now: &Now<'_>) -> Decision {
    let Some(record) = record else {
        return Decision::unchanged(Outcome::Removed);
    };
    if let Some(held) = leased(record, now) {
        return Decision::unchanged(Outcome::Held(held));
    }
    if is_empty(record) {
        return Decision::unchanged(Outcome::Removed);
    }
    let mut next = pruned(Some(record), now);
    next.body = Text::default();
    next.state = None;
    Decision::write(next, Outcome::Removed)
}

/// Deletes a record that is free, empty and old. If the name is used again, its fences start from the store's time,
/// which is above every fence granted before. A clock step could break that, so there is no purge within a retention
/// of a step.
pub(super) fn purge(record: Option<&Record>, retention: Duration, now: &Now<'_>) -> Decision {
    let Some(record) = record else {
        return Decision::unchanged(Outcome::Purged);
    };
    let oldest = now.interval.earliest - retention;
    let in_use = record.holders.iter().any(|holder| !now.is_expired(holder))
        || live_reservation(record, now).is_some();
    // A repeated release or completion is recognised by how the last holder ended.
    let ended_lately = record.last.as_ref().is_some_and(|last| last.at >= oldest);
    let young = record.fence >= Fence::starting_at(oldest) || ended_lately;
    if in_use || young || !is_empty(record) || now.stepped_within(retention) {
        return Decision::unchanged(Outcome::NotPurged);
    }
    Decision {
        change: Change::Delete,
        outcome: Outcome::Purged,
    }
}

fn is_empty(record: &Record) -> bool {
    record.body.is_empty() && record.state.is_none()
}
