//! Events as they are sent to subscribers. They contain neither bodies nor nonces.

use leasehold_core::{EndReason, Event, Fence, Holder, Kind, Name, Text, Time};
use serde::{Deserialize, Serialize};

use super::{ModeKind, millis, rfc3339};

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// The lease was granted.
    Granted,
    /// The holder renewed the lease.
    Renewed,
    /// The holder released the lease.
    Released,
    /// The holder wrote its result and released the lease.
    Completed,
    /// The holder did not renew the lease for its whole ttl.
    Expired,
    /// The lease was broken.
    Broken,
    /// The holder's fence became invalid, and the record does not contain the reason: for a shared holder, or for one that
    /// was replaced by its own nonce.
    Ended,
    /// The body or the state changed.
    Updated,
    /// The record was deleted.
    Purged,
    /// Events were missed: the subscriber must load the list again.
    EventsMissed,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Granted,
        Self::Renewed,
        Self::Released,
        Self::Completed,
        Self::Expired,
        Self::Broken,
        Self::Ended,
        Self::Updated,
        Self::Purged,
        Self::EventsMissed,
    ];

    /// Returns the name of the kind, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Renewed => "renewed",
            Self::Released => "released",
            Self::Completed => "completed",
            Self::Expired => "expired",
            Self::Broken => "broken",
            Self::Ended => "ended",
            Self::Updated => "updated",
            Self::Purged => "purged",
            Self::EventsMissed => "missed",
        }
    }
}

/// One event: the data of a server-sent event, and a line of `leasehold watch --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventMessage {
    /// The kind of the event.
    pub event: EventKind,
    /// The name; absent if events were missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Text>,
    /// `lock` or `gate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Text>,
    /// When the event was observed, in store time.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "rfc3339::option"
    )]
    pub time: Option<Time>,
    /// The holder's fence, if the event concerns a holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// The holder's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Text>,
    /// Exclusive or shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ModeKind>,
    /// The maximum number of shared holders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u16>,
    /// The ttl in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    /// When the lease was granted to the holder.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "rfc3339::option"
    )]
    pub acquire_time: Option<Time>,
    /// When the lease expires unless it is renewed.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "rfc3339::option"
    )]
    pub expire_time: Option<Time>,
    /// The work item's state, if the body or the state changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Text>,
}

impl EventMessage {
    /// Converts an event of the core.
    pub fn new(name: &Name, event: &Event, at: Time) -> Self {
        let message = |event| Self {
            name: Some(name.as_str().into()),
            kind: Some(name.kind().as_str().into()),
            time: Some(at),
            ..Self::empty(event)
        };
        match event {
            Event::Granted(holder) => message(EventKind::Granted).with_holder(holder),
            Event::Renewed(holder) => message(EventKind::Renewed).with_holder(holder),
            Event::Ended {
                fence,
                owner,
                since,
                how,
            } => Self {
                fence: Some(*fence),
                owner: Some(owner.clone()),
                acquire_time: *since,
                ..message(end_kind(*how))
            },
            Event::Updated { state } => Self {
                state: state.clone(),
                ..message(EventKind::Updated)
            },
            Event::Purged => message(EventKind::Purged),
        }
    }

    /// Returns the message that events were missed.
    pub fn missed() -> Self {
        Self::empty(EventKind::EventsMissed)
    }

    /// Returns the name together with its kind; `None` if it is absent or invalid.
    pub fn name(&self) -> Option<Name> {
        let kind = Kind::parse(self.kind.as_deref()?)?;
        Name::new(kind, self.name.as_deref()?).ok()
    }

    fn empty(event: EventKind) -> Self {
        Self {
            event,
            name: None,
            kind: None,
            time: None,
            fence: None,
            owner: None,
            mode: None,
            limit: None,
            ttl: None,
            acquire_time: None,
            expire_time: None,
            state: None,
        }
    }

    fn with_holder(self, holder: &Holder) -> Self {
        let (mode, limit) = ModeKind::split(holder.mode);
        Self {
            fence: Some(holder.fence),
            owner: Some(holder.owner.clone()),
            mode: Some(mode),
            limit,
            ttl: Some(millis(holder.ttl)),
            acquire_time: Some(holder.acquired_at),
            expire_time: Some(holder.expires_at),
            ..self
        }
    }
}

fn end_kind(how: Option<EndReason>) -> EventKind {
    match how {
        None => EventKind::Ended,
        Some(EndReason::Released) => EventKind::Released,
        Some(EndReason::Completed(_)) => EventKind::Completed,
        Some(EndReason::Expired) => EventKind::Expired,
        Some(EndReason::Broken) => EventKind::Broken,
    }
}
