//! The one place where leases are decided.

mod acquire;
mod hold;
mod item;
mod obstacle;
mod release;
mod reserve;
mod view;

pub use view::{View, view};

use crate::clock::Now;
use crate::limits;
use crate::operation::{Break, Operation, Outcome};
use crate::record::{Ended, Fence, How, Mode, Record};

/// What is to be done with the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: it stays as it is.
    None,
    /// This is written in its place.
    Write(Record),
    /// It is deleted.
    Delete,
}

/// What [`apply`] decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What is to be done with the record. The outcome is true only once that is done.
    pub change: Change,
    /// What the caller is told then.
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

/// Decides what an operation does to a record (`None`: there is none under this name) at this time.
///
/// Pure: the same arguments always give the same decision.
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

/// The record to write next: a new one if there is none, otherwise this one without the holders that are over.
fn pruned(record: Option<&Record>, now: &Now<'_>) -> Record {
    let Some(record) = record else {
        return Record::created(now.first_fence());
    };
    let mut next = record.clone();
    for over in record.holders.iter().filter(|holder| now.is_over(holder)) {
        let how = if over.broken.is_some() {
            How::Broken
        } else {
            How::Expired
        };
        end(&mut next, over.fence, how, now);
    }
    // A lapsed reservation is remembered for as long as its waiter may not reserve again.
    let remembered = |since| now.interval.earliest <= since + limits::RESERVATIONS * 2;
    next.next = next.next.filter(|next| remembered(next.since));
    next
}

/// Removes a holder, and remembers how it ended if it was exclusive.
fn end(record: &mut Record, fence: Fence, how: How, now: &Now<'_>) {
    let position = record.holders.iter().position(|h| h.fence == fence);
    let Some(index) = position else { return };
    let holder = record.holders.remove(index);
    if holder.mode == Mode::Exclusive {
        // Nothing ends in the future, nor later than it expired.
        let at = now.interval.latest.min(holder.expires_at);
        record.last = Some(Ended {
            fence,
            owner: holder.owner,
            how,
            at,
        });
    }
}
