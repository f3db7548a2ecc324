//! Looking at leases, ending somebody's, and renewing many at once.

use std::time::Duration;

use leasehold::core::{Fence, Name, Operation, Outcome, limits};
use leasehold::engine::Patience;
use leasehold::wire::{
    BreakHow, Broken, HeartbeatAnswer, Heartbeats, HeartbeatsAnswer, Lease, LockView, Locks,
    MAX_HEARTBEATS, MAX_PAGE, Problem,
};
use leasehold::{BreakRequest, Error, Leases as _, ListRequest, RenewRequest, Result};
use serde::Deserialize;

use crate::answer::{self, Answer};
use crate::body;
use crate::locks::{nonce, parse_duration, refuse};
use crate::route::{self, Refused};
use crate::service::{Call, Service};

/// Bytes of a call of `/heartbeats`.
const HEARTBEATS_BYTES: usize = 1024 * 1024;

impl Service {
    pub(crate) async fn show(&self, call: Call<'_>, name: &Name) -> Result<Answer, Refused> {
        call.query.only(&["name"])?;
        match self.engine.show(name).await? {
            Some(view) => Ok(answer::ok(&LockView::new(name, &view))),
            None => Err(Refused::Problem(Box::new(Problem::unknown(name)))),
        }
    }

    pub(crate) async fn list(&self, call: Call<'_>) -> Result<Answer, Refused> {
        let query = &call.query;
        query.only(&["prefix", "state", "held", "cursor", "limit"])?;
        let limit = query.read("limit", |text| match text.parse() {
            Ok(limit @ 1..=MAX_PAGE) => Ok(limit),
            _ => Err(Error::invalid(format!(
                "the limit is not a whole number from 1 to {MAX_PAGE}"
            ))),
        })?;
        let listing = self
            .engine
            .list(ListRequest {
                gates: false,
                prefix: query.get("prefix").unwrap_or_default().to_owned(),
                state: query.get("state").map(Into::into),
                held: query.flag("held")?,
                cursor: query.get("cursor").map(Into::into),
                limit: limit.unwrap_or_default(),
            })
            .await?;
        let locks = listing.leases.iter();
        Ok(answer::ok(&Locks {
            locks: locks
                .map(|(name, view)| LockView::new(name, view))
                .collect(),
            cursor: listing.cursor,
        }))
    }

    pub(crate) async fn break_lease(&self, call: Call<'_>, name: &Name) -> Result<Answer, Refused> {
        let query = &call.query;
        query.only(&["name", "fence", "nonce", "force", "reason", "now"])?;
        let asked = break_parameters(&call)?;
        let text = body::read_text(call.body, limits::BODY_BYTES, self.config.body_timeout).await?;
        let asked = match (asked, text.trim_ascii().is_empty()) {
            (Some(asked), true) => asked,
            (None, true) => BreakHow::default(),
            (None, false) => parse_json(&text)?,
            (Some(_), false) => {
                return Err(Error::invalid("parameters and a body: give one of them").into());
            }
        };
        let request = BreakRequest::try_from(asked)?;
        let reply = self
            .engine
            .perform(name, Operation::Break(request.into()), Patience::NONE)
            .await?;
        let (broken, until) = match reply.outcome() {
            Outcome::Released => (true, None),
            Outcome::Broken { until } => (true, *until),
            Outcome::NotHeld => (false, None),
            _ => return Err(refuse(reply)),
        };
        Ok(answer::telling(reply, &Broken { broken, until }))
    }

    pub(crate) async fn heartbeats(&self, call: Call<'_>) -> Result<Answer, Refused> {
        let query = &call.query;
        query.only(&["within"])?;
        let within = query
            .read("within", parse_duration)?
            .unwrap_or(RENEW_WITHIN);
        let text = body::read_text(call.body, HEARTBEATS_BYTES, self.config.body_timeout).await?;
        let asked: Heartbeats = parse_json(&text)?;
        if asked.leases.len() > MAX_HEARTBEATS {
            return Err(Error::invalid(format!(
                "{} leases in one call: at most {MAX_HEARTBEATS} are allowed",
                asked.leases.len()
            ))
            .into());
        }
        let requests = asked.leases.iter().map(|heartbeat| {
            Ok(RenewRequest {
                name: Name::lock(&heartbeat.name)?,
                fence: Fence::new(heartbeat.fence.get())
                    .ok_or_else(|| Error::invalid("there is no such fence"))?,
                ttl: heartbeat.ttl.as_deref().map(parse_duration).transpose()?,
            })
        });
        let requests = requests.collect::<Result<Vec<_>>>()?;
        let renewed = self.engine.renew(requests, within).await;
        let leases = renewed.into_iter().map(|renewed| match renewed {
            Ok(renewed) => HeartbeatAnswer::Lease(Lease::renewed(
                &renewed.renewal,
                call.arrival,
                renewed.deadline,
            )),
            Err(error) => HeartbeatAnswer::Problem(Problem::from(&error)),
        });
        Ok(answer::ok(&HeartbeatsAnswer {
            leases: leases.collect(),
        }))
    }
}

/// How long renewing many may take when the caller does not say.
const RENEW_WITHIN: Duration = Duration::from_secs(5);

fn parse_json<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|error| Error::invalid(format!("the request's body is not as expected: {error}")))
}

/// What the parameters say; `None` if they say nothing.
fn break_parameters(call: &Call<'_>) -> Result<Option<BreakHow>> {
    let query = &call.query;
    let how = BreakHow {
        fence: query.read("fence", route::fence)?,
        nonce: nonce(call)?.map(|nonce| nonce.expose().to_owned()),
        force: query.flag("force")?.unwrap_or(false),
        reason: query.get("reason").map(Into::into),
        now: query.flag("now")?.unwrap_or(false),
    };
    let says_something =
        how.fence.is_some() || how.nonce.is_some() || how.force || how.reason.is_some() || how.now;
    Ok(says_something.then_some(how))
}
