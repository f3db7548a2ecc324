//! Reserving the next grant.

use super::conflict::{conflict, live_reservation};
use super::{Decision, pruned};
use crate::clock::Now;
use crate::operation::{Outcome, Reserve};
use crate::record::{Record, Reservation};
use crate::{Time, limits};

pub(super) fn reserve(record: Option<&Record>, reserve: &Reserve, now: &Now<'_>) -> Decision {
    let Some(record) = record else {
        return Decision::unchanged(Outcome::Free);
    };
    let mine = record.next.as_ref();
    let mine = mine.filter(|next| next.nonce == reserve.nonce);
    if reserve.span.is_zero() {
        return withdraw(record, mine, now);
    }
    let held = match conflict(record, reserve.nonce, reserve.mode, None, now) {
        None => return Decision::unchanged(Outcome::Free),
        Some(Outcome::Held(held)) => held,
        Some(refusal) => return Decision::unchanged(refusal),
    };
    if mine.is_none() && live_reservation(record, now).is_some() {
        return Decision::unchanged(Outcome::Held(held));
    }
    let latest = now.interval.latest;
    let since = mine.map_or(latest, |mine| reserving_since(mine.since, now));
    let until =
        (latest + reserve.span.min(limits::MAX_RESERVATION)).min(since + limits::MAX_RESERVING);
    if until <= latest {
        return Decision::unchanged(Outcome::Held(held));
    }
    let mut next = pruned(Some(record), now);
    next.next = Some(Reservation {
        nonce: reserve.nonce,
        mode: reserve.mode,
        since,
        until,
    });
    Decision::write(next, Outcome::Reserved { until })
}

/// Returns the start of a waiter's reservations, given that it first reserved at `since`. They start again once the
/// waiter has been barred for long enough. A time in the future was written by a clock that has stepped back since.
fn reserving_since(since: Time, now: &Now<'_>) -> Time {
    let may_start_again = now.interval.earliest > since + limits::MAX_RESERVING * 2;
    if may_start_again {
        now.interval.latest
    } else {
        since.min(now.interval.latest)
    }
}

fn withdraw(record: &Record, mine: Option<&Reservation>, now: &Now<'_>) -> Decision {
    if mine.is_none() {
        return Decision::unchanged(Outcome::Free);
    }
    let mut next = pruned(Some(record), now);
    next.next = None;
    Decision::write(next, Outcome::Free)
}
