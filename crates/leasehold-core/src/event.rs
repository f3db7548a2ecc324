//! Events: the differences between two versions of a record, for subscribers.

use crate::Time;
use crate::record::{EndReason, Fence, Holder, LastHolder, Record, State, Text};

/// A change of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The lease was granted to this holder. It contains the nonce's hash: remove that before it leaves the process.
    Granted(Holder),
    /// This holder renewed the lease.
    Renewed(Holder),
    /// A holder's fence became invalid.
    Ended {
        /// Its fence.
        fence: Fence,
        /// Its owner.
        owner: Text,
        /// When it acquired the lease; `None` if the record does not contain it.
        since: Option<Time>,
        /// How it ended; `None` if the record does not contain it (shared holders, and a re-grant by the same nonce).
        how: Option<EndReason>,
    },
    /// The body or the state changed.
    Updated {
        /// The present state.
        state: Option<Text>,
    },
    /// The record was deleted.
    Purged,
}

impl Event {
    /// Returns the event for the end of this holder.
    pub fn ended(holder: &Holder, how: Option<EndReason>) -> Self {
        Self::Ended {
            fence: holder.fence,
            owner: holder.owner.clone(),
            since: Some(holder.acquired_at),
            how,
        }
    }

    fn updated(record: &Record) -> Self {
        let state = record.state.as_ref().map(|state| state.label.clone());
        Self::Updated { state }
    }
}

impl From<&LastHolder> for Event {
    /// Returns the event for the end of the last exclusive holder, from what its record keeps.
    fn from(last: &LastHolder) -> Self {
        Self::Ended {
            fence: last.fence,
            owner: last.owner.clone(),
            since: None,
            how: Some(last.how),
        }
    }
}

/// Returns the events between two versions of a record: ended holders first, then granted and renewed ones, then
/// other changes.
pub fn events(before: Option<&Record>, after: Option<&Record>) -> Vec<Event> {
    let old = before.map_or(&[][..], |record| &record.holders);
    let new = after.map_or(&[][..], |record| &record.holders);
    let last = after.and_then(|record| record.last.as_ref());
    let mut events = Vec::new();
    for was in old.iter().filter(|was| was.broken.is_none()) {
        let is = new.iter().find(|is| is.fence == was.fence);
        let how = match is {
            Some(is) if is.broken.is_none() => continue,
            Some(_) => Some(EndReason::Broken),
            None => last
                .filter(|last| last.fence == was.fence)
                .map(|last| last.how),
        };
        events.push(Event::ended(was, how));
    }
    // Granted and ended between the two versions: only the end is left to report.
    let since = before.map(|record| record.fence);
    if let Some(last) = last.filter(|last| Some(last.fence) > since) {
        events.push(Event::from(last));
    }
    for is in new.iter().filter(|is| is.broken.is_none()) {
        match old.iter().find(|was| was.fence == is.fence) {
            None => events.push(Event::Granted(is.clone())),
            Some(was) if was.renewed_at != is.renewed_at => {
                events.push(Event::Renewed(is.clone()));
            }
            Some(_) => {}
        }
    }
    match (before, after) {
        (Some(_), None) => events.push(Event::Purged),
        (before, Some(after)) if content(before) != content(Some(after)) => {
            events.push(Event::updated(after));
        }
        _ => {}
    }
    events
}

/// Returns the latest event that can be derived from a record without its earlier version.
pub fn latest(record: Option<&Record>) -> Option<Event> {
    let Some(record) = record else {
        return Some(Event::Purged);
    };
    let holders = record.holders.iter().filter(|is| is.broken.is_none());
    let held = holders.max_by_key(|is| is.renewed_at).map(|is| {
        let fresh = is.renewed_at == is.acquired_at;
        let event = if fresh {
            Event::Granted
        } else {
            Event::Renewed
        };
        (is.renewed_at, event(is.clone()))
    });
    let ended = record.last.as_ref().map(|last| (last.at, last.into()));
    let updated = record.state.as_ref();
    let updated = updated.map(|state| (state.since, Event::updated(record)));
    // Of two at the same time, the later in this order counts: a hand-off ends with its grant.
    let candidates = [updated, ended, held].into_iter().flatten();
    candidates.max_by_key(|(at, _)| *at).map(|(_, event)| event)
}

fn content(record: Option<&Record>) -> (&str, Option<&State>) {
    record.map_or(("", None), |record| (&*record.body, record.state.as_ref()))
}
