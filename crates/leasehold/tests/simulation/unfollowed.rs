//! Answers that the checker accepts although the core would not give them: it does not follow reservations.

use leasehold::core::{Holder, Mode, Now, Operation, Outcome, Record};

/// A refusal that the core would not have given, because others are in line or have reserved.
pub(crate) fn refused_for_others(told: &Outcome, record: Option<&Record>, now: &Now<'_>) -> bool {
    let Outcome::Held(held) = told else {
        return false;
    };
    let holds = |record: &Record| {
        record
            .holders
            .iter()
            .any(|holder| holder.owner == held.owner && !now.is_expired(holder))
    };
    // Reservations are the engines' own: the checker does not follow them.
    held.owner.is_empty() || record.is_some_and(holds)
}

/// A shared holder that is over may have been pruned by the write of a reservation, which the checker does not follow.
/// No record then shows that its fence has expired.
pub(crate) fn pruned_by_a_reservation(
    told: &Outcome,
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
    *told == Outcome::Fenced && record.is_some_and(|record| record.holders.iter().any(is_expired))
}
