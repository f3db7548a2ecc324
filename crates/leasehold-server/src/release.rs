//! Letting go, and ending somebody's lease.

use leasehold::core::{Break, Fence, HolderRef, Name, Operation, Outcome, Release, limits};
use leasehold::engine::Patience;
use leasehold::wire::{BreakHow, Broken, Released};
use leasehold::{BreakRequest, Error, Result};

use crate::access::Right;
use crate::answer::{self, Answer};
use crate::body;
use crate::refused::Refused;
use crate::route;
use crate::service::{Call, Service, refuse};

impl Service {
    pub(crate) async fn release(
        &self,
        call: Call<'_>,
        name: &Name,
        fence: Option<Fence>,
    ) -> Result<Answer, Refused> {
        let operation = Operation::Release(Release {
            holder: holder(&call, name, fence)?,
            principal: call.caller.principal(),
        });
        let reply = self
            .perform(&call.caller, name, operation, Patience::NONE)
            .await?;
        let released = match reply.outcome() {
            Outcome::Released => true,
            Outcome::NotHeld => false,
            _ => return Err(refuse(reply)),
        };
        Ok(answer::telling(
            name,
            reply,
            Released { released }.to_json(),
        ))
    }

    pub(crate) async fn break_lease(&self, call: Call<'_>, name: &Name) -> Result<Answer, Refused> {
        call.query
            .only(&["name", "fence", "nonce", "force", "reason", "now"])?;
        let parameters = parameters(&call)?;
        let text = call
            .body
            .read_text(limits::MAX_BODY_BYTES, self.config.body_timeout)
            .await?;
        let how = match (parameters, text.trim_ascii().is_empty()) {
            (Some(how), true) => how,
            (None, true) => BreakHow::default(),
            (None, false) => body::parse_json(&text)?,
            (Some(_), false) => {
                return Err(Error::invalid("parameters and a body: give one of them").into());
            }
        };
        let how = match BreakRequest::try_from(how)? {
            BreakRequest::Own(holding) => Break::Own(Release {
                holder: holding.into_holder_ref(name),
                principal: call.caller.principal(),
            }),
            force => force.into_break(name),
        };
        call.caller.check(&[right_to(&how)], name)?;
        let operation = Operation::Break(how);
        let reply = self
            .perform(&call.caller, name, operation, Patience::NONE)
            .await?;
        let (broken, until) = match reply.outcome() {
            Outcome::Released => (true, None),
            Outcome::Broken { until } => (true, *until),
            Outcome::NotHeld => (false, None),
            _ => return Err(refuse(reply)),
        };
        let json = answer::to_json(&Broken { broken, until });
        Ok(answer::telling(name, reply, json))
    }
}

/// The right that it takes to break a lease.
fn right_to(how: &Break) -> Right {
    match how {
        Break::Own(_) => Right::Acquire,
        Break::Force { now: false, .. } => Right::Break,
        Break::Force { now: true, .. } => Right::Admin,
    }
}

/// Whose lease it is: by the fence in the path, or else by the nonce.
fn holder(call: &Call<'_>, name: &Name, fence: Option<Fence>) -> Result<HolderRef> {
    if let Some(fence) = fence {
        call.query.only(&["name"])?;
        return Ok(HolderRef::Fence(fence));
    }
    call.query.only(&["name", "nonce"])?;
    let nonce = call
        .nonce()?
        .ok_or_else(|| Error::invalid("whose? Give the fence in the path, or `nonce=`"))?;
    Ok(HolderRef::Nonce(nonce.hash(name)))
}

/// What the parameters say; `None` if they say nothing.
fn parameters(call: &Call<'_>) -> Result<Option<BreakHow>> {
    let query = &call.query;
    let how = BreakHow {
        fence: query.read("fence", route::fence)?,
        nonce: call.nonce()?.map(|nonce| nonce.expose().to_owned()),
        force: query.flag("force")?.unwrap_or(false),
        reason: query.get("reason").map(Into::into),
        now: query.flag("now")?.unwrap_or(false),
    };
    let says_something =
        how.fence.is_some() || how.nonce.is_some() || how.force || how.reason.is_some() || how.now;
    Ok(says_something.then_some(how))
}
