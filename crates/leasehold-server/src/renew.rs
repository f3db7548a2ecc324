//! Handlers that renew one lease or many, and that update a held lease.

use std::time::Duration;

use leasehold::core::{BootTime, Fence, Name, Operation, Outcome, Renew, Text, Update, limits};
use leasehold::engine::{Reply, WaitLimit};
use leasehold::wire::{
    HeartbeatResult, Heartbeats, HeartbeatsResponse, Lease, MAX_HEARTBEATS, ProblemType,
    ReleaseResponse,
};
use leasehold::{Error, Result, duration, json_bytes};

use crate::access::caller::Caller;
use crate::access::{Right, caller};
use crate::answer::{self, Answer};
use crate::audit::Change;
use crate::body;
use crate::budget::PAGE_BYTES;
use crate::query::Query;
use crate::rejection::Rejection;
use crate::service::{Call, Service, rejection_of};

/// The maximum size of a body of `/heartbeats`.
const HEARTBEATS_BYTES: usize = 1024 * 1024;
/// How long renewing many leases may take without `within`.
const DEFAULT_HEARTBEATS_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum of `within`; longer ones are shortened to it.
const MAX_HEARTBEATS_TIMEOUT: Duration = Duration::from_secs(60);

impl Service {
    pub(crate) async fn heartbeat(
        &self,
        call: Call<'_>,
        name: &Name,
        fence: Fence,
    ) -> Result<Answer, Rejection> {
        call.query.allow_only(&["name", "ttl"])?;
        let operation = Operation::Renew(Renew {
            fence,
            principal: call.caller.principal(),
            ttl: call.query.duration("ttl")?,
        });
        let reply = self
            .perform(&call.caller, name, operation, WaitLimit::NONE)
            .await?;
        renewal_answer(call.arrival, name, reply)
    }

    pub(crate) async fn heartbeats(&self, call: Call<'_>) -> Result<Answer, Rejection> {
        call.query.allow_only(&["within"])?;
        let within = call.query.duration("within")?;
        let within = within
            .unwrap_or(DEFAULT_HEARTBEATS_TIMEOUT)
            .min(MAX_HEARTBEATS_TIMEOUT);
        let text = call
            .body
            .read_text(HEARTBEATS_BYTES, self.config.body_timeout)
            .await?;
        let renewals = parse_heartbeats(&text, call.caller.principal())?;
        self.charge(&call.caller, renewals.len());
        let has_right = |(name, _): &(Name, _)| call.caller.has_right(Right::Acquire, name);
        let allowed: Vec<_> = renewals.iter().map(has_right).collect();
        self.record_refusals(&call.caller, renewals.iter().filter(|one| !has_right(one)));
        let entry = self.begin(&call.caller, || {
            let allowed = renewals.iter().filter(|one| has_right(one));
            let changes = allowed.map(|(name, operation)| Change::of(name, operation));
            changes.collect()
        })?;
        let operations = renewals.into_iter().filter(has_right).collect();
        let replies = self.engine.perform_all(operations, Some(within)).await;
        entry.end(
            replies
                .iter()
                .map(|reply| reply.as_ref().map(Reply::outcome)),
        )?;
        let mut replies = replies.into_iter();
        let replies = allowed.into_iter().map(|allowed| match allowed {
            true => replies.next(),
            false => None,
        });
        let mut left = PAGE_BYTES;
        let leases = replies.map(|reply| match reply {
            Some(reply) => fit(heartbeat_answer(call.arrival, reply), &mut left),
            None => HeartbeatResult::Problem(caller::missing_right(&[Right::Acquire])),
        });
        Ok(answer::ok(&HeartbeatsResponse {
            leases: leases.collect(),
        }))
    }

    /// Records the renewals for which the caller lacks the right.
    fn record_refusals<'a>(
        &self,
        caller: &Caller,
        renewals: impl Iterator<Item = &'a (Name, Operation)>,
    ) {
        if let Some(audit) = &self.config.audit {
            let denied = ProblemType::Denied.as_str();
            renewals.for_each(|(name, _)| audit.refused(caller, "renew", Some(name), denied));
        }
    }

    pub(crate) async fn update(
        &self,
        call: Call<'_>,
        name: &Name,
        fence: Fence,
    ) -> Result<Answer, Rejection> {
        let query = &call.query;
        query.allow_only(&["name", "body", "state", "release"])?;
        let state = query.get("state");
        let then_release = query.flag("release")?.unwrap_or(false);
        let is_kept = is_body_kept(query)?;
        let text = call
            .body
            .read_text(limits::MAX_BODY_BYTES, self.config.body_timeout)
            .await?;
        if is_kept && !text.is_empty() {
            return Err(
                Error::invalid("the request has `body=keep` and a body: give one of them").into(),
            );
        }
        let operation = Operation::Update(Update {
            fence,
            principal: call.caller.principal(),
            body: (!is_kept).then(|| text.into()),
            // An empty label removes the state.
            state: state.map(|label| (!label.is_empty()).then(|| label.into())),
            then_release,
        });
        let reply = self
            .perform(&call.caller, name, operation, WaitLimit::NONE)
            .await?;
        match reply.outcome() {
            Outcome::Completed => Ok(answer::with_reply(
                name,
                reply,
                ReleaseResponse { released: true }.to_json(),
            )),
            _ => renewal_answer(call.arrival, name, reply),
        }
    }
}

fn renewal_answer(arrival: BootTime, name: &Name, reply: Reply) -> Result<Answer, Rejection> {
    match renewed_lease(arrival, &reply) {
        Some(lease) => Ok(answer::with_reply(name, reply, lease.to_json())),
        None => Err(rejection_of(reply)),
    }
}

/// Returns the lease that a reply renews, if it does.
fn renewed_lease(arrival: BootTime, reply: &Reply) -> Option<Lease> {
    match (reply.outcome(), reply.deadline()) {
        (Outcome::Renewed(renewal), Some(deadline)) => {
            Some(Lease::renewed(renewal, arrival, deadline))
        }
        _ => None,
    }
}

/// Returns the answer to one of many heartbeats.
fn heartbeat_answer(arrival: BootTime, reply: Result<Reply>) -> HeartbeatResult {
    let renewed = reply.map_err(Rejection::from).and_then(|reply| {
        let lease = renewed_lease(arrival, &reply);
        let (outcome, _) = reply.take();
        lease.ok_or_else(|| Rejection::outcome(outcome))
    });
    match renewed {
        Ok(lease) => HeartbeatResult::Lease(lease),
        Err(refused) => HeartbeatResult::Problem(refused.document().into_owned()),
    }
}

/// Cuts the body of a lease if it is larger than the bytes that are left; otherwise subtracts its size from them.
fn fit(answer: HeartbeatResult, left: &mut usize) -> HeartbeatResult {
    let HeartbeatResult::Lease(lease) = answer else {
        return answer;
    };
    match left.checked_sub(json_bytes(&lease.body)) {
        Some(rest) => {
            *left = rest;
            HeartbeatResult::Lease(lease)
        }
        None => HeartbeatResult::Lease(lease.cut()),
    }
}

/// Parses the body of `/heartbeats`. Fails if one of the heartbeats is invalid.
fn parse_heartbeats(text: &str, principal: Option<Text>) -> Result<Vec<(Name, Operation)>> {
    let heartbeats: Heartbeats = body::parse_json(text)?;
    if heartbeats.leases.len() > MAX_HEARTBEATS {
        return Err(Error::invalid(format!(
            "the request has {} leases: send at most {MAX_HEARTBEATS} at a time",
            heartbeats.leases.len()
        )));
    }
    let renewals = heartbeats.leases.into_iter().map(|heartbeat| {
        let ttl = heartbeat.ttl.as_deref().map(duration::parse);
        let renew = Renew {
            fence: Fence::new(heartbeat.fence.get()).ok_or_else(|| {
                Error::invalid("the fence is too large: give the fence of the grant")
            })?,
            principal: principal.clone(),
            ttl: ttl.transpose()?,
        };
        Ok((Name::lock(&heartbeat.name)?, Operation::Renew(renew)))
    });
    renewals.collect()
}

fn is_body_kept(query: &Query<'_>) -> Result<bool> {
    match query.get("body") {
        None => Ok(false),
        Some("keep") => Ok(true),
        Some(_) => Err(Error::invalid(
            "the parameter `body` is invalid: give `body=keep`, or send a new body as the request's body",
        )),
    }
}
