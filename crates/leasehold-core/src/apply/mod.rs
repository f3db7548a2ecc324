//! Decides what an operation does to a record. No other code makes decisions about leases.

mod acquire;
mod conflict;
mod hold;
mod item;
mod release;
mod reserve;
mod view;

pub use view::{View, view};

use crate::clock::Now;
use crate::limits;
use crate::operation::{Break, Operation, Outcome};
use crate::record::{EndReason, Fence, LastHolder, Mode, Record};

/// The change to make to the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The record stays unchanged.
    None,
    /// The record is replaced by this one.
    Write(Record),
    /// The record is deleted.
    Delete,
}

/// The decision of [`apply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The change to make to the record. The outcome is valid only once the change is durable.
    pub change: Change,
    /// The outcome for the caller.
    pub outcome: Outcome,
}

impl Decision {
    fn unchanged(outcome: Outcome) -> Self {
        Self {
            change: Change::None,
            outcome,
        }
    }

    fn write(record: Record, outcome: Outcome) -> Self {
        Self {
            change: Change::Write(record),
            outcome,
        }
    }
}

/// Decides what an operation does to a record at this time. `None` means that the name has no record.
///
/// The function is pure: the same arguments always give the same decision.
pub fn apply(record: Option<&Record>, operation: &Operation, now: &Now<'_>) -> Decision {
    match operation {
        Operation::Acquire(acquire) => acquire::acquire(record, acquire, now),
        Operation::Reserve(reserve) => reserve::reserve(record, reserve, now),
        Operation::Renew(renew) => hold::renew(record, renew, now),
        Operation::Update(update) => hold::update(record, update, now),
        Operation::Release(release) => release::release(record, release, now),
        Operation::Break(Break::Own(release)) => release::break_own(record, release, now),
        Operation::Break(Break::Force {
            fence,
            reason,
            now: at_once,
        }) => release::break_force(record, *fence, reason, *at_once, now),
        Operation::Put(put) => item::put(record, put, now),
        Operation::Remove => item::remove(record, now),
        Operation::Purge { retention } => item::purge(record, *retention, now),
    }
}

/// Returns the record to change and write: a new one if there is none, otherwise a copy without expired holders.
fn pruned(record: Option<&Record>, now: &Now<'_>) -> Record {
    let Some(record) = record else {
        return Record::created(now.first_fence());
    };
    let mut next = record.clone();
    for expired in record
        .holders
        .iter()
        .filter(|holder| now.is_expired(holder))
    {
        let how = if expired.broken.is_some() {
            EndReason::Broken
        } else {
            EndReason::Expired
        };
        end(&mut next, expired.fence, how, now);
    }
    // A lapsed reservation stays in the record while its waiter is barred from reserving again.
    let remembered = |since| now.interval.earliest <= since + limits::MAX_RESERVING * 2;
    next.next = next.next.filter(|next| remembered(next.since));
    next
}

/// Removes a holder, and records how it ended if it was exclusive.
fn end(record: &mut Record, fence: Fence, how: EndReason, now: &Now<'_>) {
    let position = record.holders.iter().position(|h| h.fence == fence);
    let Some(index) = position else { return };
    let holder = record.holders.remove(index);
    if holder.mode == Mode::Exclusive {
        // A hold ends neither in the future nor after its expiry.
        let at = now.interval.latest.min(holder.expires_at);
        record.last = Some(LastHolder {
            fence,
            owner: holder.owner,
            how,
            at,
        });
    }
}
