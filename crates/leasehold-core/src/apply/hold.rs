//! Renewing and updating a held lease.

use std::time::Duration;

use super::{Decision, end, pruned};
use crate::clock::{MAX_CLOCK_UNCERTAINTY, Now};
use crate::operation::{Outcome, Renew, Renewal, Update};
use crate::record::{EndReason, Fence, Hash, Holder, Record, Text};

pub(super) fn renew(record: Option<&Record>, renew: &Renew, now: &Now<'_>) -> Decision {
    if let Some(refusal) = refusal(record, renew.fence, renew.principal.as_ref(), now) {
        return Decision::unchanged(refusal);
    }
    let mut next = pruned(record, now);
    let renewal = extend(&mut next, renew.fence, renew.ttl, now);
    Decision::write(next, Outcome::Renewed(renewal))
}

pub(super) fn update(record: Option<&Record>, update: &Update, now: &Now<'_>) -> Decision {
    if let Some(refusal) = refusal(record, update.fence, update.principal.as_ref(), now) {
        let repeated = update.then_release && completed_before(record, update);
        return Decision::unchanged(if repeated {
            Outcome::Completed
        } else {
            refusal
        });
    }
    let mut next = pruned(record, now);
    if let Some(body) = &update.body {
        next.body = body.clone();
    }
    if let Some(label) = &update.state {
        let before = next.state.take();
        next.state = label.clone().map(|label| now.enter(label, before.as_ref()));
    }
    if update.then_release {
        let how = EndReason::Completed(result_hash(update));
        end(&mut next, update.fence, how, now);
        return Decision::write(next, Outcome::Completed);
    }
    let renewal = extend(&mut next, update.fence, None, now);
    Decision::write(next, Outcome::Renewed(renewal))
}

/// Returns whether the last exclusive holder ended with exactly this update: then the call is a repetition of one that
/// succeeded.
fn completed_before(record: Option<&Record>, update: &Update) -> bool {
    record
        .and_then(|record| record.last.as_ref())
        .is_some_and(|last| {
            last.fence == update.fence && last.how == EndReason::Completed(result_hash(update))
        })
}

/// Returns a hash of what an update writes, which distinguishes a repetition from another update.
fn result_hash(update: &Update) -> Hash {
    let body = update.body.as_deref().map(str::as_bytes);
    let state = update
        .state
        .as_ref()
        .map(|state| state.as_deref().unwrap_or_default().as_bytes());
    let tags = [u8::from(body.is_some()), u8::from(state.is_some())];
    Hash::of(&[&tags, body.unwrap_or_default(), state.unwrap_or_default()])
}

/// Returns why this fence may not change the record. Only the fence of a live, unbroken holder may, and only for the
/// holder's principal.
fn refusal(
    record: Option<&Record>,
    fence: Fence,
    principal: Option<&Text>,
    now: &Now<'_>,
) -> Option<Outcome> {
    let holders = record.map_or(&[][..], |record| &record.holders);
    let Some(holder) = holders.iter().find(|holder| holder.fence == fence) else {
        let last = record.and_then(|record| record.last.as_ref());
        let expired =
            last.is_some_and(|last| last.fence == fence && last.how == EndReason::Expired);
        return Some(if expired {
            Outcome::Expired
        } else {
            Outcome::Fenced
        });
    };
    if holder.principal.as_ref() != principal {
        Some(Outcome::Denied)
    } else if holder.broken.is_some() {
        Some(Outcome::Fenced)
    } else if now.is_expired(holder) {
        Some(Outcome::Expired)
    } else {
        None
    }
}

/// Renews an existing holder, with a new ttl or with its present one.
pub(super) fn extend(
    record: &mut Record,
    fence: Fence,
    ttl: Option<Duration>,
    now: &Now<'_>,
) -> Renewal {
    let holder = record
        .holders
        .iter_mut()
        .find(|holder| holder.fence == fence)
        .expect("only a live holder renews");
    prolong(holder, ttl.unwrap_or(holder.ttl), now);
    Renewal {
        fence,
        ttl: holder.ttl,
        acquired_at: holder.acquired_at,
        expires_at: holder.expires_at,
        body: record.body.clone(),
    }
}

/// Moves a holder's expiry to a ttl from now, but never back: the holder may rely on its present expiry and never
/// receive the answer to this call. A shorter ttl therefore takes effect only once the longer one has run out.
pub(super) fn prolong(holder: &mut Holder, ttl: Duration, now: &Now<'_>) {
    let latest = now.interval.latest;
    holder.expires_at = now.expiry(holder);
    if now.is_uncertain(holder) {
        // The clock has stepped since the expiry was written, so it is unknown how much of the ttl has run, and keeping
        // the expiry might lock the name for years. A small difference may come from a writer with a wider interval:
        // then the expiry stays.
        holder.ttl = holder.ttl.max(ttl);
        let expires_at = latest + holder.ttl;
        if expires_at > holder.expires_at
            || holder.expires_at.since(expires_at) > MAX_CLOCK_UNCERTAINTY
        {
            holder.expires_at = expires_at;
        }
    } else if latest + ttl > holder.expires_at {
        holder.ttl = ttl;
        holder.expires_at = latest + ttl;
    }
    // A different value each time, so that observers of this entry see that its holder is alive.
    holder.renewed_at = latest.max(holder.renewed_at + Duration::from_micros(1));
}
