//! [`Leases`] over HTTP: encodes requests and parses answers.

use std::time::Duration;

use async_trait::async_trait;
use hyper::Method;
use hyper::body::Bytes;
use leasehold_core::{Kind, Mode, Name, View};

use super::items::require_locks;
use super::{ANSWER_TIMEOUT, Remote, RetryPolicy, ServiceCall, ServiceResponse, remaining_wait};
use crate::leases::{
    AcquireAllOutcome, AcquireAllRequest, AcquireOutcome, AcquireRequest, BreakOutcome,
    BreakRequest, ClaimRequest, HolderKey, Leases, ListRequest, Listing, NamedHold, PutRequest,
    RenewRequest, RenewedHold, UpdateOutcome, UpdateRequest,
};
use crate::wire::{
    BreakOptions, BreakResponse, Gates, Heartbeat, HeartbeatResult, Heartbeats, HeartbeatsResponse,
    Lease, LockView, Locks, MAX_HEARTBEATS, MAX_PAGE, MAX_WAIT, ProblemType, ReleaseResponse,
};
use crate::{Error, Result, duration};

#[async_trait]
impl Leases for Remote {
    async fn acquire(&self, request: AcquireRequest) -> Result<AcquireOutcome> {
        let wait = request.wait.min(MAX_WAIT);
        let response = self
            .perform(RetryPolicy::Idempotent, wait + ANSWER_TIMEOUT, |elapsed| {
                self.acquire_call(&request, remaining_wait(wait, elapsed))
            })
            .await?;
        match self.parse::<Lease>(&response) {
            Ok(lease) => lease
                .into_hold(response.sent)
                .map(AcquireOutcome::Granted)
                .ok_or_else(|| response.not_a_service(&self.inner.url)),
            Err(Error::Held(held)) => Ok(AcquireOutcome::Held(held)),
            Err(error) => Err(error),
        }
    }

    async fn acquire_all(&self, request: AcquireAllRequest) -> Result<AcquireAllOutcome> {
        self.acquire_several(request).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<NamedHold>> {
        self.claim_items(request).await
    }

    async fn put(&self, request: PutRequest) -> Result<()> {
        self.put_item(request).await
    }

    async fn remove(&self, name: &Name) -> Result<()> {
        self.remove_item(name).await
    }

    fn max_wait(&self) -> Duration {
        MAX_WAIT
    }

    async fn renew(
        &self,
        requests: Vec<RenewRequest>,
        within: Duration,
    ) -> Vec<Result<RenewedHold>> {
        let started = std::time::Instant::now();
        // Return before the time limit, not at it.
        let within = within - within / 10;
        let mut renewed = Vec::with_capacity(requests.len());
        for chunk in requests.chunks(MAX_HEARTBEATS) {
            let remaining = within.saturating_sub(started.elapsed());
            match self.renew_chunk(chunk, remaining).await {
                Ok(answers) => renewed.extend(answers),
                Err(error) => renewed.extend(chunk.iter().map(|_| Err(error.clone()))),
            }
        }
        renewed
    }

    async fn update(&self, request: UpdateRequest) -> Result<UpdateOutcome> {
        // In a URL, an empty state means none: the service would clear the state instead of refusing it.
        if matches!(&request.state, Some(Some(label)) if label.is_empty()) {
            return Err(Error::invalid("the state is empty: give a short label"));
        }
        // A late repetition of an update that keeps the lease could undo the next update.
        let retry = if request.then_release {
            RetryPolicy::Idempotent
        } else {
            RetryPolicy::Never
        };
        let response = self
            .perform(retry, ANSWER_TIMEOUT, |_| self.update_call(&request))
            .await?;
        let updated = if request.then_release {
            self.parse::<ReleaseResponse>(&response)
                .map(|_| UpdateOutcome::Completed)
        } else {
            self.parse::<Lease>(&response)
                .map(|lease| UpdateOutcome::Renewed(lease.into_renewed(response.sent)))
        };
        match updated {
            Err(Error::Fenced | Error::Expired) if response.repeated => Err(Error::Indeterminate(
                "the first answer was lost, and the fence is no longer valid: the update may have been written".into(),
            )),
            other => other,
        }
    }

    async fn release(&self, name: &Name, holding: HolderKey) -> Result<bool> {
        let (suffix, nonce) = match holding {
            HolderKey::Fence(fence) => (format!("/{fence}"), None),
            HolderKey::Nonce(nonce) => (String::new(), Some(nonce)),
        };
        let response = self
            .perform(RetryPolicy::Idempotent, ANSWER_TIMEOUT, |_| ServiceCall {
                nonce: nonce.clone(),
                ..ServiceCall::batchable(Method::DELETE, self.inner.url.lease(name, &suffix))
            })
            .await?;
        match self.parse::<ReleaseResponse>(&response)?.released {
            // A record keeps how its last exclusive hold ended, and nothing of other holds.
            false if response.repeated => Err(Error::Indeterminate(
                "the first answer was lost, and the lease is not held: it was either released or lost before".into(),
            )),
            released => Ok(released),
        }
    }

    async fn break_lease(&self, name: &Name, request: BreakRequest) -> Result<BreakOutcome> {
        let body = json(&BreakOptions::from(request));
        let response = self
            .perform(RetryPolicy::Never, ANSWER_TIMEOUT, |_| ServiceCall {
                body: body.clone(),
                ..ServiceCall::new(Method::POST, self.inner.url.lease(name, "/break"))
            })
            .await?;
        Ok(match self.parse::<BreakResponse>(&response)? {
            BreakResponse { broken: false, .. } => BreakOutcome::NotHeld,
            BreakResponse { until: None, .. } => BreakOutcome::Free,
            BreakResponse {
                until: Some(until), ..
            } => BreakOutcome::Until(until),
        })
    }

    async fn show(&self, name: &Name) -> Result<Option<View>> {
        let response = self
            .perform(RetryPolicy::ReadOnly, ANSWER_TIMEOUT, |_| {
                ServiceCall::batchable(Method::GET, self.inner.url.lease(name, ""))
            })
            .await?;
        if let Ok(problem) = response.problem(&self.inner.url)
            && problem.problem_type == ProblemType::NotFound
            && problem.name.is_some()
        {
            return Ok(None);
        }
        self.parse::<LockView>(&response)
            .map(|lock| Some(View::from(lock)))
    }

    async fn list(&self, request: ListRequest) -> Result<Listing> {
        let response = self
            .perform(RetryPolicy::ReadOnly, ANSWER_TIMEOUT, |_| {
                self.list_call(&request)
            })
            .await?;
        let (kind, views, cursor) = if request.gates {
            let page: Gates = self.parse(&response)?;
            (Kind::Gate, page.gates, page.cursor)
        } else {
            let page: Locks = self.parse(&response)?;
            (Kind::Lock, page.locks, page.cursor)
        };
        let leases = views.into_iter().map(|view| {
            let name = Name::new(kind, &view.name)?;
            Ok((name, View::from(view)))
        });
        let leases = leases.collect::<Result<_>>()?;
        Ok(Listing { leases, cursor })
    }
}

impl Remote {
    pub(super) fn parse<T: serde::de::DeserializeOwned>(
        &self,
        response: &ServiceResponse,
    ) -> Result<T> {
        response.parse(&self.inner.url)
    }

    fn acquire_call(&self, request: &AcquireRequest, wait: Duration) -> ServiceCall {
        let period = match request.name.kind() {
            Kind::Lock => "ttl",
            Kind::Gate => "every",
        };
        let mut target = self
            .inner
            .url
            .lease(&request.name, "")
            .with(period, &duration::format(request.ttl))
            .with("owner", &request.owner);
        if !wait.is_zero() {
            target = target.with("wait", &duration::format(wait));
        }
        if let Mode::Shared { limit } = request.mode {
            target = target.with("mode", "shared");
            if let Some(limit) = limit {
                target = target.with("limit", &limit.to_string());
            }
        }
        if let Some(fence) = request.fence {
            target = target.with("fence", &fence.to_string());
        }
        ServiceCall {
            nonce: Some(request.nonce.clone()),
            batchable: wait.is_zero(),
            acquires: Some(request.name.clone()),
            ..ServiceCall::new(Method::POST, target)
        }
    }

    fn update_call(&self, request: &UpdateRequest) -> ServiceCall {
        let mut target = self
            .inner
            .url
            .lease(&request.name, &format!("/{}", request.fence));
        if request.body.is_none() {
            target = target.with("body", "keep");
        }
        if let Some(state) = &request.state {
            target = target.with("state", state.as_deref().unwrap_or_default());
        }
        if request.then_release {
            target = target.with("release", "true");
        }
        let body = request.body.as_deref().unwrap_or_default();
        ServiceCall {
            body: Bytes::copy_from_slice(body.as_bytes()),
            ..ServiceCall::batchable(Method::POST, target)
        }
    }

    fn list_call(&self, request: &ListRequest) -> ServiceCall {
        let collection = if request.gates { "/gates" } else { "/locks" };
        let mut target = self.inner.url.route(collection).with("bodies", "full");
        if !request.prefix.is_empty() {
            target = target.with("prefix", &request.prefix);
        }
        if let Some(state) = &request.state {
            target = target.with("state", state);
        }
        if let Some(held) = request.held {
            target = target.with("held", if held { "true" } else { "false" });
        }
        if let Some(cursor) = &request.cursor {
            target = target.with("cursor", cursor);
        }
        if request.limit != 0 {
            target = target.with("limit", &request.limit.min(MAX_PAGE).to_string());
        }
        ServiceCall::new(Method::GET, target)
    }

    async fn renew_chunk(
        &self,
        requests: &[RenewRequest],
        within: Duration,
    ) -> Result<Vec<Result<RenewedHold>>> {
        require_locks(requests.iter().map(|request| &request.name))?;
        let leases = requests.iter().map(|request| Heartbeat {
            name: request.name.as_str().into(),
            fence: request.fence,
            ttl: request.ttl.map(duration::format),
        });
        let body = json(&Heartbeats {
            leases: leases.collect(),
        });
        let response = self
            .perform(RetryPolicy::Idempotent, within, |elapsed| {
                let remaining = duration::format(within.saturating_sub(elapsed));
                let target = self
                    .inner
                    .url
                    .route("/heartbeats")
                    .with("within", &remaining);
                ServiceCall {
                    body: body.clone(),
                    ..ServiceCall::new(Method::POST, target)
                }
            })
            .await?;
        let answers: HeartbeatsResponse = self.parse(&response)?;
        if answers.leases.len() != requests.len() {
            return Err(response.not_a_service(&self.inner.url));
        }
        let renewed = answers.leases.into_iter().map(|answer| match answer {
            HeartbeatResult::Lease(lease) => Ok(lease.into_renewed(response.sent)),
            HeartbeatResult::Problem(problem) => Err(problem.into()),
        });
        Ok(renewed.collect())
    }
}

pub(super) fn json(value: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(value)
        .expect("requests have text keys and do not fail")
        .into()
}
