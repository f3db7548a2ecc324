//! What an exploration must have met, so that it cannot pass by seeing nothing.

use leasehold_core::{EndReason, GrantKind, Now, Outcome, Record};

/// Something that was met on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Witness {
    Granted,
    GrantedAgain,
    Kept,
    /// Granted although a holder had not released.
    TookOver,
    /// Granted although a holder's expiry was yet to come: judged by observation.
    Observed,
    /// Granted under a name that had been purged.
    CameBack,
    Held,
    Renewed,
    Fenced,
    Expired,
    Completed,
    Reserved,
    /// Granted to the waiter that had reserved.
    Turn,
    Purged,
    Broken,
    Conflict,
    LandedLate,
    LostButLanded,
    Widened,
    Stepped,
}

pub(crate) fn bit(witness: Witness) -> u32 {
    1 << witness as u32
}

/// What an outcome is a witness of.
pub(crate) fn outcome(
    outcome: &Outcome,
    record: Option<&Record>,
    now: &Now<'_>,
    mut saw: impl FnMut(Witness),
) {
    match outcome {
        Outcome::Granted(grant) => {
            saw(match grant.granted {
                GrantKind::Fresh => Witness::Granted,
                GrantKind::Again => Witness::GrantedAgain,
                GrantKind::Kept => Witness::Kept,
            });
            if grant.granted == GrantKind::Fresh {
                if grant
                    .last
                    .as_ref()
                    .is_some_and(|last| last.how == EndReason::Expired)
                {
                    saw(Witness::TookOver);
                }
                let unexpired = |record: &Record| {
                    let mut holders = record.holders.iter();
                    holders.any(|holder| holder.expires_at >= now.interval.earliest)
                };
                if grant.last.is_some() && record.is_some_and(unexpired) {
                    saw(Witness::Observed);
                }
                if record.is_some_and(|record| record.next.is_some()) {
                    saw(Witness::Turn);
                }
            }
        }
        Outcome::Held(_) => saw(Witness::Held),
        Outcome::Renewed(_) => saw(Witness::Renewed),
        Outcome::Fenced => saw(Witness::Fenced),
        Outcome::Expired => saw(Witness::Expired),
        Outcome::Completed => saw(Witness::Completed),
        Outcome::Reserved { .. } => saw(Witness::Reserved),
        Outcome::Purged if record.is_some() => saw(Witness::Purged),
        Outcome::Broken { .. } => saw(Witness::Broken),
        _ => {}
    }
}
