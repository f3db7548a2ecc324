//! Metrics for Prometheus: `GET /metrics`.
//!
//! A request costs a few additions. Everything else is computed when the page is requested.

mod page;
mod text;

use std::time::Duration;

use leasehold::measure::{Counter, Histogram};
use leasehold::wire::ProblemType;

use crate::answer::{self, Answer};
use crate::rejection::Rejection;
use crate::route::Route;
use crate::service::{Call, Service};

/// The kind of a request, for metrics, traces and the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum RequestKind {
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
    /// A request about the service itself, or an unknown route.
    Other,
}

impl RequestKind {
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

impl From<&Route> for RequestKind {
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

/// Counters and histograms of requests and connections.
pub(crate) struct Metrics {
    /// By request kind, then by outcome: success first, then each problem type.
    answered: [[Counter; 1 + ProblemType::ALL.len()]; RequestKind::ALL.len()],
    durations: [Histogram; RequestKind::ALL.len()],
    /// Durations of requests with `wait=`.
    waits: Histogram,
    pub(crate) connected: Counter,
    pub(crate) disconnected: Counter,
    pub(crate) stalled: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            answered: std::array::from_fn(|_| Default::default()),
            durations: std::array::from_fn(|_| Histogram::new(Histogram::CALLS)),
            waits: Histogram::new(Histogram::SPANS),
            connected: Counter::default(),
            disconnected: Counter::default(),
            stalled: Counter::default(),
        }
    }

    /// Counts an answered request.
    pub(crate) fn answered(
        &self,
        kind: RequestKind,
        problem: Option<ProblemType>,
        duration: Duration,
    ) {
        let outcome = problem.map_or(0, |problem| 1 + problem as usize);
        if let Some(count) = self.answered[kind as usize].get(outcome) {
            count.count();
        }
        self.durations[kind as usize].took(duration);
    }

    /// Returns how many requests were refused because the lease was held or the gate was shut.
    pub(crate) fn refusals(&self) -> u64 {
        let refused = |problem: ProblemType| -> u64 {
            let outcomes = self.answered.iter();
            let counts = outcomes.filter_map(|counts| counts.get(1 + problem as usize));
            counts.map(Counter::get).sum()
        };
        refused(ProblemType::Held) + refused(ProblemType::Throttled)
    }

    /// Returns how many requests with `wait=` were answered, and the sum of their durations.
    pub(crate) fn waits(&self) -> (u64, Duration) {
        let (_, count, micros) = self.waits.read();
        (count, Duration::from_micros(micros))
    }

    /// Counts an answered request with `wait=`.
    pub(crate) fn waited(&self, duration: Duration) {
        self.waits.took(duration);
    }
}

impl Service {
    pub(crate) fn metrics(&self, call: &Call<'_>) -> Result<Answer, Rejection> {
        call.query.allow_only(&[])?;
        Ok(answer::text(
            "text/plain; version=0.0.4; charset=utf-8",
            self.page(),
        ))
    }
}
