//! What happened to a record, for those who watch.

use crate::Time;
use crate::record::{Ended, Fence, Holder, How, Record, State, Text};

/// One thing that happened under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody got it: this holder. It shows its nonce's hash: drop that before it leaves the process.
    Granted(Holder),
    /// Its holder goes on.
    Renewed(Holder),
    /// A holder's fence acts no more.
    Ended {
        /// Its fence.
        fence: Fence,
        /// Who it was.
        owner: Text,
        /// Since when it held; `None` where the record does not tell.
        since: Option<Time>,
        /// How it ended; `None` where the record does not tell (shared holders, and a fence replaced by its nonce).
        how: Option<How>,
    },
    /// Body or state changed.
    Updated {
        /// The state that it is in now.
        state: Option<Text>,
    },
    /// The record was deleted.
    Purged,
}

impl Event {
    /// The end of this holder.
    pub fn ended(holder: &Holder, how: Option<How>) -> Self {
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

impl From<&Ended> for Event {
    /// The end of the last exclusive holder, as its record keeps it.
    fn from(last: &Ended) -> Self {
        Self::Ended {
            fence: last.fence,
            owner: last.owner.clone(),
            since: None,
            how: Some(last.how),
        }
    }
}

/// What happened between two versions of a record: first who ended, then who got it or goes on, then the rest.
pub fn events(before: Option<&Record>, after: Option<&Record>) -> Vec<Event> {
    let old = before.map_or(&[][..], |record| &record.holders);
    let new = after.map_or(&[][..], |record| &record.holders);
    let last = after.and_then(|record| record.last.as_ref());
    let mut events = Vec::new();
    for was in old.iter().filter(|was| was.broken.is_none()) {
        let is = new.iter().find(|is| is.fence == was.fence);
        let how = match is {
            Some(is) if is.broken.is_none() => continue,
            Some(_) => Some(How::Broken),
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

/// What happened last, as far as a record tells of which no earlier version is known.
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
    // Of two at the same moment the later in this order: a handover ends with its grant.
    let told = [updated, ended, held].into_iter().flatten();
    told.max_by_key(|(at, _)| *at).map(|(_, event)| event)
}

fn content(record: Option<&Record>) -> (&str, Option<&State>) {
    record.map_or(("", None), |record| (&*record.body, record.state.as_ref()))
}
