//! Acquiring a lease.

use super::conflict::conflict;
use super::hold::{extend, prolong};
use super::{Decision, pruned};
use crate::clock::Now;
use crate::operation::{Acquire, Grant, GrantKind, Outcome};
use crate::record::{Fence, Holder, Record, Text};

pub(super) fn acquire(record: Option<&Record>, acquire: &Acquire, now: &Now<'_>) -> Decision {
    if let Some(wanted) = &acquire.in_state
        && record.and_then(label) != Some(wanted)
    {
        return Decision::unchanged(Outcome::StateMismatch);
    }
    let own = match acquire.in_state {
        None => record.and_then(|record| own_holder(record, acquire, now)),
        // A claim never returns an item that its caller already holds, so claims do not overlap whatever their nonces.
        Some(_) => None,
    };
    if let Some(own) = own
        && acquire.fence == Some(own.fence)
        && acquire.mode == own.mode
    {
        return keep(record, own.fence, acquire, now);
    }
    let own = own.map(|holder| holder.fence);
    let conflict = |record| conflict(record, acquire.nonce, acquire.mode, own, now);
    match record.and_then(conflict) {
        Some(refusal) => Decision::unchanged(refusal),
        None => grant(pruned(record, now), own, acquire, now),
    }
}

fn label(record: &Record) -> Option<&Text> {
    record.state.as_ref().map(|state| &state.label)
}

/// Returns the caller's own live holder. A broken holder belongs to no caller; it only blocks others.
fn own_holder<'r>(record: &'r Record, acquire: &Acquire, now: &Now<'_>) -> Option<&'r Holder> {
    record.holders.iter().find(|holder| {
        holder.nonce == acquire.nonce
            && holder.principal == acquire.principal
            && holder.broken.is_none()
            && !now.is_expired(holder)
    })
}

/// Grants a new fence. The caller's earlier fence, if any, becomes invalid.
fn grant(mut next: Record, own: Option<Fence>, acquire: &Acquire, now: &Now<'_>) -> Decision {
    let Some(fence) = next.fence.max(acquire.floor).next() else {
        return Decision::unchanged(Outcome::Exhausted);
    };
    next.fence = fence;
    // The caller's reservation is used up.
    next.next = next.next.filter(|waiter| waiter.nonce != acquire.nonce);
    let own = own.and_then(|own| next.holders.iter().position(|holder| holder.fence == own));
    let (granted, holder) = match own {
        Some(own) => {
            let earlier = next.holders.remove(own);
            (GrantKind::Again, holder_again(earlier, fence, acquire, now))
        }
        None => (GrantKind::Fresh, holder(fence, acquire, now)),
    };
    let grant = Grant {
        fence,
        granted,
        ttl: holder.ttl,
        acquired_at: holder.acquired_at,
        expires_at: holder.expires_at,
        body: next.body.clone(),
        state: next.state.clone(),
        last: next.last.clone(),
    };
    // Most records have one holder. Without this, the list would allocate room for four, in every cached record.
    next.holders.reserve_exact(1);
    next.holders.push(holder);
    Decision::write(next, Outcome::Granted(grant))
}

fn holder(fence: Fence, acquire: &Acquire, now: &Now<'_>) -> Holder {
    let acquired_at = now.interval.latest;
    Holder {
        fence,
        owner: acquire.owner.clone(),
        principal: acquire.principal.clone(),
        nonce: acquire.nonce,
        mode: acquire.mode,
        ttl: acquire.ttl,
        acquired_at,
        renewed_at: acquired_at,
        expires_at: acquired_at + acquire.ttl,
        broken: None,
    }
}

/// Returns the caller's own holder under a new fence. Its expiry moves as in a renewal: the process that held the lease
/// before may still rely on the old expiry, so no other caller may be granted before that.
fn holder_again(earlier: Holder, fence: Fence, acquire: &Acquire, now: &Now<'_>) -> Holder {
    let mut holder = Holder {
        fence,
        owner: acquire.owner.clone(),
        mode: acquire.mode,
        acquired_at: now.interval.latest,
        ..earlier
    };
    prolong(&mut holder, acquire.ttl, now);
    holder
}

/// Renews the lease of a caller that presents its fence. The fence stays the same.
fn keep(record: Option<&Record>, own: Fence, acquire: &Acquire, now: &Now<'_>) -> Decision {
    let mut next = pruned(record, now);
    let renewal = extend(&mut next, own, Some(acquire.ttl), now);
    let grant = Grant {
        fence: renewal.fence,
        granted: GrantKind::Kept,
        ttl: renewal.ttl,
        acquired_at: renewal.acquired_at,
        expires_at: renewal.expires_at,
        body: renewal.body,
        state: next.state.clone(),
        last: next.last.clone(),
    };
    Decision::write(next, Outcome::Granted(grant))
}
