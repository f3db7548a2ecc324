//! Conflicts: the live holders and the reservation that prevent a grant.

use std::time::Duration;

use crate::clock::Now;
use crate::limits;
use crate::operation::{Held, Outcome};
use crate::record::{Fence, Hash, Holder, Mode, Record, Reservation, Text};

/// Returns what prevents a grant in this mode: live holders other than the caller's `own`, or another waiter's
/// reservation.
///
/// A caller that already holds the lease ignores a reservation, because it does not take the waiter's turn.
pub(super) fn conflict(
    record: &Record,
    nonce: Hash,
    mode: Mode,
    own: Option<Fence>,
    now: &Now<'_>,
) -> Option<Outcome> {
    let mut others = LiveHolders::default();
    for holder in &record.holders {
        if own == Some(holder.fence) {
            continue;
        }
        let Some(remaining) = now.remaining(holder) else {
            continue;
        };
        if let (Mode::Shared { limit }, Mode::Shared { limit: requested }) = (holder.mode, mode)
            && limit != requested
        {
            return Some(Outcome::LimitMismatch { limit });
        }
        others.add(holder, remaining);
    }
    if let Some(held) = others.conflict(mode) {
        return Some(Outcome::Held(held));
    }
    if own.is_some() {
        return None;
    }
    let (reservation, remaining) = live_reservation(record, now)?;
    (reservation.nonce != nonce).then(|| {
        Outcome::Held(Held {
            owner: Text::default(),
            since: reservation.since,
            retry_after: remaining,
        })
    })
}

/// Returns the live holders, for operations that require a free record.
pub(super) fn leased(record: &Record, now: &Now<'_>) -> Option<Held> {
    let mut others = LiveHolders::default();
    for holder in &record.holders {
        if let Some(remaining) = now.remaining(holder) {
            others.add(holder, remaining);
        }
    }
    others.conflict(Mode::Exclusive)
}

/// Returns the live reservation and its remaining time. A reservation beyond the longest one was written by a clock
/// that has stepped since, and is ignored.
pub(super) fn live_reservation<'r>(
    record: &'r Record,
    now: &Now<'_>,
) -> Option<(&'r Reservation, Duration)> {
    let reservation = record.next.as_ref()?;
    let furthest = now.interval.latest + limits::MAX_RESERVATION + now.margin;
    let remaining = now.until_past(reservation.until)?;
    (reservation.until <= furthest).then_some((reservation, remaining))
}

/// A summary of live holders other than the caller.
#[derive(Default)]
struct LiveHolders<'r> {
    count: usize,
    exclusive: bool,
    first: Option<&'r Holder>,
    soonest: Duration,
    last: Duration,
}

impl<'r> LiveHolders<'r> {
    fn add(&mut self, holder: &'r Holder, remaining: Duration) {
        self.soonest = if self.count == 0 {
            remaining
        } else {
            self.soonest.min(remaining)
        };
        self.last = self.last.max(remaining);
        self.exclusive |= holder.mode == Mode::Exclusive;
        self.first = self.first.or(Some(holder));
        self.count += 1;
    }

    fn conflict(&self, mode: Mode) -> Option<Held> {
        let first = self.first?;
        let sharing = matches!(mode, Mode::Shared { .. }) && !self.exclusive;
        if sharing && self.count < mode.capacity() {
            return None;
        }
        // A shared holder can follow the first that ends; an exclusive holder must wait for the last.
        let retry_after = if sharing { self.soonest } else { self.last };
        Some(Held {
            owner: first.owner.clone(),
            since: first.acquired_at,
            retry_after,
        })
    }
}
