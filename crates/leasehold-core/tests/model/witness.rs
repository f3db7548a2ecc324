//! Situations that an exploration must reach, so that it cannot pass without testing anything.

use leasehold_core::{EndReason, GrantKind, Now, Outcome, Record};

/// A situation that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Witness {
    Granted,
    GrantedAgain,
    Kept,
    /// Granted after a holder expired without a release.
    Takeover,
    /// Granted by observation, before a holder's written expiry.
    GrantedByObservation,
    /// Granted for a name that had been purged.
    Recreated,
    Held,
    Renewed,
    Fenced,
    Expired,
    Completed,
    Reserved,
    /// Granted to the waiter that had reserved.
    GrantedToWaiter,
    Purged,
    Broken,
    Conflict,
    LandedLate,
    LandedAfterLostAnswer,
    Widened,
    Stepped,
}

pub(crate) fn bit(witness: Witness) -> u32 {
    1 << witness as u32
}

/// Records the situations that an outcome shows.
pub(crate) fn outcome(
    outcome: &Outcome,
    record: Option<&Record>,
    now: &Now<'_>,
    mut record_witness: impl FnMut(Witness),
) {
    match outcome {
        Outcome::Granted(grant) => {
            record_witness(match grant.granted {
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
                    record_witness(Witness::Takeover);
                }
                let unexpired = |record: &Record| {
                    let mut holders = record.holders.iter();
                    holders.any(|holder| holder.expires_at >= now.interval.earliest)
                };
                if grant.last.is_some() && record.is_some_and(unexpired) {
                    record_witness(Witness::GrantedByObservation);
                }
                if record.is_some_and(|record| record.next.is_some()) {
                    record_witness(Witness::GrantedToWaiter);
                }
            }
        }
        Outcome::Held(_) => record_witness(Witness::Held),
        Outcome::Renewed(_) => record_witness(Witness::Renewed),
        Outcome::Fenced => record_witness(Witness::Fenced),
        Outcome::Expired => record_witness(Witness::Expired),
        Outcome::Completed => record_witness(Witness::Completed),
        Outcome::Reserved { .. } => record_witness(Witness::Reserved),
        Outcome::Purged if record.is_some() => record_witness(Witness::Purged),
        Outcome::Broken { .. } => record_witness(Witness::Broken),
        _ => {}
    }
}
