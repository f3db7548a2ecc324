//! Handlers that release a lease, and break one.

use leasehold::core::{Break, Fence, HolderRef, Name, Operation, Outcome, Release, limits};
use leasehold::engine::WaitLimit;
use leasehold::wire::{BreakOptions, BreakResponse, ReleaseResponse};
use leasehold::{BreakRequest, Error, Result};

use crate::access::Right;
use crate::answer::{self, Answer};
use crate::body;
use crate::rejection::Rejection;
use crate::route;
use crate::service::{Call, Service, rejection_of};

impl Service {
    pub(crate) async fn release(
        &self,
        call: Call<'_>,
        name: &Name,
        fence: Option<Fence>,
    ) -> Result<Answer, Rejection> {
        let operation = Operation::Release(Release {
            holder: holder(&call, name, fence)?,
            principal: call.caller.principal(),
        });
        let reply = self
            .perform(&call.caller, name, operation, WaitLimit::NONE)
            .await?;
        let released = match reply.outcome() {
            Outcome::Released => true,
            Outcome::NotHeld => false,
            _ => return Err(rejection_of(reply)),
        };
        Ok(answer::with_reply(
            name,
            reply,
            ReleaseResponse { released }.to_json(),
        ))
    }

    pub(crate) async fn break_lease(
        &self,
        call: Call<'_>,
        name: &Name,
    ) -> Result<Answer, Rejection> {
        call.query
            .allow_only(&["name", "fence", "nonce", "force", "reason", "now"])?;
        let parameters = parameters(&call)?;
        let text = call
            .body
            .read_text(limits::MAX_BODY_BYTES, self.config.body_timeout)
            .await?;
        let how = match (parameters, text.trim_ascii().is_empty()) {
            (Some(how), true) => how,
            (None, true) => BreakOptions::default(),
            (None, false) => body::parse_json(&text)?,
            (Some(_), false) => {
                return Err(Error::invalid(
                    "the request has parameters and a body: give one of them",
                )
                .into());
            }
        };
        let how = match BreakRequest::try_from(how)? {
            BreakRequest::Own(holding) => Break::Own(Release {
                holder: holding.into_holder_ref(name),
                principal: call.caller.principal(),
            }),
            force => force.into_break(name),
        };
        call.caller.check(&[required_right(&how)], name)?;
        let operation = Operation::Break(how);
        let reply = self
            .perform(&call.caller, name, operation, WaitLimit::NONE)
            .await?;
        let (broken, until) = match reply.outcome() {
            Outcome::Released => (true, None),
            Outcome::Broken { until } => (true, *until),
            Outcome::NotHeld => (false, None),
            _ => return Err(rejection_of(reply)),
        };
        let json = answer::to_json(&BreakResponse { broken, until });
        Ok(answer::with_reply(name, reply, json))
    }
}

/// Returns the right that a break requires.
fn required_right(how: &Break) -> Right {
    match how {
        Break::Own(_) => Right::Acquire,
        Break::Force { now: false, .. } => Right::Break,
        Break::Force { now: true, .. } => Right::Admin,
    }
}

/// Returns the holder that the fence in the path or the nonce identifies.
fn holder(call: &Call<'_>, name: &Name, fence: Option<Fence>) -> Result<HolderRef> {
    if let Some(fence) = fence {
        call.query.allow_only(&["name"])?;
        return Ok(HolderRef::Fence(fence));
    }
    call.query.allow_only(&["name", "nonce"])?;
    let nonce = call.nonce()?.ok_or_else(|| {
        Error::invalid("the holder is missing: give its fence in the path, or `nonce=`")
    })?;
    Ok(HolderRef::Nonce(nonce.hash(name)))
}

/// Returns the break that the parameters describe; `None` without parameters.
fn parameters(call: &Call<'_>) -> Result<Option<BreakOptions>> {
    let query = &call.query;
    let how = BreakOptions {
        fence: query.read("fence", route::fence)?,
        nonce: call.nonce()?.map(|nonce| nonce.expose().to_owned()),
        force: query.flag("force")?.unwrap_or(false),
        reason: query.get("reason").map(Into::into),
        now: query.flag("now")?.unwrap_or(false),
    };
    let has_any =
        how.fence.is_some() || how.nonce.is_some() || how.force || how.reason.is_some() || how.now;
    Ok(has_any.then_some(how))
}
