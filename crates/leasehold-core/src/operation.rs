//! Operations on a record, and their outcomes.

use std::time::Duration;

use crate::record::{Fence, Hash, LastHolder, Mode, State, Text};
use crate::{Invalid, Kind, Time, limits};

/// An operation on a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Acquires the lease, or keeps it.
    Acquire(Acquire),
    /// Reserves the next grant for a short time.
    Reserve(Reserve),
    /// Renews the lease.
    Renew(Renew),
    /// Writes the body or the state, and renews or releases the lease.
    Update(Update),
    /// Releases the lease.
    Release(Release),
    /// Ends a holder.
    Break(Break),
    /// Creates a work item, or puts it into another state.
    Put(Put),
    /// Empties a work item.
    Remove,
    /// Deletes the record if it is free, empty and old.
    Purge {
        /// How long the record must have been unused.
        retention: Duration,
    },
}

/// Acquires the lease, or keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquire {
    /// The hash of the nonce of this acquisition.
    pub nonce: Hash,
    /// The caller's description, for people.
    pub owner: Text,
    /// The authenticated caller.
    pub principal: Option<Text>,
    /// How long the lease lasts without a renewal.
    pub ttl: Duration,
    /// Exclusive or shared.
    pub mode: Mode,
    /// The fence that the caller holds already, if it only wants to keep it.
    pub fence: Option<Fence>,
    /// A lower bound: only higher fences are granted. Set after a first grant that was made by a stepped clock.
    pub floor: Fence,
    /// Grant only while the work item is in this state.
    pub in_state: Option<Text>,
}

/// Reserves the next grant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reserve {
    /// The hash of the waiter's nonce.
    pub nonce: Hash,
    /// The mode it waits for.
    pub mode: Mode,
    /// How long to reserve, from now on. Zero withdraws the reservation.
    pub span: Duration,
}

/// Renews the lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renew {
    /// The holder's fence.
    pub fence: Fence,
    /// The authenticated caller.
    pub principal: Option<Text>,
    /// A new ttl; `None` keeps the present one.
    pub ttl: Option<Duration>,
}

/// Writes the body or the state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Update {
    /// The holder's fence.
    pub fence: Fence,
    /// The authenticated caller.
    pub principal: Option<Text>,
    /// The new body; `None` keeps the present one.
    pub body: Option<Text>,
    /// The new state; `None` keeps the present one, `Some(None)` clears it.
    pub state: Option<Option<Text>>,
    /// Release the lease in the same write, instead of renewing it.
    pub then_release: bool,
}

/// Identifies a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HolderRef {
    /// The holder with this fence.
    Fence(Fence),
    /// The holder that acquired with the nonce of this hash.
    Nonce(Hash),
}

/// Releases the lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Release {
    /// The holder to release.
    pub holder: HolderRef,
    /// The authenticated caller.
    pub principal: Option<Text>,
}

/// Ends a holder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Break {
    /// Ends the caller's own holder. Like a release, but an error if the lease is another caller's.
    Own(Release),
    /// Ends the holder of any caller.
    Force {
        /// The holder with this fence; `None` for all holders.
        fence: Option<Fence>,
        /// The reason, shown to people later.
        reason: Text,
        /// Removes the holder at once. **Unsafe**: the holder may still rely on its lease. Otherwise it is marked as
        /// broken and blocks others until it expires.
        now: bool,
    },
}

/// Creates a work item, or puts it into another state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Put {
    /// Its state.
    pub state: Text,
    /// Its body. `None` keeps the present one, which is empty for a new item.
    pub body: Option<Text>,
    /// The hash of this put's nonce. Repeating the last put changes nothing.
    pub nonce: Option<Hash>,
}

/// The outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The lease was granted to the caller.
    Granted(Grant),
    /// Another holder or a reservation prevents the grant.
    Held(Held),
    /// The next grant is reserved.
    Reserved {
        /// When the reservation lapses unless it is refreshed.
        until: Time,
    },
    /// There is nothing to reserve because the lease can be acquired, or a reservation was withdrawn.
    Free,
    /// Renewed, or updated and renewed.
    Renewed(Renewal),
    /// Updated and released in one write, by this call or by an earlier delivery of it.
    Completed,
    /// Released, by this call or by an earlier delivery of it.
    Released,
    /// There is nothing to release or break: no holder has that fence or nonce.
    NotHeld,
    /// Broken by force.
    Broken {
        /// When the last broken holder stops blocking others; `None` if the lease is free.
        until: Option<Time>,
    },
    /// The item was put.
    Put,
    /// The item was emptied.
    Removed,
    /// The record may be deleted.
    Purged,
    /// The record is in use, not empty, or too young to be purged.
    NotPurged,
    /// That fence does not hold this lease, or does so no longer. Nothing was written.
    Fenced,
    /// That fence has expired. Nothing was written.
    Expired,
    /// The lease belongs to another principal. Nothing was written.
    Denied,
    /// The live holders share the lease with another limit. Nothing was written.
    LimitMismatch {
        /// The limit of the live holders.
        limit: Option<u16>,
    },
    /// The work item is not in the requested state. Nothing was written.
    StateMismatch,
    /// All fences of this name are used up, which happens only to a corrupt record.
    Exhausted,
}

/// How a lease was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GrantKind {
    /// The lease was free.
    Fresh,
    /// The caller already held the lease by the same nonce. Its older fence is now refused.
    Again,
    /// The caller already held the lease and presented its fence, which stays valid.
    Kept,
}

/// A lease that was granted to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The fencing token.
    pub fence: Fence,
    /// How it was granted.
    pub granted: GrantKind,
    /// How long it lasts without a renewal.
    pub ttl: Duration,
    /// When it was granted, in store time.
    pub acquired_at: Time,
    /// When it expires, in store time.
    pub expires_at: Time,
    /// The body that the last holder left.
    pub body: Text,
    /// The work item's state.
    pub state: Option<State>,
    /// The last exclusive holder that ended.
    pub last: Option<LastHolder>,
}

/// The lease is held, or reserved by a waiter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// The holder's owner; empty for a waiter's reservation.
    pub owner: Text,
    /// When the holder acquired the lease.
    pub since: Time,
    /// How long until the lease can be granted, unless it is renewed.
    pub retry_after: Duration,
}

/// A renewed lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renewal {
    /// The fencing token, unchanged.
    pub fence: Fence,
    /// How long it lasts without another renewal.
    pub ttl: Duration,
    /// When it was granted.
    pub acquired_at: Time,
    /// When it expires.
    pub expires_at: Time,
    /// The present body.
    pub body: Text,
}

impl Operation {
    /// Checks that every part is within its limits. Called once, before the operation is queued.
    pub fn check(&self, kind: Kind) -> Result<(), Invalid> {
        match self {
            Self::Acquire(acquire) => {
                check_ttl(acquire.ttl, kind)?;
                check_bytes("owner", &acquire.owner, limits::MAX_OWNER_BYTES)?;
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
                        "a forced break requires a reason: say why, for the people who read it later",
                    ));
                }
                check_bytes("reason", reason, limits::MAX_REASON_BYTES)
            }
            Self::Put(put) => {
                check_state(&put.state)?;
                put.body.as_deref().map_or(Ok(()), check_body)
            }
            Self::Purge { retention } if *retention < limits::MIN_RETENTION => Err(Invalid::new(
                "the retention is under an hour, and a delayed request may refer to the deleted record: give 1h or more",
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
            if limit == 0 || usize::from(limit) > limits::MAX_HOLDERS =>
        {
            Err(Invalid::new(format!(
                "the limit is {limit}: it must be from 1 to {}",
                limits::MAX_HOLDERS
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
    check_bytes("body", body, limits::MAX_BODY_BYTES)
}

fn check_state(label: &str) -> Result<(), Invalid> {
    if label.is_empty() || label.chars().any(char::is_control) {
        return Err(Invalid::new(
            "the state is empty or has control characters: give a short label",
        ));
    }
    check_bytes("state", label, limits::MAX_STATE_BYTES)
}
