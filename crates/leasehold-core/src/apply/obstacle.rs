//! Who is in the way.

use std::time::Duration;

use crate::clock::Now;
use crate::limits;
use crate::operation::{Held, Outcome};
use crate::record::{Fence, Hash, Holder, Mode, Record, Reservation, Text};

/// What keeps a caller from this mode: live holders other than its `own`, or somebody else's reservation.
///
/// Whoever holds already passes a reservation: it takes nobody's turn.
pub(super) fn obstacle(
    record: &Record,
    nonce: Hash,
    mode: Mode,
    own: Option<Fence>,
    now: &Now<'_>,
) -> Option<Outcome> {
    let mut others = Others::default();
    for holder in &record.holders {
        if own == Some(holder.fence) {
            continue;
        }
        let Some(left) = now.left(holder) else {
            continue;
        };
        if let (Mode::Shared { limit: theirs }, Mode::Shared { limit: ours }) = (holder.mode, mode)
            && theirs != ours
        {
            return Some(Outcome::OtherLimit { limit: theirs });
        }
        others.add(holder, left);
    }
    if let Some(held) = others.obstruct(mode) {
        return Some(Outcome::Held(held));
    }
    if own.is_some() {
        return None;
    }
    let (reservation, left) = live_reservation(record, now)?;
    (reservation.nonce != nonce).then(|| {
        Outcome::Held(Held {
            owner: Text::default(),
            since: reservation.since,
            retry_after: left,
        })
    })
}

/// The live holders, as an obstacle to those who need none.
pub(super) fn leased(record: &Record, now: &Now<'_>) -> Option<Held> {
    let mut others = Others::default();
    for holder in &record.holders {
        if let Some(left) = now.left(holder) {
            others.add(holder, left);
        }
    }
    others.obstruct(Mode::Exclusive)
}

/// The reservation that stands, and for how long. One that reaches further ahead than any may was written by a
/// clock that has stepped since: it means nothing.
pub(super) fn live_reservation<'r>(
    record: &'r Record,
    now: &Now<'_>,
) -> Option<(&'r Reservation, Duration)> {
    let reservation = record.next.as_ref()?;
    let furthest = now.interval.latest + limits::RESERVATION + now.margin;
    let left = now.until_past(reservation.until)?;
    (reservation.until <= furthest).then_some((reservation, left))
}

/// The live holders other than the caller.
#[derive(Default)]
struct Others<'r> {
    count: usize,
    exclusive: bool,
    first: Option<&'r Holder>,
    soonest: Duration,
    last: Duration,
}

impl<'r> Others<'r> {
    fn add(&mut self, holder: &'r Holder, left: Duration) {
        self.soonest = if self.count == 0 {
            left
        } else {
            self.soonest.min(left)
        };
        self.last = self.last.max(left);
        self.exclusive |= holder.mode == Mode::Exclusive;
        self.first = self.first.or(Some(holder));
        self.count += 1;
    }

    fn obstruct(&self, mode: Mode) -> Option<Held> {
        let first = self.first?;
        let sharing = matches!(mode, Mode::Shared { .. }) && !self.exclusive;
        if sharing && self.count < mode.capacity() {
            return None;
        }
        // A place among sharers comes free with the first of them, everything else only with the last.
        let retry_after = if sharing { self.soonest } else { self.last };
        Some(Held {
            owner: first.owner.clone(),
            since: first.acquired_at,
            retry_after,
        })
    }
}
