//! What the service has done, in numbers: `GET /metrics`.
//!
//! A request costs a few additions. Everything else is worked out when somebody asks.

mod page;
mod text;

use std::time::Duration;

use leasehold::measure::{Counter, Histogram};
use leasehold::wire::Trouble;

use crate::answer::{self, Answer};
use crate::refused::Refused;
use crate::route::Route;
use crate::service::{Call, Service};

/// What is asked of the service, by one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Asked {
    Acquire,
    AcquireAll,
    Heartbeat,
    Heartbeats,
    Update,
    Release,
    Break,
    Show,
    List,
    Pass,
    Put,
    Remove,
    Claim,
    Requests,
    /// About the service itself.
    Other,
}

impl Asked {
    const ALL: [Self; 15] = [
        Self::Acquire,
        Self::AcquireAll,
        Self::Heartbeat,
        Self::Heartbeats,
        Self::Update,
        Self::Release,
        Self::Break,
        Self::Show,
        Self::List,
        Self::Pass,
        Self::Put,
        Self::Remove,
        Self::Claim,
        Self::Requests,
        Self::Other,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::AcquireAll => "acquire_all",
            Self::Heartbeat => "heartbeat",
            Self::Heartbeats => "heartbeats",
            Self::Update => "update",
            Self::Release => "release",
            Self::Break => "break",
            Self::Show => "show",
            Self::List => "list",
            Self::Pass => "pass",
            Self::Put => "put",
            Self::Remove => "remove",
            Self::Claim => "claim",
            Self::Requests => "requests",
            Self::Other => "other",
        }
    }
}

impl From<&Route> for Asked {
    fn from(route: &Route) -> Self {
        match route {
            Route::Acquire(_) => Self::Acquire,
            Route::AcquireAll(_) => Self::AcquireAll,
            Route::Heartbeat(..) => Self::Heartbeat,
            Route::Heartbeats => Self::Heartbeats,
            Route::Update(..) => Self::Update,
            Route::Release(..) | Route::ReleaseByNonce(_) => Self::Release,
            Route::Break(_) => Self::Break,
            Route::Show(_) | Route::History(_) => Self::Show,
            Route::List(_) => Self::List,
            Route::Pass(_) => Self::Pass,
            Route::Put(_) => Self::Put,
            Route::Remove(_) => Self::Remove,
            Route::Claim => Self::Claim,
            Route::Requests => Self::Requests,
            Route::Events
            | Route::Metrics
            | Route::Totals
            | Route::Dashboard(_)
            | Route::OpenApi
            | Route::Docs(_)
            | Route::LogIn
            | Route::LogOut
            | Route::WhoAmI
            | Route::Health
            | Route::Ready => Self::Other,
        }
    }
}

/// What the service counts.
pub(crate) struct Metrics {
    /// By what was asked, then by what came of it: fine, or one of the troubles.
    answered: [[Counter; 1 + Trouble::ALL.len()]; Asked::ALL.len()],
    took: [Histogram; Asked::ALL.len()],
    waited: Histogram,
    pub(crate) connected: Counter,
    pub(crate) disconnected: Counter,
    pub(crate) stalled: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            answered: std::array::from_fn(|_| Default::default()),
            took: std::array::from_fn(|_| Histogram::new(Histogram::CALLS)),
            waited: Histogram::new(Histogram::SPANS),
            connected: Counter::default(),
            disconnected: Counter::default(),
            stalled: Counter::default(),
        }
    }

    /// A request was answered.
    pub(crate) fn answered(&self, asked: Asked, trouble: Option<Trouble>, took: Duration) {
        let outcome = trouble.map_or(0, |trouble| 1 + trouble as usize);
        if let Some(count) = self.answered[asked as usize].get(outcome) {
            count.count();
        }
        self.took[asked as usize].took(took);
    }

    /// Requests refused because somebody else had it, or because a gate was shut.
    pub(crate) fn refusals(&self) -> u64 {
        let refused = |trouble: Trouble| -> u64 {
            let outcomes = self.answered.iter();
            let counts = outcomes.filter_map(|counts| counts.get(1 + trouble as usize));
            counts.map(Counter::get).sum()
        };
        refused(Trouble::Held) + refused(Trouble::Throttled)
    }

    /// How many were ready to wait in line, and how long they took together.
    pub(crate) fn waits(&self) -> (u64, Duration) {
        let (_, count, micros) = self.waited.read();
        (count, Duration::from_micros(micros))
    }

    /// Somebody who was ready to wait in line has an answer.
    pub(crate) fn waited(&self, span: Duration) {
        self.waited.took(span);
    }
}

impl Service {
    pub(crate) fn metrics(&self, call: &Call<'_>) -> Result<Answer, Refused> {
        call.query.only(&[])?;
        Ok(answer::text(
            "text/plain; version=0.0.4; charset=utf-8",
            self.page(),
        ))
    }
}
