//! Being next.

use super::obstacle::{live_reservation, obstacle};
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
    let held = match obstacle(record, reserve.nonce, reserve.mode, None, now) {
        None => return Decision::unchanged(Outcome::Free),
        Some(Outcome::Held(held)) => held,
        Some(refusal) => return Decision::unchanged(refusal),
    };
    if mine.is_none() && live_reservation(record, now).is_some() {
        return Decision::unchanged(Outcome::Held(held));
    }
    let latest = now.interval.latest;
    let since = mine.map_or(latest, |mine| spell_start(mine.since, now));
    let until = (latest + reserve.span.min(limits::RESERVATION)).min(since + limits::RESERVATIONS);
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

/// Since when a waiter that first reserved at `since` counts as having reserved: since then, unless it has been
/// lapsed for long enough to start anew, or a clock that has stepped back wrote a moment that is yet to come.
fn spell_start(since: Time, now: &Now<'_>) -> Time {
    let anew = now.interval.earliest > since + limits::RESERVATIONS * 2;
    if anew {
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
