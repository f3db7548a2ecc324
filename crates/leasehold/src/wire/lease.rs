//! Leases as their holders see them: acquiring, renewing, releasing and breaking.

use std::time::Duration;

use leasehold_core::{
    BootTime, Fence, Grant, Invalid, LastHolder, Nonce, Renewal, State, Text, Time,
};
use serde::{Deserialize, Serialize};

use super::{GrantKind, LastHolderView, Problem, millis, rfc3339};
use crate::{BreakRequest, Hold, HolderKey, RenewedHold};

/// A lease that the caller holds: the response to an acquisition, a heartbeat and an update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// When it was granted, in store time.
    #[serde(with = "rfc3339")]
    pub acquire_time: Time,
    /// When it expires unless it is renewed, in store time.
    #[serde(with = "rfc3339")]
    pub expire_time: Time,
    /// The fencing token.
    pub fence: Fence,
    /// The body that the last holder left, or that was just written.
    pub body: Text,
    /// The length of the whole body in bytes, if [`body`](Self::body) is truncated; only in the response to several
    /// heartbeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<u64>,
    /// How long the caller may rely on the lease, in milliseconds from the **send** of the request.
    pub valid_for: u64,
    /// The ttl in milliseconds.
    pub ttl: u64,
    /// How it was granted; only in the response to an acquisition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<GrantKind>,
    /// The work item's state; only in the response to an acquisition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Text>,
    /// When the item entered that state.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "rfc3339::option"
    )]
    pub state_since: Option<Time>,
    /// The last exclusive holder that ended; only in the response to an acquisition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastHolderView>,
}

impl Lease {
    /// Creates the response to an acquisition that arrived at `arrival`, valid until `deadline`.
    pub fn granted(grant: &Grant, arrival: BootTime, deadline: BootTime) -> Self {
        Self {
            acquire_time: grant.acquired_at,
            expire_time: grant.expires_at,
            fence: grant.fence,
            body: grant.body.clone(),
            body_bytes: None,
            valid_for: millis(deadline.since(arrival)),
            ttl: millis(grant.ttl),
            granted: Some(grant.granted.into()),
            state: grant.state.as_ref().map(|state| state.label.clone()),
            state_since: grant.state.as_ref().map(|state| state.since),
            last: grant.last.as_ref().map(LastHolderView::from),
        }
    }

    /// Creates the response to a heartbeat or an update that arrived at `arrival`, valid until `deadline`.
    pub fn renewed(renewal: &Renewal, arrival: BootTime, deadline: BootTime) -> Self {
        Self {
            acquire_time: renewal.acquired_at,
            expire_time: renewal.expires_at,
            fence: renewal.fence,
            body: renewal.body.clone(),
            body_bytes: None,
            valid_for: millis(deadline.since(arrival)),
            ttl: millis(renewal.ttl),
            granted: None,
            state: None,
            state_since: None,
            last: None,
        }
    }

    /// Truncates the body to [`CUT_BODY`](super::CUT_BODY) bytes.
    pub fn cut(mut self) -> Self {
        let (body, bytes) = super::cut(self.body);
        (self.body, self.body_bytes) = (body, bytes);
        self
    }

    /// Converts the response to an acquisition that was sent at `sent`; `None` if it responds to another request.
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

    /// Converts the response to a heartbeat or an update that was sent at `sent`.
    pub fn into_renewed(self, sent: BootTime) -> RenewedHold {
        RenewedHold {
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

/// The response to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseResponse {
    /// Whether the lease was released, by this request or by an earlier delivery of it.
    pub released: bool,
}

/// The options for breaking a lease: by the caller's own fence or nonce, or by force. Not `Debug`, because the nonce is a
/// secret.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakOptions {
    /// The caller's own fence. With `force`, the fence of the holder to break; absent for all holders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// The nonce of the caller's acquisition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// Breaks the lease of another client.
    pub force: bool,
    /// The reason, required with `force`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text>,
    /// Removes the holder at once. Unsafe: it may still rely on the lease.
    pub now: bool,
}

impl From<BreakRequest> for BreakOptions {
    fn from(request: BreakRequest) -> Self {
        match request {
            BreakRequest::Own(HolderKey::Fence(fence)) => Self {
                fence: Some(fence),
                ..Self::default()
            },
            BreakRequest::Own(HolderKey::Nonce(nonce)) => Self {
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

impl TryFrom<BreakOptions> for BreakRequest {
    type Error = Invalid;

    fn try_from(options: BreakOptions) -> Result<Self, Invalid> {
        if options.fence.is_some_and(|fence| fence > Fence::MAX) {
            return Err(Invalid::new(
                "invalid fence: it is above the maximum: give the fence of the lease",
            ));
        }
        let own = match (options.force, options.fence, options.nonce) {
            (true, fence, None) => {
                return Ok(Self::Force {
                    fence,
                    reason: options.reason.unwrap_or_default(),
                    now: options.now,
                });
            }
            (false, Some(fence), None) => HolderKey::Fence(fence),
            (false, None, Some(nonce)) => HolderKey::Nonce(Nonce::new(nonce)?),
            (true, _, Some(_)) => {
                return Err(Invalid::new(
                    "cannot break by force with a nonce: give the fence of one holder, or neither for all holders",
                ));
            }
            (false, Some(_), Some(_)) => {
                return Err(Invalid::new(
                    "cannot break by both fence and nonce: give one of them",
                ));
            }
            (false, None, None) => {
                return Err(Invalid::new(
                    "cannot break: no holder is given: give your own `fence` or `nonce`, or `force` with a `reason`",
                ));
            }
        };
        if options.reason.is_some() || options.now {
            return Err(Invalid::new(
                "`reason` and `now` require a forced break: give `force` too",
            ));
        }
        Ok(Self::Own(own))
    }
}

/// The response to a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakResponse {
    /// Whether a holder was broken.
    pub broken: bool,
    /// When the broken holder stops blocking others; absent if the name is free.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "rfc3339::option"
    )]
    pub until: Option<Time>,
}

/// A batch of renewals.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeats {
    /// The renewals, at most [`MAX_HEARTBEATS`](super::MAX_HEARTBEATS).
    pub leases: Vec<Heartbeat>,
}

/// One renewal of a batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// The lease's name.
    pub name: Text,
    /// The holder's fence.
    pub fence: Fence,
    /// A new ttl, such as `30s`; absent to keep the present one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
}

/// The results of a batch of renewals.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeartbeatsResponse {
    /// The results, in the order of the renewals.
    pub leases: Vec<HeartbeatResult>,
}

/// The result of one renewal of a batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeartbeatResult {
    /// The lease was renewed.
    Lease(Lease),
    /// The renewal failed.
    Problem(Problem),
}
