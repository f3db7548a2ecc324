//! A lease as its holder sees it, and how it is renewed and let go.

use std::time::Duration;

use leasehold_core::{
    BootTime, Fence, Grant, Invalid, LastHolder, Nonce, Renewal, State, Text, Time,
};
use serde::{Deserialize, Serialize};

use super::{Ending, GrantedAs, Problem, millis, rfc3339};
use crate::{BreakRequest, Hold, Holding, Renewed};

/// A lease that is the caller's: the answer to acquire, heartbeat and update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// When it was granted, in the store's time.
    #[serde(with = "rfc3339")]
    pub acquire_time: Time,
    /// When it is over unless renewed, in the store's time.
    #[serde(with = "rfc3339")]
    pub expire_time: Time,
    /// The fencing token.
    pub fence: Fence,
    /// Where the last holder stopped, or what was just written.
    pub body: Text,
    /// How long the caller may believe in it, in milliseconds from the **send** of this request.
    pub valid_for: u64,
    /// How long each renewal lasts, in milliseconds.
    pub ttl: u64,
    /// How it came to be granted; only in the answer to acquire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<GrantedAs>,
    /// The work item's state; only in the answer to acquire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Text>,
    /// Since when it has been in that state.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "rfc3339::option"
    )]
    pub state_since: Option<Time>,
    /// How the last exclusive holder ended; only in the answer to acquire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Ending>,
}

impl Lease {
    /// The answer to an acquire that arrived at `arrival` and may be believed in until `deadline`.
    pub fn granted(grant: &Grant, arrival: BootTime, deadline: BootTime) -> Self {
        Self {
            acquire_time: grant.acquired_at,
            expire_time: grant.expires_at,
            fence: grant.fence,
            body: grant.body.clone(),
            valid_for: millis(deadline.since(arrival)),
            ttl: millis(grant.ttl),
            granted: Some(grant.granted.into()),
            state: grant.state.as_ref().map(|state| state.label.clone()),
            state_since: grant.state.as_ref().map(|state| state.since),
            last: grant.last.as_ref().map(Ending::from),
        }
    }

    /// The answer to a heartbeat or an update that arrived at `arrival`.
    pub fn renewed(renewal: &Renewal, arrival: BootTime, deadline: BootTime) -> Self {
        Self {
            acquire_time: renewal.acquired_at,
            expire_time: renewal.expires_at,
            fence: renewal.fence,
            body: renewal.body.clone(),
            valid_for: millis(deadline.since(arrival)),
            ttl: millis(renewal.ttl),
            granted: None,
            state: None,
            state_since: None,
            last: None,
        }
    }

    /// The hold that an acquire sent at this moment was answered with; `None` if this answers something else.
    pub fn into_hold(self, sent: BootTime) -> Option<Hold> {
        let deadline = self.deadline(sent);
        let since = self.state_since;
        let grant = Grant {
            fence: self.fence,
            granted: self.granted?.into(),
            ttl: Duration::from_millis(self.ttl),
            acquired_at: self.acquire_time,
            expires_at: self.expire_time,
            body: self.body,
            state: self.state.map(|label| State {
                label,
                since: since.unwrap_or_default(),
            }),
            last: self.last.map(LastHolder::from),
        };
        Some(Hold { grant, deadline })
    }

    /// The renewal that a heartbeat or update sent at this moment was answered with.
    pub fn into_renewed(self, sent: BootTime) -> Renewed {
        Renewed {
            deadline: self.deadline(sent),
            renewal: Renewal {
                fence: self.fence,
                ttl: Duration::from_millis(self.ttl),
                acquired_at: self.acquire_time,
                expires_at: self.expire_time,
                body: self.body,
            },
        }
    }

    fn deadline(&self, sent: BootTime) -> BootTime {
        sent + Duration::from_millis(self.valid_for)
    }
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// Whether there was something to let go of (now, or by the same call before).
    pub released: bool,
}

/// How to break a lease: by the caller's own fence or nonce, or by force. It carries a secret: no `Debug`.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakHow {
    /// The caller's own fence; with force, the only holder that is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// The nonce that the caller acquired with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// Anybody's.
    pub force: bool,
    /// Why, if by force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text>,
    /// At once, although the holder may still believe. Unsafe.
    pub now: bool,
}

impl From<BreakRequest> for BreakHow {
    fn from(request: BreakRequest) -> Self {
        match request {
            BreakRequest::Own(Holding::Fence(fence)) => Self {
                fence: Some(fence),
                ..Self::default()
            },
            BreakRequest::Own(Holding::Nonce(nonce)) => Self {
                nonce: Some(nonce.expose().to_owned()),
                ..Self::default()
            },
            BreakRequest::Force { fence, reason, now } => Self {
                fence,
                nonce: None,
                force: true,
                reason: Some(reason),
                now,
            },
        }
    }
}

impl TryFrom<BreakHow> for BreakRequest {
    type Error = Invalid;

    fn try_from(how: BreakHow) -> Result<Self, Invalid> {
        if how.fence.is_some_and(|fence| fence > Fence::MAX) {
            return Err(Invalid::new("there is no such fence"));
        }
        let own = match (how.force, how.fence, how.nonce) {
            (true, fence, None) => {
                return Ok(Self::Force {
                    fence,
                    reason: how.reason.unwrap_or_default(),
                    now: how.now,
                });
            }
            (false, Some(fence), None) => Holding::Fence(fence),
            (false, None, Some(nonce)) => Holding::Nonce(Nonce::new(nonce)?),
            (true, _, Some(_)) => {
                return Err(Invalid::new(
                    "a forced break goes by fence, or ends all holders: leave the nonce out",
                ));
            }
            (false, Some(_), Some(_)) => {
                return Err(Invalid::new("fence and nonce: give one of them"));
            }
            (false, None, None) => {
                return Err(Invalid::new(
                    "whose lease? Give your own `fence` or `nonce`, or `force` with a `reason`",
                ));
            }
        };
        if how.reason.is_some() || how.now {
            return Err(Invalid::new(
                "`reason` and `now` are for a forced break: give `force` too",
            ));
        }
        Ok(Self::Own(own))
    }
}

/// The answer to a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    /// Whether there was something to break.
    pub broken: bool,
    /// Until when the broken holder stays in the way; absent when the name is free.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "rfc3339::option"
    )]
    pub until: Option<Time>,
}

/// Many renewals in one call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeats {
    /// Them, at most [`MAX_HEARTBEATS`](super::MAX_HEARTBEATS).
    pub leases: Vec<Heartbeat>,
}

/// One of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// The lease's name.
    pub name: Text,
    /// Its holder's fence.
    pub fence: Fence,
    /// Another ttl than before, as in `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
}

/// What came of many renewals, in the same order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeartbeatsAnswer {
    /// Each for itself.
    pub leases: Vec<HeartbeatAnswer>,
}

/// What came of one of them: either member.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeartbeatAnswer {
    /// It goes on.
    Lease(Lease),
    /// It does not.
    Problem(Problem),
}
