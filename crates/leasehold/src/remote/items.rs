//! Acquisition of several leases in one call, and work items.

use std::time::Duration;

use hyper::Method;
use hyper::body::Bytes;
use leasehold_core::{Kind, Name};

use super::leases::json;
use super::{ANSWER_TIMEOUT, Remote, RetryPolicy, ServiceCall, ServiceResponse, remaining_wait};
use crate::leases::{AcquireAllOutcome, AcquireAllRequest, ClaimRequest, NamedHold, PutRequest};
use crate::wire::{
    Items, MAX_WAIT, NamedLease, NamedLeases, Names, ProblemType, PutResponse, RemoveResponse,
};
use crate::{Error, Result, duration};

impl Remote {
    pub(super) async fn acquire_several(
        &self,
        request: AcquireAllRequest,
    ) -> Result<AcquireAllOutcome> {
        require_locks(&request.names)?;
        let wait = request.wait.min(MAX_WAIT);
        let names = request.names.iter().map(|name| name.as_str().into());
        // In the body, because many long names exceed the limit of a URL.
        let body = json(&Names {
            names: names.collect(),
        });
        let response = self
            .perform(RetryPolicy::Idempotent, wait + ANSWER_TIMEOUT, |elapsed| {
                let target = self
                    .inner
                    .url
                    .route("/locks")
                    .with("ttl", &duration::format(request.ttl))
                    .with("owner", &request.owner)
                    .with("wait", &duration::format(remaining_wait(wait, elapsed)));
                ServiceCall {
                    nonce: Some(request.nonce.clone()),
                    body: body.clone(),
                    ..ServiceCall::new(Method::POST, target)
                }
            })
            .await?;
        if let Ok(problem) = response.problem(&self.inner.url)
            && problem.problem_type == ProblemType::Held
            && let Some(name) = &problem.name
        {
            let name = Name::lock(name)?;
            if let Error::Held(held) = problem.into() {
                return Ok(AcquireAllOutcome::Held(name, held));
            }
        }
        let granted: NamedLeases = self.parse(&response)?;
        self.to_claimed(granted.leases, &response)
            .map(AcquireAllOutcome::Granted)
    }

    /// Claims items. Never retried, because the items of a lost answer are unknown. They can be claimed again after
    /// their ttl.
    pub(super) async fn claim_items(&self, request: ClaimRequest) -> Result<Vec<NamedHold>> {
        let wait = request.wait.min(MAX_WAIT);
        let response = self
            .perform(RetryPolicy::Never, wait + ANSWER_TIMEOUT, |elapsed| {
                self.claim_call(&request, remaining_wait(wait, elapsed))
            })
            .await?;
        let claimed: Items = self.parse(&response)?;
        self.to_claimed(claimed.items, &response)
    }

    /// Puts an item. Never retried, not even with a nonce: an item keeps only the nonce of its last put, so a late copy
    /// would overwrite a later put.
    pub(super) async fn put_item(&self, request: PutRequest) -> Result<()> {
        require_locks([&request.name])?;
        let response = self
            .perform(RetryPolicy::Never, ANSWER_TIMEOUT, |_| {
                let target = self.inner.url.item(&request.name);
                let mut target = target.with("state", &request.state);
                // A request without a body keeps the item's body.
                if request.body.as_deref() == Some("") {
                    target = target.with("body", "empty");
                }
                let body = request.body.as_deref().unwrap_or_default();
                ServiceCall {
                    nonce: request.nonce.clone(),
                    body: Bytes::copy_from_slice(body.as_bytes()),
                    ..ServiceCall::batchable(Method::PUT, target)
                }
            })
            .await?;
        self.parse::<PutResponse>(&response).map(drop)
    }

    pub(super) async fn remove_item(&self, name: &Name) -> Result<()> {
        require_locks([name])?;
        let response = self
            .perform(RetryPolicy::Never, ANSWER_TIMEOUT, |_| {
                ServiceCall::batchable(Method::DELETE, self.inner.url.item(name))
            })
            .await?;
        self.parse::<RemoveResponse>(&response).map(drop)
    }

    fn claim_call(&self, request: &ClaimRequest, wait: Duration) -> ServiceCall {
        let mut target = self
            .inner
            .url
            .route("/claims")
            .with("state", &request.state)
            .with("limit", &request.limit.to_string())
            .with("ttl", &duration::format(request.ttl))
            .with("owner", &request.owner);
        if !request.prefix.is_empty() {
            target = target.with("prefix", &request.prefix);
        }
        if !wait.is_zero() {
            target = target.with("wait", &duration::format(wait));
        }
        ServiceCall {
            nonce: Some(request.nonce.clone()),
            ..ServiceCall::new(Method::POST, target)
        }
    }

    fn to_claimed(
        &self,
        leases: Vec<NamedLease>,
        response: &ServiceResponse,
    ) -> Result<Vec<NamedHold>> {
        let claimed = leases
            .into_iter()
            .map(|lease| lease.into_claimed(response.sent));
        let claimed: Option<_> = claimed.collect();
        claimed.ok_or_else(|| response.not_a_service(&self.inner.url))
    }
}

/// Checks that all names are locks: these calls carry names without their kind.
pub(super) fn require_locks<'n>(names: impl IntoIterator<Item = &'n Name>) -> Result<()> {
    match names.into_iter().find(|name| name.kind() != Kind::Lock) {
        None => Ok(()),
        Some(gate) => Err(Error::invalid(format!(
            "`{gate}` is a gate: this operation requires a lock"
        ))),
    }
}
