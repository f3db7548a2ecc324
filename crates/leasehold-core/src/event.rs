//! What happened to a record, for those who watch.

use crate::record::{Fence, How, Record, Text};

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

/// What happened between two versions of a record, oldest first.
pub fn events(before: Option<&Record>, after: Option<&Record>) -> Vec<Event> {
    let Some(after) = after else {
        return before.map(|_| Event::Purged).into_iter().collect();
    };
    let old = before.map_or(&[][..], |record| &record.holders);
    let gone = old
        .iter()
        .filter(|was| !after.holders.iter().any(|is| is.fence == was.fence))
        .map(|was| {
            let how = after
                .last
                .as_ref()
                .filter(|last| last.fence == was.fence)
                .map(|last| last.how);
            Event::Ended {
                fence: was.fence,
                owner: was.owner.clone(),
                how,
            }
        });
    let mut events: Vec<_> = gone.collect();
    for is in &after.holders {
        match old.iter().find(|was| was.fence == is.fence) {
            None => events.push(Event::Granted {
                fence: is.fence,
                owner: is.owner.clone(),
            }),
            Some(was) if was.broken.is_none() && is.broken.is_some() => {
                events.push(Event::Ended {
                    fence: is.fence,
                    owner: is.owner.clone(),
                    how: Some(How::Broken),
                });
            }
            Some(was) if was.renewed_at != is.renewed_at => {
                events.push(Event::Renewed { fence: is.fence })
            }
            Some(_) => {}
        }
    }
    let (body, state) = before.map_or(("", None), |record| (&*record.body, record.state.as_ref()));
    if *after.body != *body || after.state.as_ref() != state {
        events.push(Event::Updated);
    }
    events
}
