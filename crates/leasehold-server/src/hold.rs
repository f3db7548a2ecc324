//! Going on holding: one heartbeat, many, and updates.

use std::time::Duration;

use leasehold::core::{BootTime, Fence, Name, Operation, Outcome, Renew, Text, Update, limits};
use leasehold::engine::{Patience, Reply};
use leasehold::wire::{
    HeartbeatAnswer, Heartbeats, HeartbeatsAnswer, Lease, MAX_HEARTBEATS, Released, Trouble,
};
use leasehold::{Error, Result, duration};

use crate::access::caller::Caller;
use crate::access::{Right, caller};
use crate::answer::{self, Answer};
use crate::audit::Change;
use crate::body;
use crate::query::Query;
use crate::refused::Refused;
use crate::service::{Call, Service, refuse};

/// Bytes of a call of `/heartbeats`.
const HEARTBEATS_BYTES: usize = 1024 * 1024;
/// How long renewing many may take when the caller does not say…
const HEARTBEATS_WITHIN: Duration = Duration::from_secs(5);
/// …and at most.
const HEARTBEATS_WITHIN_MOST: Duration = Duration::from_secs(60);

impl Service {
    pub(crate) async fn heartbeat(
        &self,
        call: Call<'_>,
        name: &Name,
        fence: Fence,
    ) -> Result<Answer, Refused> {
        call.query.only(&["name", "ttl"])?;
        let operation = Operation::Renew(Renew {
            fence,
            principal: call.caller.principal(),
            ttl: call.query.duration("ttl")?,
        });
        let reply = self
            .perform(&call.caller, name, operation, Patience::NONE)
            .await?;
        renewed(call.arrival, name, reply)
    }

    pub(crate) async fn heartbeats(&self, call: Call<'_>) -> Result<Answer, Refused> {
        call.query.only(&["within"])?;
        let within = call.query.duration("within")?;
        let within = within
            .unwrap_or(HEARTBEATS_WITHIN)
            .min(HEARTBEATS_WITHIN_MOST);
        let text = call
            .body
            .read_text(HEARTBEATS_BYTES, self.config.body_timeout)
            .await?;
        let asked = heartbeats(&text, call.caller.principal())?;
        self.charge(&call.caller, asked.len());
        let may = |(name, _): &(Name, _)| call.caller.may(Right::Acquire, name);
        let allowed: Vec<_> = asked.iter().map(may).collect();
        self.refuse_renewals(&call.caller, asked.iter().filter(|one| !may(one)));
        let entry = self.begin(&call.caller, || {
            let allowed = asked.iter().filter(|one| may(one));
            let changes = allowed.map(|(name, operation)| Change::of(name, operation));
            changes.collect()
        })?;
        let operations = asked.into_iter().filter(may).collect();
        let answers = self.engine.perform_all(operations, Some(within)).await;
        entry.end(answers.iter().map(|came| came.as_ref().map(Reply::outcome)))?;
        let mut answers = answers.into_iter();
        let answers = allowed.into_iter().map(|allowed| match allowed {
            true => answers.next(),
            false => None,
        });
        let leases = answers.map(|answer| match answer {
            Some(answer) => told(call.arrival, answer),
            None => HeartbeatAnswer::Problem(caller::missing(&[Right::Acquire])),
        });
        Ok(answer::ok(&HeartbeatsAnswer {
            leases: leases.collect(),
        }))
    }

    /// Records the renewals that the caller may not ask for.
    fn refuse_renewals<'a>(
        &self,
        caller: &Caller,
        renewals: impl Iterator<Item = &'a (Name, Operation)>,
    ) {
        if let Some(audit) = &self.config.audit {
            let denied = Trouble::Denied.as_str();
            renewals.for_each(|(name, _)| audit.refused(caller, "renew", Some(name), denied));
        }
    }

    pub(crate) async fn update(
        &self,
        call: Call<'_>,
        name: &Name,
        fence: Fence,
    ) -> Result<Answer, Refused> {
        let query = &call.query;
        query.only(&["name", "body", "state", "release"])?;
        let state = query.get("state");
        let then_release = query.flag("release")?.unwrap_or(false);
        let keep = keep_body(query)?;
        let text = call
            .body
            .read_text(limits::MAX_BODY_BYTES, self.config.body_timeout)
            .await?;
        if keep && !text.is_empty() {
            return Err(Error::invalid("`body=keep` and a body: give one of them").into());
        }
        let operation = Operation::Update(Update {
            fence,
            principal: call.caller.principal(),
            body: (!keep).then(|| text.into()),
            // An empty state is none.
            state: state.map(|label| (!label.is_empty()).then(|| label.into())),
            then_release,
        });
        let reply = self
            .perform(&call.caller, name, operation, Patience::NONE)
            .await?;
        match reply.outcome() {
            Outcome::Completed => Ok(answer::telling(
                name,
                reply,
                Released { released: true }.to_json(),
            )),
            _ => renewed(call.arrival, name, reply),
        }
    }
}

fn renewed(arrival: BootTime, name: &Name, reply: Reply) -> Result<Answer, Refused> {
    match lease(arrival, &reply) {
        Some(lease) => Ok(answer::telling(name, reply, lease.to_json())),
        None => Err(refuse(reply)),
    }
}

/// A lease that goes on, as it is told.
fn lease(arrival: BootTime, reply: &Reply) -> Option<Lease> {
    match (reply.outcome(), reply.deadline()) {
        (Outcome::Renewed(renewal), Some(deadline)) => {
            Some(Lease::renewed(renewal, arrival, deadline))
        }
        _ => None,
    }
}

/// What one of many is told.
fn told(arrival: BootTime, answer: Result<Reply>) -> HeartbeatAnswer {
    let told = answer.map_err(Refused::from).and_then(|reply| {
        let lease = lease(arrival, &reply);
        let (outcome, _) = reply.take();
        lease.ok_or_else(|| Refused::outcome(outcome))
    });
    match told {
        Ok(lease) => HeartbeatAnswer::Lease(lease),
        Err(refused) => HeartbeatAnswer::Problem(refused.document().into_owned()),
    }
}

/// All of them, or none if one is wrong.
fn heartbeats(text: &str, principal: Option<Text>) -> Result<Vec<(Name, Operation)>> {
    let asked: Heartbeats = body::parse_json(text)?;
    if asked.leases.len() > MAX_HEARTBEATS {
        return Err(Error::invalid(format!(
            "{} leases in one call: at most {MAX_HEARTBEATS} are allowed",
            asked.leases.len()
        )));
    }
    let renewals = asked.leases.into_iter().map(|heartbeat| {
        let ttl = heartbeat.ttl.as_deref().map(duration::parse);
        let renew = Renew {
            fence: Fence::new(heartbeat.fence.get())
                .ok_or_else(|| Error::invalid("there is no such fence"))?,
            principal: principal.clone(),
            ttl: ttl.transpose()?,
        };
        Ok((Name::lock(&heartbeat.name)?, Operation::Renew(renew)))
    });
    renewals.collect()
}

fn keep_body(query: &Query<'_>) -> Result<bool> {
    match query.get("body") {
        None => Ok(false),
        Some("keep") => Ok(true),
        Some(_) => Err(Error::invalid(
            "`body=keep` leaves the body as it is; a new one is sent as the request's body",
        )),
    }
}
