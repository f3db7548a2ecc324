//! What happened, as it is told to those who watch. There is no place here for a body or a nonce.

use leasehold_core::{EndReason, Event, Fence, Holder, Kind, Name, Text, Time};
use serde::{Deserialize, Serialize};

use super::{Sharing, millis, rfc3339};

/// What happened under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// Somebody got it.
    Granted,
    /// Its holder goes on.
    Renewed,
    /// Its holder let go.
    Released,
    /// Its holder wrote its result and let go.
    Completed,
    /// Its holder was not heard of for its whole ttl.
    Expired,
    /// Somebody with the right to do so ended it.
    Broken,
    /// A holder's fence acts no more, and the record does not tell how that came: a sharer's, or one replaced by its own
    /// nonce.
    Ended,
    /// Body or state changed.
    Updated,
    /// The record was deleted.
    Purged,
    /// Some events were missed: load the list again.
    Missed,
}

impl EventKind {
    /// Every kind.
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
        Self::Missed,
    ];

    /// Its word on the wire.
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
            Self::Missed => "missed",
        }
    }
}

/// One event: the data of a server-sent event, and a line of `leasehold watch --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// What happened.
    pub event: EventKind,
    /// Under which name; none if some were missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Text>,
    /// `lock` or `gate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Text>,
    /// When it was seen, in the store's time.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "rfc3339::option"
    )]
    pub time: Option<Time>,
    /// The holder's fence, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// Who that is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Text>,
    /// How it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Sharing>,
    /// With how many others at most, itself included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u16>,
    /// How long each renewal lasts, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    /// Since when it holds or held.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "rfc3339::option"
    )]
    pub acquire_time: Option<Time>,
    /// When it is over unless renewed.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "rfc3339::option"
    )]
    pub expire_time: Option<Time>,
    /// The work item's state, where body or state changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Text>,
}

impl Told {
    /// What an event says to those who may hear of its name.
    pub fn new(name: &Name, event: &Event, at: Time) -> Self {
        let about = |event| Self {
            name: Some(name.as_str().into()),
            kind: Some(name.kind().as_str().into()),
            time: Some(at),
            ..Self::bare(event)
        };
        match event {
            Event::Granted(holder) => about(EventKind::Granted).of(holder),
            Event::Renewed(holder) => about(EventKind::Renewed).of(holder),
            Event::Ended {
                fence,
                owner,
                since,
                how,
            } => Self {
                fence: Some(*fence),
                owner: Some(owner.clone()),
                acquire_time: *since,
                ..about(ended(*how))
            },
            Event::Updated { state } => Self {
                state: state.clone(),
                ..about(EventKind::Updated)
            },
            Event::Purged => about(EventKind::Purged),
        }
    }

    /// Some were missed.
    pub fn missed() -> Self {
        Self::bare(EventKind::Missed)
    }

    /// The name and its kind.
    pub fn name(&self) -> Option<Name> {
        let kind = Kind::parse(self.kind.as_deref()?)?;
        Name::new(kind, self.name.as_deref()?).ok()
    }

    fn bare(event: EventKind) -> Self {
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

    fn of(self, holder: &Holder) -> Self {
        let (mode, limit) = Sharing::split(holder.mode);
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

fn ended(how: Option<EndReason>) -> EventKind {
    match how {
        None => EventKind::Ended,
        Some(EndReason::Released) => EventKind::Released,
        Some(EndReason::Completed(_)) => EventKind::Completed,
        Some(EndReason::Expired) => EventKind::Expired,
        Some(EndReason::Broken) => EventKind::Broken,
    }
}
