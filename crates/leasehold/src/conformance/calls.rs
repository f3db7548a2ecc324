//! Calls and their outcomes in a form common to the core and to every implementation of [`Leases`].

use std::time::Duration;

use leasehold_core::{
    Acquire, EndReason, Fence, Grant, LastHolder, Mode, Name, Operation, Outcome, Record, Release,
    Renew, Renewal, Update,
};

use super::context::TIMEOUT;
use crate::engine::refusal;
use crate::{
    AcquireOutcome, AcquireRequest, BreakOutcome, BreakRequest, Error, HolderKey, Leases,
    RenewRequest, Result, UpdateOutcome, UpdateRequest,
};

/// A call that both can perform.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Acquire(AcquireRequest),
    Renew(RenewRequest),
    Update(UpdateRequest),
    Release(HolderKey),
    Break(BreakRequest),
}

/// The result of a call without wall-clock times, which differ between the core and a store.
#[derive(Debug, PartialEq)]
pub(super) enum CallOutcome {
    Granted(Fence, Duration, String, Option<String>, Option<LastHolding>),
    Held(String),
    Renewed(Fence, Duration, String),
    Completed,
    Released(bool),
    BreakOutcome(&'static str),
    Refused(&'static str),
}

/// The fence and owner of the last holder, and how its hold ended.
type LastHolding = (Fence, String, &'static str);

impl Call {
    pub(super) fn operation(&self, name: &Name) -> Operation {
        match self.clone() {
            Self::Acquire(request) => Operation::Acquire(Acquire::from(request)),
            Self::Renew(request) => Operation::Renew(Renew {
                fence: request.fence,
                principal: None,
                ttl: request.ttl,
            }),
            Self::Update(request) => Operation::Update(Update {
                fence: request.fence,
                principal: None,
                body: request.body,
                state: request.state,
                then_release: request.then_release,
            }),
            Self::Release(holding) => Operation::Release(Release {
                holder: holding.into_holder_ref(name),
                principal: None,
            }),
            Self::Break(request) => Operation::Break(request.into_break(name)),
        }
    }

    /// Performs the call through an implementation of [`Leases`].
    pub(super) async fn perform(self, leases: &dyn Leases, name: &Name) -> CallOutcome {
        let outcome: Result<CallOutcome> = async {
            Ok(match self {
                Self::Acquire(request) => match leases.acquire(request).await? {
                    AcquireOutcome::Granted(hold) => CallOutcome::granted(&hold.grant),
                    AcquireOutcome::Held(held) => CallOutcome::Held(held.owner.to_string()),
                },
                Self::Renew(request) => {
                    let mut answers = leases.renew(vec![request], TIMEOUT).await;
                    CallOutcome::renewed(&answers.remove(0)?.renewal)
                }
                Self::Update(request) => match leases.update(request).await? {
                    UpdateOutcome::Renewed(renewed) => CallOutcome::renewed(&renewed.renewal),
                    UpdateOutcome::Completed => CallOutcome::Completed,
                },
                Self::Release(holding) => {
                    CallOutcome::Released(leases.release(name, holding).await?)
                }
                Self::Break(request) => {
                    CallOutcome::BreakOutcome(match leases.break_lease(name, request).await? {
                        BreakOutcome::Free => "free",
                        BreakOutcome::Until(_) => "blocked until expiry",
                        BreakOutcome::NotHeld => "not held",
                    })
                }
            })
        }
        .await;
        outcome.unwrap_or_else(|error| CallOutcome::refused(&error))
    }
}

impl CallOutcome {
    /// Converts an outcome of the core.
    pub(super) fn from_core(call: &Call, outcome: Outcome) -> Self {
        match (call, outcome) {
            (Call::Acquire(_), Outcome::Granted(grant)) => Self::granted(&grant),
            (Call::Acquire(_), Outcome::Held(held)) => Self::Held(held.owner.to_string()),
            (_, Outcome::Renewed(renewal)) => Self::renewed(&renewal),
            (_, Outcome::Completed) => Self::Completed,
            (Call::Release(_), Outcome::Released) => Self::Released(true),
            (Call::Release(_), Outcome::NotHeld) => Self::Released(false),
            (_, Outcome::Released | Outcome::Broken { until: None }) => Self::BreakOutcome("free"),
            (_, Outcome::Broken { until: Some(_) }) => Self::BreakOutcome("blocked until expiry"),
            (_, Outcome::NotHeld) => Self::BreakOutcome("not held"),
            (_, other) => Self::refused(&refusal(other)),
        }
    }

    fn granted(grant: &Grant) -> Self {
        let state = grant.state.as_ref().map(|state| state.label.to_string());
        let last = grant.last.as_ref().map(last_holding);
        Self::Granted(grant.fence, grant.ttl, grant.body.to_string(), state, last)
    }

    fn renewed(renewal: &Renewal) -> Self {
        Self::Renewed(renewal.fence, renewal.ttl, renewal.body.to_string())
    }

    fn refused(error: &Error) -> Self {
        Self::Refused(match error {
            Error::Held(_) => "held",
            Error::Fenced => "fenced",
            Error::Expired => "expired",
            Error::Invalid(_) => "invalid",
            Error::Denied(_) => "denied",
            Error::Unavailable(_) => "unavailable",
            Error::Indeterminate(_) => "indeterminate",
            Error::Corrupt(_) => "corrupt",
        })
    }
}

fn last_holding(last: &LastHolder) -> LastHolding {
    let how = match last.how {
        EndReason::Released => "released",
        EndReason::Completed(_) => "completed",
        EndReason::Expired => "expired",
        EndReason::Broken => "broken",
    };
    (last.fence, last.owner.to_string(), how)
}

/// The content of a record without wall-clock times.
#[derive(Debug, PartialEq)]
pub(super) struct RecordSummary {
    fence: Fence,
    body: String,
    state: Option<String>,
    last: Option<LastHolding>,
    holders: Vec<(String, Mode, Duration, Option<String>)>,
}

pub(super) fn summary_of(record: &Record) -> RecordSummary {
    let holders = record.holders.iter().map(|holder| {
        let broken = holder.broken.as_ref().map(ToString::to_string);
        (holder.owner.to_string(), holder.mode, holder.ttl, broken)
    });
    RecordSummary {
        fence: record.fence,
        body: record.body.to_string(),
        state: record.state.as_ref().map(|state| state.label.to_string()),
        last: record.last.as_ref().map(last_holding),
        holders: holders.collect(),
    }
}
