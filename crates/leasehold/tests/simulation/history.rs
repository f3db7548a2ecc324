//! The requests of clients and their responses, in true time.

use std::sync::Mutex;

use leasehold::core::{Hash, Name, Operation, Outcome, View};

use super::world::Moment;

/// One call of a client.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    #[allow(dead_code, reason = "shown when a check fails")]
    pub(crate) client: usize,
    pub(crate) name: Name,
    pub(crate) request: Request,
    pub(crate) invoked: Moment,
    pub(crate) response: Response,
    /// When the response arrived; `None` if none did.
    pub(crate) returned: Option<Moment>,
}

#[derive(Clone, Debug)]
pub(crate) enum Request {
    Perform(Operation),
    Show,
}

/// What the client received.
#[derive(Clone, Debug)]
pub(crate) enum Response {
    Outcome(Outcome),
    Shown(Option<Box<View>>),
    /// The request had no effect.
    Unavailable,
    /// The request may take effect, now or at any later time.
    Indeterminate,
}

/// An interval, in true microseconds, in which a client believed that it held a lease.
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

/// Checks that no two clients believed at the same true time that they held a lease that excludes the other.
pub(crate) fn check_beliefs(beliefs: &[Belief]) -> Result<(), String> {
    for (index, one) in beliefs.iter().enumerate() {
        for other in &beliefs[index + 1..] {
            let overlap = one.from < other.until && other.from < one.until;
            let excluded = one.exclusive || other.exclusive;
            if one.name == other.name && one.nonce != other.nonce && overlap && excluded {
                return Err(format!(
                    "two clients believed that they held the lease:\n  {one:?}\n  {other:?}"
                ));
            }
        }
    }
    Ok(())
}
