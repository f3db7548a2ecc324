//! Calls and answers in a form that the pure core and an implementation of [`Leases`] have in common.

use std::time::Duration;

use leasehold_core::{
    Acquire, EndReason, Fence, Grant, LastHolder, Mode, Name, Operation, Outcome, Record, Release,
    Renew, Renewal, Update,
};

use super::bench::PATIENT;
use crate::engine::refusal;
use crate::{
    AcquireRequest, Acquired, BreakRequest, Broke, Error, Holding, Leases, RenewRequest, Result,
    UpdateRequest, Updated,
};

/// A call as both understand it.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Acquire(AcquireRequest),
    Renew(RenewRequest),
    Update(UpdateRequest),
    Release(Holding),
    Break(BreakRequest),
}

/// What both must agree in: everything but the time of day.
#[derive(Debug, PartialEq)]
pub(super) enum Told {
    Granted(Fence, Duration, String, Option<String>, Option<LastOne>),
    Held(String),
    Renewed(Fence, Duration, String),
    Completed,
    Released(bool),
    Broke(&'static str),
    Refused(&'static str),
}

/// Its fence, its owner, and in which way it ended.
type LastOne = (Fence, String, &'static str);

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

    /// What leases say to it.
    pub(super) async fn perform(self, leases: &dyn Leases, name: &Name) -> Told {
        let told: Result<Told> = async {
            Ok(match self {
                Self::Acquire(request) => match leases.acquire(request).await? {
                    Acquired::Granted(hold) => Told::granted(&hold.grant),
                    Acquired::Held(held) => Told::Held(held.owner.to_string()),
                },
                Self::Renew(request) => {
                    let mut answers = leases.renew(vec![request], PATIENT).await;
                    Told::renewed(&answers.remove(0)?.renewal)
                }
                Self::Update(request) => match leases.update(request).await? {
                    Updated::Renewed(renewed) => Told::renewed(&renewed.renewal),
                    Updated::Completed => Told::Completed,
                },
                Self::Release(holding) => Told::Released(leases.release(name, holding).await?),
                Self::Break(request) => {
                    Told::Broke(match leases.break_lease(name, request).await? {
                        Broke::Free => "free",
                        Broke::Until(_) => "in the way",
                        Broke::NotHeld => "not held",
                    })
                }
            })
        }
        .await;
        told.unwrap_or_else(|error| Told::refused(&error))
    }
}

impl Told {
    /// What the core says to it.
    pub(super) fn of_core(call: &Call, outcome: Outcome) -> Self {
        match (call, outcome) {
            (Call::Acquire(_), Outcome::Granted(grant)) => Self::granted(&grant),
            (Call::Acquire(_), Outcome::Held(held)) => Self::Held(held.owner.to_string()),
            (_, Outcome::Renewed(renewal)) => Self::renewed(&renewal),
            (_, Outcome::Completed) => Self::Completed,
            (Call::Release(_), Outcome::Released) => Self::Released(true),
            (Call::Release(_), Outcome::NotHeld) => Self::Released(false),
            (_, Outcome::Released | Outcome::Broken { until: None }) => Self::Broke("free"),
            (_, Outcome::Broken { until: Some(_) }) => Self::Broke("in the way"),
            (_, Outcome::NotHeld) => Self::Broke("not held"),
            (_, other) => Self::refused(&refusal(other)),
        }
    }

    fn granted(grant: &Grant) -> Self {
        let state = grant.state.as_ref().map(|state| state.label.to_string());
        let last = grant.last.as_ref().map(last_one);
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

fn last_one(last: &LastHolder) -> LastOne {
    let how = match last.how {
        EndReason::Released => "released",
        EndReason::Completed(_) => "completed",
        EndReason::Expired => "expired",
        EndReason::Broken => "broken",
    };
    (last.fence, last.owner.to_string(), how)
}

/// What a record shows, but for the time of day.
#[derive(Debug, PartialEq)]
pub(super) struct Shown {
    fence: Fence,
    body: String,
    state: Option<String>,
    last: Option<LastOne>,
    holders: Vec<(String, Mode, Duration, Option<String>)>,
}

pub(super) fn shown_of(record: &Record) -> Shown {
    let holders = record.holders.iter().map(|holder| {
        let broken = holder.broken.as_ref().map(ToString::to_string);
        (holder.owner.to_string(), holder.mode, holder.ttl, broken)
    });
    Shown {
        fence: record.fence,
        body: record.body.to_string(),
        state: record.state.as_ref().map(|state| state.label.to_string()),
        last: record.last.as_ref().map(last_one),
        holders: holders.collect(),
    }
}
