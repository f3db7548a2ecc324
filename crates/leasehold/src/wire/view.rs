//! Leases and gates as other clients see them.

use std::time::Duration;

use leasehold_core::{
    EndReason, Fence, Hash, Holder, LastHolder, Name, Record, State, Text, Time, View,
};
use serde::{Deserialize, Serialize};

use super::{ModeKind, millis, rfc3339};

/// The state of a name: the response to `show`, and an entry of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LockView {
    /// The name.
    pub name: Text,
    /// Whether it is held.
    pub held: bool,
    /// Whether a waiter has reserved the next grant.
    pub reserved: bool,
    /// The highest fence ever granted under this name.
    pub fence: Fence,
    /// The body.
    pub body: Text,
    /// The length of the whole body in bytes, if [`body`](Self::body) is truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<u64>,
    /// The work item's state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Text>,
    /// When the item entered that state.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "rfc3339::option"
    )]
    pub state_since: Option<Time>,
    /// The holders.
    pub holders: Vec<HolderView>,
    /// The last exclusive holder that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastHolderView>,
    /// The number of waiters in the queue of the service that responds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiters: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// One holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HolderView {
    /// Its fencing token.
    pub fence: Fence,
    /// Its description, for people.
    pub owner: Text,
    /// The authenticated caller that holds it, where access control is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Text>,
    /// Exclusive or shared.
    pub mode: ModeKind,
    /// The maximum number of shared holders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u16>,
    /// The ttl in milliseconds.
    pub ttl: u64,
    /// When it was granted.
    #[serde(with = "rfc3339")]
    pub acquire_time: Time,
    /// When it was last renewed.
    #[serde(with = "rfc3339")]
    pub renew_time: Time,
    /// When it expires unless it is renewed.
    #[serde(with = "rfc3339")]
    pub expire_time: Time,
    /// The remaining time in milliseconds, unless it is renewed.
    pub left: u64,
    /// The reason, if it was broken. Its fence is refused, but it blocks others until it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<Text>,
}

/// A holder that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastHolderView {
    /// Its fence.
    pub fence: Fence,
    /// Its owner.
    pub owner: Text,
    /// How it ended.
    pub how: EndKind,
    /// When it ended.
    #[serde(with = "rfc3339")]
    pub at: Time,
}

/// How a holder ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndKind {
    /// It released the lease.
    Released,
    /// It wrote its result and released the lease.
    Completed,
    /// It did not renew for its whole ttl.
    Expired,
    /// It was broken.
    Broken,
}

/// A page of leases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locks {
    /// The leases.
    pub locks: Vec<LockView>,
    /// The cursor of the next page; null on the last page.
    pub cursor: Option<String>,
}

/// A page of gates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gates {
    /// The gates. The last call that passed holds a gate while it is shut.
    pub gates: Vec<LockView>,
    /// The cursor of the next page; null on the last page.
    pub cursor: Option<String>,
}

/// Returns a placeholder for a hash that only the service knows.
fn placeholder_hash() -> Hash {
    Hash::of(&[])
}

impl LockView {
    /// Creates the public view of a record, without hashes.
    pub fn new(name: &Name, view: &View) -> Self {
        let record = &view.record;
        Self {
            name: name.as_str().into(),
            held: !record.holders.is_empty(),
            reserved: view.reserved,
            fence: record.fence,
            body: record.body.clone(),
            body_bytes: None,
            state: record.state.as_ref().map(|state| state.label.clone()),
            state_since: record.state.as_ref().map(|state| state.since),
            holders: record
                .holders
                .iter()
                .zip(&view.remaining)
                .map(|(holder, left)| HolderView::new(holder, *left))
                .collect(),
            last: record.last.as_ref().map(LastHolderView::from),
            waiters: 0,
        }
    }

    /// Truncates the body to [`CUT_BODY`](super::CUT_BODY) bytes.
    pub fn cut(mut self) -> Self {
        let (body, bytes) = super::cut(self.body);
        (self.body, self.body_bytes) = (body, bytes);
        self
    }
}

impl From<LockView> for View {
    /// Restores the view. Its hashes are placeholders.
    fn from(lock: LockView) -> Self {
        let since = lock.state_since.unwrap_or_default();
        Self {
            remaining: lock
                .holders
                .iter()
                .map(|holder| Duration::from_millis(holder.left))
                .collect(),
            reserved: lock.reserved,
            record: Record {
                fence: lock.fence,
                holders: lock.holders.into_iter().map(Holder::from).collect(),
                last: lock.last.map(LastHolder::from),
                next: None,
                body: lock.body,
                state: lock.state.map(|label| State { label, since }),
                put: None,
            },
        }
    }
}

impl HolderView {
    fn new(holder: &Holder, left: Duration) -> Self {
        let (mode, limit) = ModeKind::split(holder.mode);
        Self {
            fence: holder.fence,
            owner: holder.owner.clone(),
            principal: holder.principal.clone(),
            mode,
            limit,
            ttl: millis(holder.ttl),
            acquire_time: holder.acquired_at,
            renew_time: holder.renewed_at,
            expire_time: holder.expires_at,
            left: millis(left),
            broken: holder.broken.clone(),
        }
    }
}

impl From<HolderView> for Holder {
    fn from(holder: HolderView) -> Self {
        Self {
            fence: holder.fence,
            owner: holder.owner,
            principal: holder.principal,
            nonce: placeholder_hash(),
            mode: holder.mode.join(holder.limit),
            ttl: Duration::from_millis(holder.ttl),
            acquired_at: holder.acquire_time,
            renewed_at: holder.renew_time,
            expires_at: holder.expire_time,
            broken: holder.broken,
        }
    }
}

impl From<&LastHolder> for LastHolderView {
    fn from(ended: &LastHolder) -> Self {
        Self {
            fence: ended.fence,
            owner: ended.owner.clone(),
            how: ended.how.into(),
            at: ended.at,
        }
    }
}

impl From<EndReason> for EndKind {
    fn from(how: EndReason) -> Self {
        match how {
            EndReason::Released => Self::Released,
            EndReason::Completed(_) => Self::Completed,
            EndReason::Expired => Self::Expired,
            EndReason::Broken => Self::Broken,
        }
    }
}

impl From<LastHolderView> for LastHolder {
    fn from(ending: LastHolderView) -> Self {
        Self {
            fence: ending.fence,
            owner: ending.owner,
            how: match ending.how {
                EndKind::Released => EndReason::Released,
                EndKind::Completed => EndReason::Completed(placeholder_hash()),
                EndKind::Expired => EndReason::Expired,
                EndKind::Broken => EndReason::Broken,
            },
            at: ending.at,
        }
    }
}
