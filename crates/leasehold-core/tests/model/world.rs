//! The state of the model: three clients and one name.

use std::hash::Hash;
use std::rc::Rc;
use std::time::Duration;

use leasehold_core::{
    BootTime, Clock, ClockChange, Decision, Fence, Mode, Now, Observations, Operation, Outcome,
    Record, Stamp, Time,
};

pub(crate) const CLIENTS: usize = 3;

/// A version of the record: the id of the write that created it.
pub(crate) type Version = u32;

/// The bounds of one exploration. Times are in ticks.
pub(crate) struct Config {
    /// The real time of a tick.
    pub(crate) tick: Duration,
    /// The last tick.
    pub(crate) horizon: u64,
    pub(crate) ttl: u64,
    /// The ttl that a renewal requests.
    pub(crate) renewed_ttl: u64,
    pub(crate) margin: u64,
    /// The resolution of the store's time.
    pub(crate) resolution: u64,
    pub(crate) modes: [Mode; CLIENTS],
    /// Clients with the same number share a nonce.
    pub(crate) nonces: [u8; CLIENTS],
    /// How far the clock of each client's node is ahead.
    pub(crate) ahead: [i64; CLIENTS],
    /// How fast each client's boot clock runs, in parts per million above the real rate.
    pub(crate) fast_ppm: [i64; CLIENTS],
    /// The actions of clients.
    pub(crate) actions: &'static [Action],
    /// The total number of operations.
    pub(crate) operations: u8,
    /// How often an answer, a swap or a client may pause, for any number of ticks each time.
    pub(crate) pauses: u8,
    pub(crate) crashes: u8,
    /// The number of lost answers.
    pub(crate) lost_answers: u8,
    pub(crate) duplicates: u8,
    /// How long a request for the record may take.
    pub(crate) request_ticks: u64,
    /// Whether a paused swap has not been sent yet, instead of being in flight.
    pub(crate) sent_late: bool,
    /// How long a swap may be in flight.
    pub(crate) swap_lifetime: u64,
    pub(crate) retention: u64,
    /// The possible steps of the store's clock.
    pub(crate) steps: &'static [i64],
    /// The number of steps.
    pub(crate) step_count: u8,
    /// Whether clients know the store's clock from the start, and observe it before every step.
    pub(crate) connected: bool,
    /// Whether the clock steps because the machine that serves the clients, and keeps the store's time, reboots.
    pub(crate) reboots: bool,
    pub(crate) rules: Rules,
}

/// The rules to check. A mutant replaces one of them.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) apply: fn(Option<&Record>, &Operation, &Now<'_>) -> Decision,
    pub(crate) deadline: fn(&DeadlineInputs) -> BootTime,
    pub(crate) observe: fn(&mut Clock, BootTime, BootTime, Stamp) -> ClockChange,
    /// Whether versions restart from 1 after a delete.
    pub(crate) versions_return: bool,
}

/// The times that a deadline could be computed from.
pub(crate) struct DeadlineInputs {
    pub(crate) sent: BootTime,
    pub(crate) received: BootTime,
    pub(crate) ttl: Duration,
    pub(crate) expires_at: Time,
    pub(crate) stamp: Stamp,
    pub(crate) margin: Duration,
}

/// An operation that a client can perform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Acquire,
    /// Acquire with the fence that it holds.
    Keep,
    Renew,
    Update,
    /// Update and release in one write.
    Complete,
    Release,
    Reserve,
    Purge,
    /// Break by force.
    Break,
}

/// A record and its version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Snapshot {
    pub(crate) version: Version,
    pub(crate) record: Rc<Record>,
}

/// The lease that a client relies on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Belief {
    pub(crate) fence: Fence,
    /// When it stops relying on the lease, by its own boot clock; zero once that has passed.
    pub(crate) until: BootTime,
}

/// A swap whose answer was lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AmbiguousSwap {
    pub(crate) id: Version,
    pub(crate) sent: BootTime,
    pub(crate) outcome: SwapOutcome,
}

/// The outcome for a client once its write is confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SwapOutcome {
    Holds {
        fence: Fence,
        ttl: Duration,
        expires_at: Time,
    },
    Other,
}

impl From<&Outcome> for SwapOutcome {
    fn from(outcome: &Outcome) -> Self {
        let (fence, ttl, expires_at) = match outcome {
            Outcome::Granted(grant) => (grant.fence, grant.ttl, grant.expires_at),
            Outcome::Renewed(renewal) => (renewal.fence, renewal.ttl, renewal.expires_at),
            _ => return Self::Other,
        };
        Self::Holds {
            fence,
            ttl,
            expires_at,
        }
    }
}

/// The progress of a client's operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    /// The record is on its way to the client, as the answer to a load or to a swap that conflicted.
    AnswerInFlight {
        action: Action,
        sent: BootTime,
        ambiguous: Option<AmbiguousSwap>,
        found: Option<Snapshot>,
        stamp: Stamp,
    },
    /// The client has the record and will decide.
    Ready {
        action: Action,
        found: Option<Snapshot>,
    },
    /// The swap is in flight, or landed at the time in `landed`.
    Sent {
        action: Action,
        id: Version,
        sent: BootTime,
        outcome: SwapOutcome,
        landed: Option<Stamp>,
    },
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Client {
    pub(crate) nonce: u8,
    /// Whether the client has ever started an operation.
    pub(crate) has_started: bool,
    pub(crate) clock: Option<Clock>,
    pub(crate) observations: Observations,
    pub(crate) belief: Option<Belief>,
    pub(crate) phase: Phase,
}

/// A swap in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InFlightSwap {
    pub(crate) client: usize,
    pub(crate) sent: u64,
    pub(crate) id: Version,
    pub(crate) expect: Option<Version>,
    pub(crate) put: Option<Rc<Record>>,
    /// The fence that writes the body, if the swap changes it.
    pub(crate) writer: Option<Fence>,
}

/// The whole state.
#[derive(Clone, Debug, Hash)]
pub(crate) struct World {
    pub(crate) tick: u64,
    /// The first client that may still proceed in this tick. Earlier clients wait for the next tick.
    pub(crate) turn: usize,
    /// How far the store's clock has stepped in total.
    pub(crate) stepped: i64,
    pub(crate) steps_left: u8,
    /// The store's time at its resumption after a reboot.
    pub(crate) restarted: Option<Time>,
    pub(crate) stored: Option<Snapshot>,
    /// The highest fence ever granted.
    pub(crate) highest: Fence,
    pub(crate) clients: [Client; CLIENTS],
    pub(crate) swaps: Vec<InFlightSwap>,
    pub(crate) operations: u8,
    pub(crate) pauses: u8,
    pub(crate) crashes: u8,
    pub(crate) lost_answers: u8,
    pub(crate) duplicates: u8,
}

impl World {
    /// Returns an id that is unused in this state.
    pub(crate) fn fresh_id(&mut self) -> Version {
        let mut highest = 0;
        self.each_version(|version| highest = highest.max(*version));
        highest + 1
    }

    /// Renumbers versions in order of appearance, because their numbers have no meaning.
    pub(crate) fn renumber(&mut self) {
        let mut known = Vec::with_capacity(16);
        self.each_version(|version| {
            let place = known.iter().position(|known| known == version);
            let place = place.unwrap_or_else(|| {
                known.push(*version);
                known.len() - 1
            });
            *version = place as Version + 1;
        });
    }

    fn each_version(&mut self, mut visit: impl FnMut(&mut Version)) {
        let mut visit_found = |found: &mut Option<Snapshot>| {
            if let Some(found) = found {
                visit(&mut found.version);
            }
        };
        visit_found(&mut self.stored);
        for client in &mut self.clients {
            match &mut client.phase {
                Phase::AnswerInFlight { found, .. } | Phase::Ready { found, .. } => {
                    visit_found(found)
                }
                Phase::Idle | Phase::Sent { .. } => {}
            }
        }
        for client in &mut self.clients {
            match &mut client.phase {
                Phase::AnswerInFlight {
                    ambiguous: Some(ambiguous),
                    ..
                } => visit(&mut ambiguous.id),
                Phase::Sent { id, .. } => visit(id),
                _ => {}
            }
        }
        for swap in &mut self.swaps {
            visit(&mut swap.id);
            if let Some(expect) = &mut swap.expect {
                visit(expect);
            }
        }
    }
}
