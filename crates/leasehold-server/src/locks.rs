//! Taking, holding and letting go: the routes that a lease's holder uses.

use leasehold::core::{
    Acquire, BootTime, Fence, Mode, Name, Nonce, Operation, Outcome, Release, Renew, Update, Who,
    limits,
};
use leasehold::duration;
use leasehold::engine::{Patience, Reply, refusal};
use leasehold::wire::{self, MAX_WAIT, NONCE_HEADER, Released};
use leasehold::{Error, Result};

use crate::answer::{self, Answer};
use crate::body;
use crate::query::Query;
use crate::route::{self, Refused};
use crate::service::{Call, Service};

impl Service {
    pub(crate) async fn acquire(&self, call: Call<'_>, name: &Name) -> Result<Answer, Refused> {
        let query = &call.query;
        query.only(&[
            "name", "nonce", "ttl", "wait", "owner", "mode", "limit", "fence",
        ])?;
        let nonce = nonce(&call)?.ok_or_else(|| {
            Error::invalid("the nonce is missing: give `nonce=` with 1 to 64 characters")
        })?;
        let ttl = query.read("ttl", parse_duration)?;
        let operation = Operation::Acquire(Acquire {
            nonce: nonce.hash(),
            owner: query.get("owner").map_or(call.peer.clone(), Into::into),
            principal: None,
            ttl: ttl.unwrap_or(self.config.default_ttl),
            mode: mode(query)?,
            fence: query.read("fence", route::fence)?,
            floor: Fence::default(),
        });
        let patience = Patience {
            wait: wait(query)?,
            within: None,
        };
        // An unread body would hide that the client has gone.
        let _ = body::read(call.body, limits::BODY_BYTES, self.config.body_timeout).await?;
        let reply = self.engine.perform(name, operation, patience).await?;
        match (reply.outcome(), reply.deadline()) {
            (Outcome::Granted(grant), Some(deadline)) => {
                let lease = wire::Lease::granted(grant, call.arrival, deadline);
                Ok(answer::telling(reply, &lease))
            }
            _ => Err(refuse(reply)),
        }
    }

    pub(crate) async fn heartbeat(
        &self,
        call: Call<'_>,
        name: &Name,
        fence: Fence,
    ) -> Result<Answer, Refused> {
        let query = &call.query;
        query.only(&["name", "ttl"])?;
        let operation = Operation::Renew(Renew {
            fence,
            principal: None,
            ttl: query.read("ttl", parse_duration)?,
        });
        let reply = self.engine.perform(name, operation, Patience::NONE).await?;
        renewed(call.arrival, reply)
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

    pub(crate) async fn release(
        &self,
        call: Call<'_>,
        name: &Name,
        fence: Option<Fence>,
    ) -> Result<Answer, Refused> {
        let query = &call.query;
        let who = match fence {
            Some(fence) => {
                query.only(&["name"])?;
                Who::Fence(fence)
            }
            None => {
                query.only(&["name", "nonce"])?;
                let nonce = nonce(&call)?.ok_or_else(|| {
                    Error::invalid("release by `/locks/{name}/{fence}`, or give `nonce=`")
                })?;
                Who::Nonce(nonce.hash())
            }
        };
        let operation = Operation::Release(Release {
            who,
            principal: None,
        });
        let reply = self.engine.perform(name, operation, Patience::NONE).await?;
        let released = match reply.outcome() {
            Outcome::Released => true,
            Outcome::NotHeld => false,
            _ => return Err(refuse(reply)),
        };
        Ok(answer::telling(reply, &Released { released }))
    }
}

fn renewed(arrival: BootTime, reply: Reply) -> Result<Answer, Refused> {
    match (reply.outcome(), reply.deadline()) {
        (Outcome::Renewed(renewal), Some(deadline)) => {
            let lease = wire::Lease::renewed(renewal, arrival, deadline);
            Ok(answer::telling(reply, &lease))
        }
        _ => Err(refuse(reply)),
    }
}

/// An outcome that is a refusal for whoever asked.
pub(crate) fn refuse(reply: Reply) -> Refused {
    refusal(reply.take().0).into()
}

/// The nonce, from the URL or from its header.
pub(crate) fn nonce(call: &Call<'_>) -> Result<Option<Nonce>> {
    let query = &call.query;
    let mut headers = call.headers.get_all(NONCE_HEADER).into_iter();
    let header = headers.next();
    if headers.next().is_some() || (header.is_some() && query.has("nonce")) {
        return Err(Error::invalid("the nonce is there twice: give it once"));
    }
    let text = match header {
        None => query.get("nonce"),
        Some(value) => Some(
            std::str::from_utf8(value.as_bytes())
                .map_err(|_| Error::invalid("the nonce in the header is not UTF-8"))?,
        ),
    };
    Ok(text.map(Nonce::new).transpose()?)
}

pub(crate) fn parse_duration(text: &str) -> Result<std::time::Duration> {
    Ok(duration::parse(text)?)
}

fn wait(query: &Query<'_>) -> Result<std::time::Duration> {
    let wait = query.read("wait", parse_duration)?.unwrap_or_default();
    if wait > MAX_WAIT {
        return Err(Error::invalid("the wait is over the maximum of 24 hours"));
    }
    Ok(wait)
}

fn mode(query: &Query<'_>) -> Result<Mode> {
    let limit = query.read("limit", |text| {
        text.parse()
            .map_err(|_| Error::invalid("the limit is not a whole number from 1 to 256"))
    })?;
    match (query.get("mode"), limit) {
        (Some("shared"), limit) => Ok(Mode::Shared { limit }),
        (None | Some("exclusive"), None) => Ok(Mode::Exclusive),
        (None | Some("exclusive"), Some(_)) => Err(Error::invalid(
            "only a shared lease has a limit: give `mode=shared`",
        )),
        (Some(_), _) => Err(Error::invalid("the mode is `exclusive` or `shared`")),
    }
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
