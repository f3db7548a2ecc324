//! What clients asked and were told, in true time.

use std::sync::Mutex;

use leasehold::core::{Hash, Name, Operation, Outcome, View};

use super::world::Moment;

/// One call of a client.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    #[allow(dead_code, reason = "shown when a check fails")]
    pub(crate) client: usize,
    pub(crate) name: Name,
    pub(crate) asked: Asked,
    pub(crate) invoked: Moment,
    pub(crate) told: Told,
    /// When the answer came; `None` if none did.
    pub(crate) returned: Option<Moment>,
}

#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Perform(Operation),
    Show,
}

/// What the client learnt.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Outcome(Outcome),
    Shown(Option<Box<View>>),
    /// Nothing happened.
    Unavailable,
    /// It may have happened, now or at any later time.
    Unknown,
}

/// From when until when a client believed that it held a lease, in true microseconds.
#[derive(Clone, Debug)]
pub(crate) struct Belief {
    #[allow(dead_code, reason = "shown when a check fails")]
    pub(crate) client: usize,
    pub(crate) name: Name,
    pub(crate) nonce: Hash,
    pub(crate) exclusive: bool,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

#[derive(Default)]
pub(crate) struct History {
    pub(crate) entries: Mutex<Vec<Entry>>,
    pub(crate) beliefs: Mutex<Vec<Belief>>,
}

/// Two clients that both believed, at the same true time, to hold what only one of them may.
pub(crate) fn check_beliefs(beliefs: &[Belief]) -> Result<(), String> {
    for (index, one) in beliefs.iter().enumerate() {
        for other in &beliefs[index + 1..] {
            let together = one.from < other.until && other.from < one.until;
            let excluded = one.exclusive || other.exclusive;
            if one.name == other.name && one.nonce != other.nonce && together && excluded {
                return Err(format!("two believe at once:\n  {one:?}\n  {other:?}"));
            }
        }
    }
    Ok(())
}
