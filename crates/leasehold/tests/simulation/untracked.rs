//! Responses that the checker accepts although the core would not give them, because it does not track reservations.

use leasehold::core::{Holder, Mode, Now, Operation, Outcome, Record};

/// Returns whether this is a refusal because of waiters or a reservation, which the core would not give.
pub(crate) fn is_refused_for_waiters(
    response: &Outcome,
    record: Option<&Record>,
    now: &Now<'_>,
) -> bool {
    let Outcome::Held(held) = response else {
        return false;
    };
    let holds = |record: &Record| {
        record
            .holders
            .iter()
            .any(|holder| holder.owner == held.owner && !now.is_expired(holder))
    };
    // A reservation has no owner.
    held.owner.is_empty() || record.is_some_and(holds)
}

/// Returns whether the write of a reservation may have pruned this expired shared holder. Afterwards no record shows that
/// its fence has expired.
pub(crate) fn is_pruned_by_reservation(
    response: &Outcome,
    operation: &Operation,
    record: Option<&Record>,
    now: &Now<'_>,
) -> bool {
    let fence = match operation {
        Operation::Renew(renew) => renew.fence,
        Operation::Update(update) => update.fence,
        _ => return false,
    };
    let is_expired = |holder: &Holder| {
        holder.fence == fence && holder.mode != Mode::Exclusive && now.is_expired(holder)
    };
    *response == Outcome::Fenced
        && record.is_some_and(|record| record.holders.iter().any(is_expired))
}
