//! Handlers that put, remove and claim work items.

use leasehold::core::{Name, Operation, Outcome, Put, limits};
use leasehold::engine::WaitLimit;
use leasehold::wire::{Items, PutResponse, RemoveResponse};
use leasehold::{ClaimRequest, Error, Result};

use crate::access::Right;
use crate::access::caller::Caller;
use crate::acquire;
use crate::answer::{self, Answer};
use crate::audit::Change;
use crate::rejection::Rejection;
use crate::service::{Call, Service, rejection_of};

/// The number of items that a claim without `limit` leases.
const DEFAULT_LIMIT: usize = 10;

impl Service {
    pub(crate) async fn put(&self, call: Call<'_>, name: &Name) -> Result<Answer, Rejection> {
        call.query.allow_only(&["name", "state", "body", "nonce"])?;
        let is_emptied = is_body_emptied(&call)?;
        let state = state(&call)?.into();
        let nonce = call.nonce()?.map(|nonce| nonce.hash(name));
        let text = call
            .body
            .read_text(limits::MAX_BODY_BYTES, self.config.body_timeout)
            .await?;
        if is_emptied && !text.is_empty() {
            return Err(Error::invalid(
                "the request has `body=empty` and a body: give one of them",
            )
            .into());
        }
        let body = (is_emptied || !text.is_empty()).then(|| text.into());
        let operation = Operation::Put(Put { state, body, nonce });
        let reply = self
            .perform(&call.caller, name, operation, WaitLimit::NONE)
            .await?;
        match reply.outcome() {
            Outcome::Put => {
                let json = answer::to_json(&PutResponse { stored: true });
                Ok(answer::with_reply(name, reply, json))
            }
            _ => Err(rejection_of(reply)),
        }
    }

    pub(crate) async fn remove(&self, call: Call<'_>, name: &Name) -> Result<Answer, Rejection> {
        call.query.allow_only(&["name"])?;
        let removing = self.perform(&call.caller, name, Operation::Remove, WaitLimit::NONE);
        let reply = removing.await?;
        match reply.outcome() {
            Outcome::Removed => {
                let json = answer::to_json(&RemoveResponse { removed: true });
                Ok(answer::with_reply(name, reply, json))
            }
            _ => Err(rejection_of(reply)),
        }
    }

    pub(crate) async fn claim(&self, call: Call<'_>) -> Result<Answer, Rejection> {
        let query = &call.query;
        query.allow_only(&["state", "prefix", "limit", "ttl", "owner", "nonce", "wait"])?;
        let ttl = query.duration("ttl")?;
        let limit = query.limit(ClaimRequest::MAX_ITEMS)?;
        let request = ClaimRequest {
            state: state(&call)?.into(),
            prefix: claimable_prefix(&call)?,
            limit: limit.unwrap_or(DEFAULT_LIMIT),
            ttl: ttl.unwrap_or(self.config.default_claim_ttl),
            owner: call.owner(),
            nonce: self.nonce_or_new(&call)?,
            wait: query.wait()?,
        };
        // An unread body would hide that the caller has disconnected.
        let _ = call
            .body
            .read(limits::MAX_BODY_BYTES, self.config.body_timeout)
            .await?;
        let (wait, principal) = (request.wait, call.caller.principal());
        let owner = request.owner.clone();
        let entry = self.begin(&call.caller, || vec![Change::new("claim", None)])?;
        let prefix = request.prefix.clone();
        let claiming = self.engine.claim(request, principal);
        let may_claim = |caller: &Caller| caller.check_prefix(Right::Acquire, &prefix);
        let claimed = self
            .while_entitled(&call.caller, may_claim, claiming)
            .await?;
        self.record_wait(call.arrival, wait).await;
        let claimed = match claimed {
            Ok(claimed) => claimed,
            Err(error) => {
                entry.fail(&error)?;
                return Err(error.into());
            }
        };
        let permit = match self.reserve_answer(call.client_address, &claimed) {
            Ok(permit) => permit,
            Err(refused) => return Err(acquire::record_undelivered(entry, refused)?),
        };
        self.record_grants(entry, &owner, &claimed)?;
        self.charge(&call.caller, claimed.len());
        let items = acquire::granted_leases(call.arrival, &claimed);
        Ok(answer::with_replies(claimed, &Items { items }).with_permit(permit))
    }
}

/// Returns the prefix of the items to claim. The caller has the right to claim all names with this prefix.
fn claimable_prefix(call: &Call<'_>) -> Result<String, Rejection> {
    let prefix = call.query.get("prefix").unwrap_or_default();
    let mut parts = call.caller.narrow(Right::Acquire, prefix)?;
    match (parts.pop(), parts.is_empty()) {
        (Some(prefix), true) => Ok(prefix),
        _ => Err(Error::invalid(
            "the caller's scopes have several prefixes: give one as `prefix=`",
        )
        .into()),
    }
}

/// Returns whether the item's body is emptied. A request without a body leaves it unchanged.
fn is_body_emptied(call: &Call<'_>) -> Result<bool> {
    match call.query.get("body") {
        None => Ok(false),
        Some("empty") => Ok(true),
        Some(_) => Err(Error::invalid(
            "the parameter `body` is invalid: give `body=empty`, or send a new body as the request's body",
        )),
    }
}

fn state<'c>(call: &'c Call<'_>) -> Result<&'c str> {
    let state = call.query.get("state");
    state.ok_or_else(|| Error::invalid("the state is missing: give `state=` with a short label"))
}
