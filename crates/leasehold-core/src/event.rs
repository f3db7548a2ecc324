//! What happened to a record, for those who watch.

use crate::record::{Fence, How, Record, State, Text};

/// One thing that happened under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody got it.
    Granted {
        /// By this fence.
        fence: Fence,
        /// Who.
        owner: Text,
    },
    /// Its holder goes on.
    Renewed {
        /// By this fence.
        fence: Fence,
    },
    /// A holder's fence acts no more.
    Ended {
        /// Its fence.
        fence: Fence,
        /// Who it was.
        owner: Text,
        /// How it ended; `None` where the record does not tell (shared holders, and a fence replaced by its nonce).
        how: Option<How>,
    },
    /// Body or state changed.
    Updated,
    /// The record was deleted.
    Purged,
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
        events.push(Event::Ended {
            fence: was.fence,
            owner: was.owner.clone(),
            how,
        });
    }
    for is in new.iter().filter(|is| is.broken.is_none()) {
        match old.iter().find(|was| was.fence == is.fence) {
            None => events.push(Event::Granted {
                fence: is.fence,
                owner: is.owner.clone(),
            }),
            Some(was) if was.renewed_at != is.renewed_at => {
                events.push(Event::Renewed { fence: is.fence });
            }
            Some(_) => {}
        }
    }
    match (before, after) {
        (Some(_), None) => events.push(Event::Purged),
        (before, Some(after)) if content(before) != content(Some(after)) => {
            events.push(Event::Updated);
        }
        _ => {}
    }
    events
}

fn content(record: Option<&Record>) -> (&str, Option<&State>) {
    record.map_or(("", None), |record| (&*record.body, record.state.as_ref()))
}
