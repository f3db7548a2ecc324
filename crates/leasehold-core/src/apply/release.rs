//! Releasing and breaking a lease.

use super::{Decision, end, pruned};
use crate::clock::Now;
use crate::operation::{HolderRef, Outcome, Release};
use crate::record::{EndReason, Fence, Holder, Record, Text};

pub(super) fn release(record: Option<&Record>, release: &Release, now: &Now<'_>) -> Decision {
    let Some(record) = record else {
        return Decision::unchanged(Outcome::NotHeld);
    };
    let own = |holder: &&Holder| {
        matches_ref(release.holder, holder)
            && holder.principal == release.principal
            && !now.is_expired(holder)
    };
    if !record.holders.iter().any(|holder| own(&holder)) {
        let repeated = released_before(record, release.holder);
        return Decision::unchanged(if repeated {
            Outcome::Released
        } else {
            Outcome::NotHeld
        });
    }
    let mut next = pruned(Some(record), now);
    for holder in record.holders.iter().filter(own) {
        // A broken holder that releases no longer relies on its lease, so it need not block others until its expiry.
        let how = if holder.broken.is_some() {
            EndReason::Broken
        } else {
            EndReason::Released
        };
        end(&mut next, holder.fence, how, now);
    }
    Decision::write(next, Outcome::Released)
}

/// Releases the caller's own lease. Unlike a release, it is an error if the lease is another caller's.
pub(super) fn break_own(record: Option<&Record>, own: &Release, now: &Now<'_>) -> Decision {
    let decision = release(record, own, now);
    if decision.outcome != Outcome::NotHeld {
        return decision;
    }
    let holders = record.map_or(&[][..], |record| &record.holders);
    let mut live = holders
        .iter()
        .filter(|holder| !now.is_expired(holder))
        .peekable();
    Decision::unchanged(if live.peek().is_none() {
        Outcome::NotHeld
    } else if live.any(|other| matches_ref(own.holder, other)) {
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
    let is_target = |holder: &Holder| fence.is_none_or(|fence| fence == holder.fence);
    let until = next.holders.iter().filter(|holder| is_target(holder));
    let Some(until) = until.map(|holder| now.expiry(holder)).max() else {
        return Decision::unchanged(Outcome::NotHeld);
    };
    if at_once {
        for holder in record.holders.iter().filter(|holder| is_target(holder)) {
            end(&mut next, holder.fence, EndReason::Broken, now);
        }
        return Decision::write(next, Outcome::Broken { until: None });
    }
    for holder in next.holders.iter_mut().filter(|holder| is_target(holder)) {
        holder.broken.get_or_insert_with(|| reason.clone());
    }
    Decision::write(next, Outcome::Broken { until: Some(until) })
}

fn matches_ref(target: HolderRef, holder: &Holder) -> bool {
    match target {
        HolderRef::Fence(fence) => holder.fence == fence,
        HolderRef::Nonce(nonce) => holder.nonce == nonce,
    }
}

/// Returns whether this was the last exclusive holder and it released the lease itself: then the call repeats a release
/// that succeeded.
fn released_before(record: &Record, holder: HolderRef) -> bool {
    record.last.as_ref().is_some_and(|last| {
        holder == HolderRef::Fence(last.fence)
            && matches!(last.how, EndReason::Released | EndReason::Completed(_))
    })
}
