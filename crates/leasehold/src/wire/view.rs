//! A name as anybody may see it.

use std::time::Duration;

use leasehold_core::{
    EndReason, Fence, Hash, Holder, LastHolder, Name, Record, State, Text, Time, View,
};
use serde::{Deserialize, Serialize};

use super::{Sharing, millis, rfc3339};

/// What is known of a name: the answer to show, and an entry of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LockView {
    /// The name.
    pub name: Text,
    /// Whether anybody holds it.
    pub held: bool,
    /// Whether a waiter has reserved it.
    pub reserved: bool,
    /// The highest fence ever granted under this name.
    pub fence: Fence,
    /// The body.
    pub body: Text,
    /// The work item's state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Text>,
    /// Since when it has been in that state.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "rfc3339::option"
    )]
    pub state_since: Option<Time>,
    /// Who holds it.
    pub holders: Vec<HolderView>,
    /// How the last exclusive holder ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Ending>,
    /// How many wait in line for it, at the service that was asked.
    #[serde(default, skip_serializing_if = "nobody")]
    pub waiters: u64,
}

fn nobody(waiters: &u64) -> bool {
    *waiters == 0
}

/// One who holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HolderView {
    /// Its fencing token.
    pub fence: Fence,
    /// Who it is, for people.
    pub owner: Text,
    /// Whose it is, where access control is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Text>,
    /// How it holds.
    pub mode: Sharing,
    /// With how many others at most, itself included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u16>,
    /// How long each renewal lasts, in milliseconds.
    pub ttl: u64,
    /// When it was granted.
    #[serde(with = "rfc3339")]
    pub acquire_time: Time,
    /// When it was last renewed.
    #[serde(with = "rfc3339")]
    pub renew_time: Time,
    /// When it is over unless renewed.
    #[serde(with = "rfc3339")]
    pub expire_time: Time,
    /// The same in milliseconds from now.
    pub left: u64,
    /// Why it was broken, if it was: its fence acts no more, but it stays in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<Text>,
}

/// How a holder ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Its fence.
    pub fence: Fence,
    /// Who it was.
    pub owner: Text,
    /// What became of it.
    pub how: EndedAs,
    /// When.
    #[serde(with = "rfc3339")]
    pub at: Time,
}

/// What became of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndedAs {
    /// It let go.
    Released,
    /// It wrote its result and let go.
    Completed,
    /// It was not heard of for its whole ttl.
    Expired,
    /// Somebody with the right to do so ended it.
    Broken,
}

/// A page of names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locks {
    /// Them.
    pub locks: Vec<LockView>,
    /// Where to go on; null at the end.
    pub cursor: Option<String>,
}

/// A page of gates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gates {
    /// Them: whoever passed last holds a gate while it is shut.
    pub gates: Vec<LockView>,
    /// Where to go on; null at the end.
    pub cursor: Option<String>,
}

/// Stands where a hash is that only the service knows.
fn unknown_hash() -> Hash {
    Hash::of(&[])
}

impl LockView {
    /// What may be seen of a record. Hashes stay behind.
    pub fn new(name: &Name, view: &View) -> Self {
        let record = &view.record;
        Self {
            name: name.as_str().into(),
            held: !record.holders.is_empty(),
            reserved: view.reserved,
            fence: record.fence,
            body: record.body.clone(),
            state: record.state.as_ref().map(|state| state.label.clone()),
            state_since: record.state.as_ref().map(|state| state.since),
            holders: record
                .holders
                .iter()
                .zip(&view.remaining)
                .map(|(holder, left)| HolderView::new(holder, *left))
                .collect(),
            last: record.last.as_ref().map(Ending::from),
            waiters: 0,
        }
    }
}

impl From<LockView> for View {
    /// The view again, as far as it can be seen from outside: its hashes mean nothing.
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
        let (mode, limit) = Sharing::split(holder.mode);
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
            nonce: unknown_hash(),
            mode: holder.mode.join(holder.limit),
            ttl: Duration::from_millis(holder.ttl),
            acquired_at: holder.acquire_time,
            renewed_at: holder.renew_time,
            expires_at: holder.expire_time,
            broken: holder.broken,
        }
    }
}

impl From<&LastHolder> for Ending {
    fn from(ended: &LastHolder) -> Self {
        Self {
            fence: ended.fence,
            owner: ended.owner.clone(),
            how: ended.how.into(),
            at: ended.at,
        }
    }
}

impl From<EndReason> for EndedAs {
    fn from(how: EndReason) -> Self {
        match how {
            EndReason::Released => Self::Released,
            EndReason::Completed(_) => Self::Completed,
            EndReason::Expired => Self::Expired,
            EndReason::Broken => Self::Broken,
        }
    }
}

impl From<Ending> for LastHolder {
    fn from(ending: Ending) -> Self {
        Self {
            fence: ending.fence,
            owner: ending.owner,
            how: match ending.how {
                EndedAs::Released => EndReason::Released,
                EndedAs::Completed => EndReason::Completed(unknown_hash()),
                EndedAs::Expired => EndReason::Expired,
                EndedAs::Broken => EndReason::Broken,
            },
            at: ending.at,
        }
    }
}
