//! What can be asked of a record, and what comes of it.

use std::time::Duration;

use crate::record::{Ended, Fence, Hash, Mode, State, Text};
use crate::{Invalid, Kind, Time, limits};

/// What can be asked of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Take the lease, or keep it.
    Acquire(Acquire),
    /// Be the next to be granted, for a short while.
    Reserve(Reserve),
    /// Go on holding.
    Renew(Renew),
    /// Write the body or the state, and go on holding or let go.
    Update(Update),
    /// Let go.
    Release(Release),
    /// End a holder.
    Break(Break),
    /// Create a work item, or put it into another state.
    Put(Put),
    /// Empty a work item.
    Remove,
    /// Delete the record if it is free, empty and old.
    Purge {
        /// How long it must have been unused.
        retention: Duration,
    },
}

/// Take the lease, or keep it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquire {
    /// The hash of the nonce of this acquisition.
    pub nonce: Hash,
    /// Who asks, for people.
    pub owner: Text,
    /// Who asks, as authenticated.
    pub principal: Option<Text>,
    /// How long to hold without a renewal.
    pub ttl: Duration,
    /// Exclusive or shared.
    pub mode: Mode,
    /// The fence that the caller holds already, if it only wants to keep it.
    pub fence: Option<Fence>,
    /// Grant nothing at or below this fence: set when a first grant turned out to be made by a clock that was off.
    pub floor: Fence,
    /// Only while the work item is in this state.
    pub in_state: Option<Text>,
}

/// Be the next to be granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reserve {
    /// The hash of the waiter's nonce.
    pub nonce: Hash,
    /// What it waits for.
    pub mode: Mode,
    /// For how long from now; zero withdraws the reservation.
    pub span: Duration,
}

/// Go on holding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renew {
    /// The holder's fence.
    pub fence: Fence,
    /// Who asks, as authenticated.
    pub principal: Option<Text>,
    /// Another ttl than before.
    pub ttl: Option<Duration>,
}

/// Write the body or the state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Update {
    /// The holder's fence.
    pub fence: Fence,
    /// Who asks, as authenticated.
    pub principal: Option<Text>,
    /// The new body; `None` leaves it.
    pub body: Option<Text>,
    /// The new state; `None` leaves it, `Some(None)` clears it.
    pub state: Option<Option<Text>>,
    /// Let go in the same write, instead of renewing.
    pub then_release: bool,
}

/// Which holder is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// The one with this fence.
    Fence(Fence),
    /// The one that acquired with the nonce of this hash.
    Nonce(Hash),
}

/// Let go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Release {
    /// Which holder.
    pub who: Who,
    /// Who asks, as authenticated.
    pub principal: Option<Text>,
}

/// End a holder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Break {
    /// The caller's own: as a release, but an error when it is somebody else's.
    Own(Release),
    /// Anybody's.
    Force {
        /// Only the holder with this fence; otherwise all of them.
        fence: Option<Fence>,
        /// Why, for those who look at it later.
        reason: Text,
        /// Remove the holder at once. **Unsafe**: it may still believe. Otherwise it is marked as broken and stays
        /// in the way until it expires.
        now: bool,
    },
}

/// Create a work item, or put it into another state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Put {
    /// Its state.
    pub state: Text,
    /// Its body. `None` keeps the present one; a new item then has an empty one.
    pub body: Option<Text>,
    /// The hash of this put's nonce: repeated while it is the last put, it changes nothing.
    pub nonce: Option<Hash>,
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The lease is the caller's.
    Granted(Grant),
    /// Somebody is in the way.
    Held(Held),
    /// A reservation stands.
    Reserved {
        /// Until then, unless refreshed.
        until: Time,
    },
    /// Nothing to reserve: it can be acquired. Or a reservation was withdrawn.
    Free,
    /// Renewed, or updated and renewed.
    Renewed(Renewal),
    /// Updated and released in one write (now, or by this same call before).
    Completed,
    /// Released (now, or by this same call before).
    Released,
    /// There is nothing to release or break: nobody holds it by that fence or nonce.
    NotHeld,
    /// Broken by force.
    Broken {
        /// Until when the broken holders stay in the way; `None`: it is free.
        until: Option<Time>,
    },
    /// The item is there.
    Put,
    /// The item is empty.
    Removed,
    /// The record may be deleted.
    Purged,
    /// The record is in use, not empty, or too young to be purged.
    Kept,
    /// That fence does not hold this lease (any more). Nothing was written.
    Fenced,
    /// That fence has expired. Nothing was written.
    Expired,
    /// It belongs to another principal. Nothing was written.
    Denied,
    /// The live holders share it with another limit. Nothing was written.
    OtherLimit {
        /// Theirs.
        limit: Option<u16>,
    },
    /// The work item is not in the state that was asked for. Nothing was written.
    OtherState,
    /// All fences of this name are used up; only a corrupt record gets there.
    Exhausted,
}

/// How a lease came to be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Granted {
    /// It was free.
    Fresh,
    /// The caller held it already, by the same nonce; its older fence is dead.
    Again,
    /// The caller held it already and presented its fence, which it keeps.
    Kept,
}

/// A lease that is the caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The fencing token.
    pub fence: Fence,
    /// How it came to be granted.
    pub granted: Granted,
    /// How long it lasts without a renewal.
    pub ttl: Duration,
    /// When it was granted, in the store's time.
    pub acquired_at: Time,
    /// When it is over, in the store's time.
    pub expires_at: Time,
    /// Where the last holder stopped.
    pub body: Text,
    /// The work item's state.
    pub state: Option<State>,
    /// How the last exclusive holder ended.
    pub last: Option<Ended>,
}

/// Somebody is in the way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// Who; empty for a waiter that has reserved.
    pub owner: Text,
    /// Since when.
    pub since: Time,
    /// Until it is over, if nobody renews it.
    pub retry_after: Duration,
}

/// A lease that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renewal {
    /// The fencing token: the same.
    pub fence: Fence,
    /// How long it lasts without another renewal.
    pub ttl: Duration,
    /// When it was granted.
    pub acquired_at: Time,
    /// When it is over.
    pub expires_at: Time,
    /// The body as it now stands.
    pub body: Text,
}

impl Operation {
    /// Whether every part of it is within its limits. Asked once, before anything is queued.
    pub fn check(&self, kind: Kind) -> Result<(), Invalid> {
        match self {
            Self::Acquire(acquire) => {
                check_ttl(acquire.ttl, kind)?;
                check_bytes("owner", &acquire.owner, limits::OWNER_BYTES)?;
                acquire.in_state.as_deref().map_or(Ok(()), check_state)?;
                check_mode(acquire.mode)
            }
            Self::Reserve(reserve) => check_mode(reserve.mode),
            Self::Renew(renew) => renew.ttl.map_or(Ok(()), |ttl| check_ttl(ttl, kind)),
            Self::Update(update) => {
                update.body.as_deref().map_or(Ok(()), check_body)?;
                update
                    .state
                    .as_ref()
                    .and_then(Option::as_deref)
                    .map_or(Ok(()), check_state)
            }
            Self::Break(Break::Force { reason, .. }) => {
                if reason.is_empty() {
                    return Err(Invalid::new(
                        "a forced break needs a reason, for those who look at it later",
                    ));
                }
                check_bytes("reason", reason, limits::REASON_BYTES)
            }
            Self::Put(put) => {
                check_state(&put.state)?;
                put.body.as_deref().map_or(Ok(()), check_body)
            }
            Self::Purge { retention } if *retention < limits::MIN_RETENTION => Err(Invalid::new(
                "the retention is under an hour: a request may outlive the record that it meant",
            )),
            Self::Release(_) | Self::Break(Break::Own(_)) | Self::Remove | Self::Purge { .. } => {
                Ok(())
            }
        }
    }
}

fn check_ttl(ttl: Duration, kind: Kind) -> Result<(), Invalid> {
    let (word, max, max_words) = match kind {
        Kind::Lock => ("ttl", limits::MAX_TTL, "24 hours"),
        Kind::Gate => ("period", limits::MAX_PERIOD, "10 years"),
    };
    if ttl < limits::MIN_TTL {
        return Err(Invalid::new(format!(
            "the {word} is under a millisecond: give something like `30s`"
        )));
    }
    if ttl > max {
        return Err(Invalid::new(format!(
            "the {word} is over the maximum of {max_words}"
        )));
    }
    Ok(())
}

fn check_mode(mode: Mode) -> Result<(), Invalid> {
    match mode {
        Mode::Shared { limit: Some(limit) }
            if limit == 0 || usize::from(limit) > limits::HOLDERS =>
        {
            Err(Invalid::new(format!(
                "the limit is {limit}: it must be from 1 to {}",
                limits::HOLDERS
            )))
        }
        _ => Ok(()),
    }
}

fn check_bytes(what: &str, text: &str, max: usize) -> Result<(), Invalid> {
    if text.len() > max {
        return Err(Invalid::new(format!(
            "the {what} has {} bytes: at most {max} are allowed",
            text.len()
        )));
    }
    Ok(())
}

fn check_body(body: &str) -> Result<(), Invalid> {
    check_bytes("body", body, limits::BODY_BYTES)
}

fn check_state(label: &str) -> Result<(), Invalid> {
    if label.is_empty() || label.chars().any(char::is_control) {
        return Err(Invalid::new(
            "the state is empty or has control characters: give a short label",
        ));
    }
    check_bytes("state", label, limits::STATE_BYTES)
}
