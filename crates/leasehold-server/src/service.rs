//! Handles one request, from its arrival to its answer.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue, STRICT_TRANSPORT_SECURITY};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method};
use leasehold::core::{BootTime, Name, Nonce, Operation, Text};
use leasehold::engine::{Engine, Reply, WaitLimit};
use leasehold::wire::{ModeKind, NONCE_HEADER, ProblemType};
use leasehold::{Error, Result};

use crate::Config;
use crate::access::caller::Caller;
use crate::answer::{self, Answer};
use crate::audit::{Change, Entry, RefusalRecorder};
use crate::batch;
use crate::body::Body;
use crate::budget::AnswerBudget;
use crate::busy_poll::BusyPoll;
use crate::connections::{ClientAddress, ConnectionLimiter};
use crate::events::Hub;
use crate::history::HoldChange;
use crate::host::{AllowedHosts, Host};
use crate::http1::FRAGMENT;
use crate::metrics::{Metrics, RequestKind};
use crate::query::Query;
use crate::readiness::Readiness;
use crate::rejection::Rejection;
use crate::route::Route;
use crate::tls::ClientCertificate;
use crate::traces::RequestSpan;

/// Makes browsers use TLS for this host, for a year.
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000");

static NONCE: HeaderName = HeaderName::from_static(NONCE_HEADER);

/// The state that all connections share.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) engine: Engine,
    pub(crate) config: Arc<Config>,
    pub(crate) hosts: Arc<AllowedHosts>,
    pub(crate) events: Arc<Hub>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) busy_poll: Arc<BusyPoll>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) connections: Arc<ConnectionLimiter>,
    pub(crate) answers: Arc<AnswerBudget>,
}

/// The head of a request.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) host: Host<'a>,
    /// At least the headers that the service reads.
    pub(crate) headers: &'a HeaderMap,
}

impl<'a> Head<'a> {
    pub(crate) fn of(parts: &'a Parts) -> Self {
        Self {
            method: &parts.method,
            path: parts.uri.path(),
            query: parts.uri.query(),
            host: Host::of(parts),
            headers: &parts.headers,
        }
    }
}

/// A request with its caller and arrival.
pub(crate) struct Call<'a> {
    pub(crate) query: Query<'a>,
    pub(crate) caller: Caller,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Body,
    pub(crate) client_address: ClientAddress,
    /// When its head arrived. Durations in the answer count from here; the client counts them from when it sent the request,
    /// which was earlier.
    pub(crate) arrival: BootTime,
}

/// The client at the other end of a connection.
#[derive(Clone)]
pub(crate) struct Peer {
    /// Its address with the port: the owner of leases whose request names none.
    pub(crate) address: Text,
    /// The address against whose limits its connections count.
    pub(crate) client_address: ClientAddress,
    /// Its TLS certificate.
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
}

impl Service {
    /// Answers any request. Returns the answer and its time.
    pub(crate) async fn answer(
        &self,
        head: Head<'_>,
        body: Body,
        peer: &Peer,
    ) -> (Answer, BootTime) {
        let arrival = self.engine.host().boot_time();
        self.busy_poll.request_arrived();
        let mut kind = RequestKind::Other;
        let traces = self.config.traces.as_ref();
        let mut traced =
            traces.map(|traces| Box::new(RequestSpan::new(traces, self, head, arrival)));
        let answer = self
            .dispatch(head, body, arrival, peer, &mut kind, traced.as_deref_mut())
            .await;
        let problem_type = answer.as_ref().err().map(Rejection::problem_type);
        let mut answer = answer.unwrap_or_else(|refused| answer::problem(&refused));
        // HSTS applies to all ports of a host, and on loopback other services may not use TLS.
        if self.config.tls.is_some() && !head.host.is_loopback() {
            answer.headers.push((STRICT_TRANSPORT_SECURITY, HSTS));
        }
        self.busy_poll.request_answered();
        let answered = self.engine.host().boot_time();
        let elapsed = answered.since(arrival);
        self.metrics.answered(kind, problem_type, elapsed);
        if let Some(traced) = traced {
            traced.answered(&answer, problem_type);
        }
        // The query is not logged, because it may contain a nonce.
        tracing::debug!(
            method = %head.method,
            path = head.path,
            status = answer.status.as_u16(),
            micros = elapsed.as_micros(),
            "request"
        );
        (answer, answered)
    }

    async fn dispatch(
        &self,
        head: Head<'_>,
        body: Body,
        arrival: BootTime,
        peer: &Peer,
        kind: &mut RequestKind,
        traced: Option<&mut RequestSpan<'_>>,
    ) -> Result<Answer, Rejection> {
        let (query, route) = match self.parse(head) {
            Ok(parsed) => parsed,
            Err(refused) => return Err(self.count_invalid(head, peer, refused)),
        };
        *kind = RequestKind::from(&route);
        if let Some(traced) = traced {
            traced.set_request(*kind, &route);
        }
        let caller = self.identify(head, peer, &route).inspect_err(|refused| {
            if let Some(refusal_recorder) = self.refusal_recorder(&route, &Caller::anonymous(peer))
            {
                refusal_recorder.record_refusal(refused);
            }
        })?;
        caller.count(&self.config.limits)?;
        let call = Call {
            query,
            caller,
            headers: head.headers,
            body,
            client_address: peer.client_address,
            arrival,
        };
        if route == Route::Requests {
            return Box::pin(self.answer_batch(call)).await;
        }
        let refusal_recorder = self.refusal_recorder(&route, &call.caller);
        let answer = self.authorize_and_perform(route, call).await;
        record_refusal(refusal_recorder, &answer);
        answer
    }

    fn parse<'a>(&self, head: Head<'a>) -> Result<(Query<'a>, Route), Rejection> {
        check_fragment(head.path)?;
        self.hosts.check(head.host)?;
        let query = Query::parse(head.query)?;
        let route = Route::find(head.method, head.path, &query)?;
        Ok((query, route))
    }

    /// Answers one request, sent separately or in a batch.
    pub(crate) async fn authorize_and_perform(
        &self,
        route: Route,
        call: Call<'_>,
    ) -> Result<Answer, Rejection> {
        let _waiting = self.authorize(&route, &call)?;
        let caller = (!call.caller.is_anonymous()).then(|| call.caller.clone());
        let answer = self.perform_route(route, call).await?;
        if let Some(caller) = caller {
            self.check_delivery(&caller, &answer)?;
        }
        Ok(answer)
    }

    async fn perform_route(&self, route: Route, call: Call<'_>) -> Result<Answer, Rejection> {
        match route {
            Route::Acquire(name) => self.acquire(call, &name).await,
            Route::Release(name, fence) => self.release(call, &name, Some(fence)).await,
            // The others are boxed, because this future is as large as the largest of them, and is moved.
            Route::AcquireAll(names) => Box::pin(self.acquire_all(call, names)).await,
            Route::Heartbeat(name, fence) => Box::pin(self.heartbeat(call, &name, fence)).await,
            Route::Heartbeats => Box::pin(self.heartbeats(call)).await,
            Route::Update(name, fence) => Box::pin(self.update(call, &name, fence)).await,
            Route::ReleaseByNonce(name) => Box::pin(self.release(call, &name, None)).await,
            Route::Break(name) => Box::pin(self.break_lease(call, &name)).await,
            Route::Show(name) => Box::pin(self.show(call, &name)).await,
            Route::List(kind) => Box::pin(self.list(call, kind)).await,
            Route::History(name) => self.history(&call, &name),
            Route::Pass(gate) => Box::pin(self.pass(call, &gate)).await,
            Route::Put(name) => Box::pin(self.put(call, &name)).await,
            Route::Remove(name) => Box::pin(self.remove(call, &name)).await,
            Route::Claim => Box::pin(self.claim(call)).await,
            Route::Requests => Err(batch::not_batchable()),
            Route::Events => self.events(&call),
            Route::Metrics => self.metrics(&call),
            Route::Totals => self.totals(&call),
            Route::Dashboard(asset) => self.dashboard(&call, asset),
            Route::OpenApi => self.openapi(&call),
            Route::Docs(part) => self.docs(&call, part),
            Route::LogIn => self.log_in(call).await,
            Route::LogOut => self.log_out(&call),
            Route::WhoAmI => self.who_am_i(&call),
            Route::Health => self.health(&call),
            Route::Ready => Box::pin(self.ready(call)).await,
        }
    }
}

impl Service {
    /// Records the duration of a request that could wait. Then yields, so that its connection can detect a disconnect: that
    /// drops this future, and the grant goes to the next waiter.
    pub(crate) async fn record_wait(&self, arrival: BootTime, wait: Duration) {
        if !wait.is_zero() {
            let elapsed = self.engine.host().boot_time().since(arrival);
            self.metrics.waited(elapsed);
            tokio::task::yield_now().await;
        }
    }

    /// Returns what records the refusal of this request, if there is an audit log.
    pub(crate) fn refusal_recorder(
        &self,
        route: &Route,
        caller: &Caller,
    ) -> Option<RefusalRecorder<'_>> {
        let audit = self.config.audit.as_ref()?;
        Some(RefusalRecorder::new(audit, route, caller))
    }

    /// Records changes before they are made, if there is an audit log.
    pub(crate) fn begin(
        &self,
        caller: &Caller,
        changes: impl FnOnce() -> Vec<Change>,
    ) -> Result<Entry> {
        match &self.config.audit {
            Some(audit) => audit.begin(caller, changes()),
            None => Ok(Entry::NONE),
        }
    }

    /// Performs an operation, and records its outcome in the history and the audit log.
    pub(crate) async fn perform(
        &self,
        caller: &Caller,
        name: &Name,
        operation: Operation,
        wait_limit: WaitLimit,
    ) -> Result<Reply> {
        let entry = self.begin(caller, || vec![Change::of(name, &operation)])?;
        let deed = HoldChange::of(&operation);
        let reply = self.engine.perform(name, operation, wait_limit).await;
        if let Ok(reply) = &reply {
            self.events.history.record(name, deed, reply.outcome());
        }
        entry.end([reply.as_ref().map(Reply::outcome)])?;
        reply
    }

    /// Records several grants to an owner in the history and the audit log.
    pub(crate) fn record_grants(
        &self,
        entry: Entry,
        owner: &Text,
        grants: &[(Name, Reply)],
    ) -> Result<()> {
        for (name, reply) in grants {
            let deed = HoldChange::Take(owner.clone(), ModeKind::Exclusive);
            self.events.history.record(name, deed, reply.outcome());
        }
        entry.end_granted(grants)
    }

    /// Returns the caller's nonce, or a random one if it gave none.
    pub(crate) fn nonce_or_new(&self, call: &Call<'_>) -> Result<Nonce> {
        Ok(match call.nonce()? {
            Some(nonce) => nonce,
            None => Nonce::new(format!("{:032x}", self.engine.host().random()))?,
        })
    }
}

impl Call<'_> {
    /// Returns the nonce in the URL or in the header.
    pub(crate) fn nonce(&self) -> Result<Option<Nonce>> {
        let mut headers = self.headers.get_all(&NONCE).into_iter();
        let header = headers.next();
        if headers.next().is_some() || (header.is_some() && self.query.has("nonce")) {
            return Err(Error::invalid("the nonce is given twice: give it once"));
        }
        let text = match header {
            None => self.query.get("nonce"),
            Some(value) => Some(std::str::from_utf8(value.as_bytes()).map_err(|_| {
                Error::invalid("the nonce in the header is not UTF-8: encode it as UTF-8")
            })?),
        };
        Ok(text.map(Nonce::new).transpose()?)
    }

    /// Returns the nonce of a request that clients may repeat.
    pub(crate) fn required_nonce(&self) -> Result<Nonce> {
        self.nonce()?.ok_or_else(|| {
            Error::invalid("the nonce is missing: give `nonce=` with 1 to 64 characters")
        })
    }

    /// Returns the owner that the caller names, or else its address.
    pub(crate) fn owner(&self) -> Text {
        let owner = self.query.get("owner");
        owner.map_or_else(|| self.caller.address.clone(), Into::into)
    }
}

/// Refuses a request target with a fragment, which is invalid and which some parsers silently drop.
pub(crate) fn check_fragment(target: &str) -> Result<(), Rejection> {
    match target.contains(FRAGMENT) {
        true => Err(Rejection::new(
            ProblemType::BadRequest,
            "the request target has a fragment: write `#` as `%23`",
        )),
        false => Ok(()),
    }
}

/// Records a refusal.
pub(crate) fn record_refusal(
    refusal_recorder: Option<RefusalRecorder<'_>>,
    answer: &Result<Answer, Rejection>,
) {
    if let (Some(refusal_recorder), Err(refused)) = (refusal_recorder, answer) {
        refusal_recorder.record_refusal(refused);
    }
}

/// Converts the reply of an engine that refused an operation.
pub(crate) fn rejection_of(reply: Reply) -> Rejection {
    Rejection::outcome(reply.take().0)
}
