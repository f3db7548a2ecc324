//! Letting go, and being made to.

use super::{Decision, end, pruned};
use crate::clock::Now;
use crate::operation::{Outcome, Release, Who};
use crate::record::{Fence, Holder, How, Record, Text};

pub(super) fn release(record: Option<&Record>, release: &Release, now: &Now<'_>) -> Decision {
    let Some(record) = record else {
        return Decision::unchanged(Outcome::NotHeld);
    };
    let own = |holder: &&Holder| {
        means(release.who, holder) && holder.principal == release.principal && !now.is_over(holder)
    };
    if !record.holders.iter().any(|holder| own(&holder)) {
        let repeated = released_before(record, release.who);
        return Decision::unchanged(if repeated {
            Outcome::Released
        } else {
            Outcome::NotHeld
        });
    }
    let mut next = pruned(Some(record), now);
    for holder in record.holders.iter().filter(own) {
        // A broken holder that lets go believes no more, so it need not stay in the way.
        let how = if holder.broken.is_some() {
            How::Broken
        } else {
            How::Released
        };
        end(&mut next, holder.fence, how, now);
    }
    Decision::write(next, Outcome::Released)
}

/// As a release, but it is an error to name a lease that is somebody else's.
pub(super) fn break_own(record: Option<&Record>, own: &Release, now: &Now<'_>) -> Decision {
    let decision = release(record, own, now);
    if decision.outcome != Outcome::NotHeld {
        return decision;
    }
    let holders = record.map_or(&[][..], |record| &record.holders);
    let mut live = holders
        .iter()
        .filter(|holder| !now.is_over(holder))
        .peekable();
    Decision::unchanged(if live.peek().is_none() {
        Outcome::NotHeld
    } else if live.any(|theirs| means(own.who, theirs)) {
        Outcome::Denied
    } else {
        Outcome::Fenced
    })
}

pub(super) fn break_force(
    record: Option<&Record>,
    fence: Option<Fence>,
    reason: &Text,
    at_once: bool,
    now: &Now<'_>,
) -> Decision {
    let Some(record) = record else {
        return Decision::unchanged(Outcome::NotHeld);
    };
    let mut next = pruned(Some(record), now);
    let meant = |holder: &Holder| fence.is_none_or(|fence| fence == holder.fence);
    let until = next.holders.iter().filter(|holder| meant(holder));
    let Some(until) = until.map(|holder| now.expiry(holder)).max() else {
        return Decision::unchanged(Outcome::NotHeld);
    };
    if at_once {
        for holder in record.holders.iter().filter(|holder| meant(holder)) {
            end(&mut next, holder.fence, How::Broken, now);
        }
        return Decision::write(next, Outcome::Broken { until: None });
    }
    for holder in next.holders.iter_mut().filter(|holder| meant(holder)) {
        holder.broken.get_or_insert_with(|| reason.clone());
    }
    Decision::write(next, Outcome::Broken { until: Some(until) })
}

fn means(who: Who, holder: &Holder) -> bool {
    match who {
        Who::Fence(fence) => holder.fence == fence,
        Who::Nonce(nonce) => holder.nonce == nonce,
    }
}

/// Whether the last exclusive holder was this one, and let go by itself: then a repeated release had succeeded.
fn released_before(record: &Record, who: Who) -> bool {
    record.last.as_ref().is_some_and(|last| {
        who == Who::Fence(last.fence) && matches!(last.how, How::Released | How::Completed(_))
    })
}
