//! Three clients and one name: what a state is made of.

use std::hash::Hash;
use std::rc::Rc;
use std::time::Duration;

use leasehold_core::{
    BootTime, Clock, ClockChange, Decision, Fence, Mode, Now, Observations, Operation, Outcome,
    Record, Stamp, Time,
};

pub(crate) const CLIENTS: usize = 3;

/// Which version of the record: the id of the write that made it.
pub(crate) type Version = u32;

/// The bounds of one exploration. Times are in ticks.
pub(crate) struct Config {
    /// Real time that a tick stands for.
    pub(crate) tick: Duration,
    /// Time stops here.
    pub(crate) horizon: u64,
    pub(crate) ttl: u64,
    /// The ttl that a renewal asks for.
    pub(crate) renewed_ttl: u64,
    pub(crate) margin: u64,
    /// The resolution of the store's time.
    pub(crate) resolution: u64,
    pub(crate) modes: [Mode; CLIENTS],
    /// Clients with the same number share a nonce.
    pub(crate) nonces: [u8; CLIENTS],
    /// By how much the node that answers each client is ahead.
    pub(crate) ahead: [i64; CLIENTS],
    /// By how many parts per million each client's boot clock is fast.
    pub(crate) fast_ppm: [i64; CLIENTS],
    /// What clients do.
    pub(crate) menu: &'static [Act],
    /// How many operations they begin in all.
    pub(crate) begins: u8,
    /// How often an answer, a swap or a client may be held up, for any number of ticks each time.
    pub(crate) pauses: u8,
    pub(crate) crashes: u8,
    /// Answers given up on.
    pub(crate) lost: u8,
    pub(crate) duplicates: u8,
    /// How long a request for the record may have been under way.
    pub(crate) slow: u64,
    /// Whether a swap that is held up has not even been sent, rather than being on its way.
    pub(crate) sent_late: bool,
    /// How long a swap may be held up.
    pub(crate) life: u64,
    pub(crate) retention: u64,
    /// By how much the store's clock may step each time.
    pub(crate) steps: &'static [i64],
    /// How often it steps.
    pub(crate) step_count: u8,
    /// Whether clients know the store's clock from the start, and hear from it before every step.
    pub(crate) connected: bool,
    /// Whether the clock steps because the machine that serves the clients, and keeps the store's time, reboots.
    pub(crate) reboots: bool,
    pub(crate) rules: Rules,
}

/// What is being checked; a mutant replaces one of these.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) apply: fn(Option<&Record>, &Operation, &Now<'_>) -> Decision,
    pub(crate) deadline: fn(&Answered) -> BootTime,
    pub(crate) observe: fn(&mut Clock, BootTime, BootTime, Stamp) -> ClockChange,
    /// Versions that count from 1 again after a delete.
    pub(crate) versions_return: bool,
}

/// All that a deadline could be counted from.
pub(crate) struct Answered {
    pub(crate) sent: BootTime,
    pub(crate) received: BootTime,
    pub(crate) ttl: Duration,
    pub(crate) expires_at: Time,
    pub(crate) stamp: Stamp,
    pub(crate) margin: Duration,
}

/// Something that a client sets out to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Act {
    Acquire,
    /// Acquire, showing the fence that it holds.
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

/// A record as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Snapshot {
    pub(crate) version: Version,
    pub(crate) record: Rc<Record>,
}

/// The lease that a client relies on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Belief {
    pub(crate) fence: Fence,
    /// Until when it believes, by its own boot clock; zero once that has passed.
    pub(crate) until: BootTime,
}

/// A swap whose answer was given up on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Unsure {
    pub(crate) id: Version,
    pub(crate) sent: BootTime,
    pub(crate) outcome: Told,
}

/// The outcome that a client gets once its write is confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Told {
    Holds {
        fence: Fence,
        ttl: Duration,
        expires_at: Time,
    },
    Else,
}

impl From<&Outcome> for Told {
    fn from(outcome: &Outcome) -> Self {
        let (fence, ttl, expires_at) = match outcome {
            Outcome::Granted(grant) => (grant.fence, grant.ttl, grant.expires_at),
            Outcome::Renewed(renewal) => (renewal.fence, renewal.ttl, renewal.expires_at),
            _ => return Self::Else,
        };
        Self::Holds {
            fence,
            ttl,
            expires_at,
        }
    }
}

/// How far a client has come with an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    /// The record that it asked for is under way to it. A swap that lost is answered with the record, too.
    Answered {
        act: Act,
        sent: BootTime,
        unsure: Option<Unsure>,
        found: Option<Snapshot>,
        stamp: Stamp,
    },
    /// It has the record, and is about to decide.
    Ready {
        act: Act,
        found: Option<Snapshot>,
    },
    /// Its swap is under way, or landed as `stamp` says.
    Sent {
        act: Act,
        id: Version,
        sent: BootTime,
        outcome: Told,
        landed: Option<Stamp>,
    },
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Client {
    pub(crate) nonce: u8,
    /// Whether it has ever begun anything.
    pub(crate) begun: bool,
    pub(crate) clock: Option<Clock>,
    pub(crate) observations: Observations,
    pub(crate) belief: Option<Belief>,
    pub(crate) phase: Phase,
}

/// A swap under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flight {
    pub(crate) client: usize,
    pub(crate) sent: u64,
    pub(crate) id: Version,
    pub(crate) expect: Option<Version>,
    pub(crate) put: Option<Rc<Record>>,
    /// The fence that wrote the body, if this changes it.
    pub(crate) by: Option<Fence>,
}

/// One state of everything.
#[derive(Clone, Debug, Hash)]
pub(crate) struct World {
    pub(crate) tick: u64,
    /// Who comes before this client has gone on already in this tick, or waits for the next.
    pub(crate) turn: usize,
    /// By how much the store's clock has stepped.
    pub(crate) stepped: i64,
    pub(crate) steps_left: u8,
    /// The store's time when it was resumed after a reboot.
    pub(crate) restarted: Option<Time>,
    pub(crate) stored: Option<Snapshot>,
    /// The highest fence ever granted.
    pub(crate) highest: Fence,
    pub(crate) clients: [Client; CLIENTS],
    pub(crate) flights: Vec<Flight>,
    pub(crate) begins: u8,
    pub(crate) pauses: u8,
    pub(crate) crashes: u8,
    pub(crate) lost: u8,
    pub(crate) duplicates: u8,
}

impl World {
    /// An id that nothing in this state refers to.
    pub(crate) fn fresh_id(&mut self) -> Version {
        let mut highest = 0;
        self.each_version(|version| highest = highest.max(*version));
        highest + 1
    }

    /// Numbers versions in the order in which they appear: which number a version has means nothing.
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
                Phase::Answered { found, .. } | Phase::Ready { found, .. } => visit_found(found),
                Phase::Idle | Phase::Sent { .. } => {}
            }
        }
        for client in &mut self.clients {
            match &mut client.phase {
                Phase::Answered {
                    unsure: Some(unsure),
                    ..
                } => visit(&mut unsure.id),
                Phase::Sent { id, .. } => visit(id),
                _ => {}
            }
        }
        for flight in &mut self.flights {
            visit(&mut flight.id);
            if let Some(expect) = &mut flight.expect {
                visit(expect);
            }
        }
    }
}
