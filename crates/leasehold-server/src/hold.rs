//! Going on holding: one heartbeat, many, and updates.

use std::time::Duration;

use leasehold::core::{BootTime, Fence, Name, Operation, Outcome, Renew, Update, limits};
use leasehold::engine::{Patience, Reply};
use leasehold::wire::{
    HeartbeatAnswer, Heartbeats, HeartbeatsAnswer, Lease, MAX_HEARTBEATS, Problem, Released,
};
use leasehold::{Error, Leases as _, RenewRequest, Result, duration};

use crate::answer::{self, Answer};
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
            principal: None,
            ttl: call.query.duration("ttl")?,
        });
        let reply = self.engine.perform(name, operation, Patience::NONE).await?;
        renewed(call.arrival, reply)
    }

    pub(crate) async fn heartbeats(&self, call: Call<'_>) -> Result<Answer, Refused> {
        call.query.only(&["within"])?;
        let within = call.query.duration("within")?;
        let within = within
            .unwrap_or(HEARTBEATS_WITHIN)
            .min(HEARTBEATS_WITHIN_MOST);
        let text = body::read_text(call.body, HEARTBEATS_BYTES, self.config.body_timeout).await?;
        let renewed = self.engine.renew(heartbeats(&text)?, within).await;
        let leases = renewed.into_iter().map(|renewed| match renewed {
            Ok(renewed) => {
                let deadline = renewed.deadline;
                HeartbeatAnswer::Lease(Lease::renewed(&renewed.renewal, call.arrival, deadline))
            }
            Err(error) => HeartbeatAnswer::Problem(Problem::from(&error)),
        });
        Ok(answer::ok(&HeartbeatsAnswer {
            leases: leases.collect(),
        }))
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
        let text = body::read_text(call.body, limits::BODY_BYTES, self.config.body_timeout).await?;
        if keep && !text.is_empty() {
            return Err(Error::invalid("`body=keep` and a body: give one of them").into());
        }
        let operation = Operation::Update(Update {
            fence,
            principal: None,
            body: (!keep).then(|| text.into()),
            // An empty state is none.
            state: state.map(|label| (!label.is_empty()).then(|| label.into())),
            then_release,
        });
        let reply = self.engine.perform(name, operation, Patience::NONE).await?;
        match reply.outcome() {
            Outcome::Completed => Ok(answer::telling(reply, &Released { released: true })),
            _ => renewed(call.arrival, reply),
        }
    }
}

fn renewed(arrival: BootTime, reply: Reply) -> Result<Answer, Refused> {
    match (reply.outcome(), reply.deadline()) {
        (Outcome::Renewed(renewal), Some(deadline)) => {
            let lease = Lease::renewed(renewal, arrival, deadline);
            Ok(answer::telling(reply, &lease))
        }
        _ => Err(refuse(reply)),
    }
}

/// All of them, or none if one is wrong.
fn heartbeats(text: &str) -> Result<Vec<RenewRequest>> {
    let asked: Heartbeats = body::parse_json(text)?;
    if asked.leases.len() > MAX_HEARTBEATS {
        return Err(Error::invalid(format!(
            "{} leases in one call: at most {MAX_HEARTBEATS} are allowed",
            asked.leases.len()
        )));
    }
    let requests = asked.leases.into_iter().map(|heartbeat| {
        let ttl = heartbeat.ttl.as_deref().map(duration::parse);
        Ok(RenewRequest {
            name: Name::lock(&heartbeat.name)?,
            fence: Fence::new(heartbeat.fence.get())
                .ok_or_else(|| Error::invalid("there is no such fence"))?,
            ttl: ttl.transpose()?,
        })
    });
    requests.collect()
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
