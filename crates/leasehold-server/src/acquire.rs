//! Taking a lease.

use std::time::Duration;

use leasehold::core::{Acquire, Fence, Mode, Name, Operation, Outcome, limits};
use leasehold::engine::Patience;
use leasehold::wire::{Lease, MAX_WAIT};
use leasehold::{Error, Result};

use crate::answer::{self, Answer};
use crate::body;
use crate::query::Query;
use crate::route::{self, Refused};
use crate::service::{Call, Service, refuse};

impl Service {
    pub(crate) async fn acquire(&self, call: Call<'_>, name: &Name) -> Result<Answer, Refused> {
        let query = &call.query;
        query.only(&[
            "name", "nonce", "ttl", "wait", "owner", "mode", "limit", "fence",
        ])?;
        let nonce = call.nonce()?.ok_or_else(|| {
            Error::invalid("the nonce is missing: give `nonce=` with 1 to 64 characters")
        })?;
        let ttl = query.duration("ttl")?;
        let operation = Operation::Acquire(Acquire {
            nonce: nonce.hash(),
            owner: query.get("owner").map_or(call.peer.clone(), Into::into),
            principal: None,
            ttl: ttl.unwrap_or(self.config.default_ttl),
            mode: mode(query)?,
            fence: query.read("fence", route::fence)?,
            floor: Fence::default(),
            in_state: None,
        });
        let patience = Patience {
            wait: wait(query)?,
            within: None,
        };
        // An unread body would hide that the caller has gone.
        let _ = body::read(call.body, limits::BODY_BYTES, self.config.body_timeout).await?;
        let reply = self.engine.perform(name, operation, patience).await?;
        match (reply.outcome(), reply.deadline()) {
            (Outcome::Granted(grant), Some(deadline)) => {
                let lease = Lease::granted(grant, call.arrival, deadline);
                Ok(answer::telling(reply, &lease))
            }
            _ => Err(refuse(reply)),
        }
    }
}

fn wait(query: &Query<'_>) -> Result<Duration> {
    let wait = query.duration("wait")?.unwrap_or_default();
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
