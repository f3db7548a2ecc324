//! One request, from its arrival to its answer.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue, STRICT_TRANSPORT_SECURITY};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method};
use leasehold::core::{BootTime, Name, Nonce, Operation, Text};
use leasehold::engine::{Engine, Patience, Reply};
use leasehold::wire::{NONCE_HEADER, Sharing, Trouble};
use leasehold::{Error, Result};

use crate::Config;
use crate::access::caller::Caller;
use crate::answer::{self, Answer};
use crate::audit::{Change, Entry, Witness};
use crate::awake::Awake;
use crate::body::Body;
use crate::connections::{ClientAddress, ConnectionLimiter};
use crate::events::Hub;
use crate::history::Deed;
use crate::host::{AllowedHosts, Host};
use crate::http1::FRAGMENT;
use crate::metrics::{Asked, Metrics};
use crate::query::Query;
use crate::readiness::Readiness;
use crate::refused::Refused;
use crate::requests;
use crate::route::Route;
use crate::tls::ClientCertificate;
use crate::traces::Traced;

/// Browsers use TLS for this host from then on, for a year.
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000");

static NONCE: HeaderName = HeaderName::from_static(NONCE_HEADER);

/// What every connection shares.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) engine: Engine,
    pub(crate) config: Arc<Config>,
    pub(crate) hosts: Arc<AllowedHosts>,
    pub(crate) events: Arc<Hub>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) awake: Arc<Awake>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) connections: Arc<ConnectionLimiter>,
}

/// The head of a request.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) host: Host<'a>,
    /// Those that anybody asks for.
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

/// A request and what is known of its coming.
pub(crate) struct Call<'a> {
    pub(crate) query: Query<'a>,
    /// Who sent it.
    pub(crate) caller: Caller,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Body,
    pub(crate) client_address: ClientAddress,
    /// When its head was here: what a client may believe in counts from before this.
    pub(crate) arrival: BootTime,
}

/// Who is at the other end of a connection.
#[derive(Clone)]
pub(crate) struct Peer {
    /// Where it came from: the owner of leases that name none.
    pub(crate) address: Text,
    /// The address by which its connections are counted.
    pub(crate) counted_as: ClientAddress,
    /// The certificate that it has shown.
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
}

impl Service {
    /// Answers a request, whatever it is, and says when that was.
    pub(crate) async fn answer(
        &self,
        head: Head<'_>,
        body: Body,
        peer: &Peer,
    ) -> (Answer, BootTime) {
        let arrival = self.engine.host().boot_time();
        self.awake.asked();
        let mut asked = Asked::Other;
        let traces = self.config.traces.as_ref();
        let mut traced = traces.map(|traces| Box::new(Traced::new(traces, self, head, arrival)));
        let answer = self
            .dispatch(head, body, arrival, peer, &mut asked, traced.as_deref_mut())
            .await;
        let trouble = answer.as_ref().err().map(Refused::trouble);
        let mut answer = answer.unwrap_or_else(|refused| answer::problem(&refused));
        // It counts for every port of a host, and on loopback others do not speak TLS.
        if self.config.tls.is_some() && !head.host.is_loopback() {
            answer.headers.push((STRICT_TRANSPORT_SECURITY, HSTS));
        }
        self.awake.answered();
        let answered = self.engine.host().boot_time();
        let took = answered.since(arrival);
        self.metrics.answered(asked, trouble, took);
        if let Some(traced) = traced {
            traced.answered(&answer, trouble);
        }
        // The query stays out of it: it may hold a nonce.
        tracing::debug!(
            method = %head.method,
            path = head.path,
            status = answer.status.as_u16(),
            micros = took.as_micros(),
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
        asked: &mut Asked,
        traced: Option<&mut Traced<'_>>,
    ) -> Result<Answer, Refused> {
        let (query, route) = match self.parse(head) {
            Ok(parsed) => parsed,
            Err(refused) => return Err(self.count_invalid(head, peer, refused)),
        };
        *asked = Asked::from(&route);
        if let Some(traced) = traced {
            traced.asks(*asked, &route);
        }
        let caller = self.identify(head, peer, &route).inspect_err(|refused| {
            if let Some(witness) = self.witness(&route, &Caller::anybody(peer)) {
                witness.tell(refused);
            }
        })?;
        caller.count(&self.config.limits)?;
        let call = Call {
            query,
            caller,
            headers: head.headers,
            body,
            client_address: peer.counted_as,
            arrival,
        };
        if route == Route::Requests {
            return Box::pin(self.answer_many(call)).await;
        }
        let witness = self.witness(&route, &call.caller);
        let answer = self.answer_to(route, call).await;
        tell(witness, &answer);
        answer
    }

    fn parse<'a>(&self, head: Head<'a>) -> Result<(Query<'a>, Route), Refused> {
        check_fragment(head.path)?;
        self.hosts.check(head.host)?;
        let query = Query::parse(head.query)?;
        let route = Route::find(head.method, head.path, &query)?;
        Ok((query, route))
    }

    /// Answers one request, which came by itself or among others.
    pub(crate) async fn answer_to(&self, route: Route, call: Call<'_>) -> Result<Answer, Refused> {
        let _waiting = self.permit(&route, &call)?;
        let known = (!call.caller.is_anybody()).then(|| call.caller.clone());
        let answer = self.perform_route(route, call).await?;
        if let Some(caller) = known {
            self.check_delivery(&caller, &answer)?;
        }
        Ok(answer)
    }

    async fn perform_route(&self, route: Route, call: Call<'_>) -> Result<Answer, Refused> {
        match route {
            Route::Acquire(name) => self.acquire(call, &name).await,
            Route::Release(name, fence) => self.release(call, &name, Some(fence)).await,
            // The rest is on the heap: a request is as large as the largest of them, and moved around as such.
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
            Route::Requests => Err(requests::not_among_others()),
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
    /// Notes how long one took that was ready to wait in line, and lets its connection look whether it is still there:
    /// who left meanwhile drops this, and what it was given goes to the next.
    pub(crate) async fn waited(&self, arrival: BootTime, wait: Duration) {
        if !wait.is_zero() {
            let took = self.engine.host().boot_time().since(arrival);
            self.metrics.waited(took);
            tokio::task::yield_now().await;
        }
    }

    /// One who sees what is refused to somebody, where that is wanted.
    pub(crate) fn witness(&self, route: &Route, who: &Caller) -> Option<Witness<'_>> {
        let audit = self.config.audit.as_ref()?;
        Some(Witness::new(audit, route, who))
    }

    /// Records changes before they are carried out, where there is an audit log.
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

    /// Has the engine perform an operation, notes what came of it, and records it where that is wanted.
    pub(crate) async fn perform(
        &self,
        caller: &Caller,
        name: &Name,
        operation: Operation,
        patience: Patience,
    ) -> Result<Reply> {
        let entry = self.begin(caller, || vec![Change::of(name, &operation)])?;
        let deed = Deed::of(&operation);
        let reply = self.engine.perform(name, operation, patience).await;
        if let Ok(reply) = &reply {
            self.events.history.note(name, deed, reply.outcome());
        }
        entry.end([reply.as_ref().map(Reply::outcome)])?;
        reply
    }

    /// Notes what was granted together to an owner, and records it where that is wanted.
    pub(crate) fn granted(&self, entry: Entry, owner: &Text, all: &[(Name, Reply)]) -> Result<()> {
        for (name, reply) in all {
            let deed = Deed::Take(owner.clone(), Sharing::Exclusive);
            self.events.history.note(name, deed, reply.outcome());
        }
        entry.end_granted(all)
    }

    /// The caller's nonce; one that nobody else has if it gave none.
    pub(crate) fn nonce_or_new(&self, call: &Call<'_>) -> Result<Nonce> {
        Ok(match call.nonce()? {
            Some(nonce) => nonce,
            None => Nonce::new(format!("{:032x}", self.engine.host().random()))?,
        })
    }
}

impl Call<'_> {
    /// The nonce, from the URL or from its header.
    pub(crate) fn nonce(&self) -> Result<Option<Nonce>> {
        let mut headers = self.headers.get_all(&NONCE).into_iter();
        let header = headers.next();
        if headers.next().is_some() || (header.is_some() && self.query.has("nonce")) {
            return Err(Error::invalid("the nonce is there twice: give it once"));
        }
        let text = match header {
            None => self.query.get("nonce"),
            Some(value) => Some(
                std::str::from_utf8(value.as_bytes())
                    .map_err(|_| Error::invalid("the nonce in the header is not UTF-8"))?,
            ),
        };
        Ok(text.map(Nonce::new).transpose()?)
    }

    /// The nonce of something that may be asked for again.
    pub(crate) fn required_nonce(&self) -> Result<Nonce> {
        self.nonce()?.ok_or_else(|| {
            Error::invalid("the nonce is missing: give `nonce=` with 1 to 64 characters")
        })
    }

    /// Who asks, for people.
    pub(crate) fn owner(&self) -> Text {
        let owner = self.query.get("owner");
        owner.map_or_else(|| self.caller.address.clone(), Into::into)
    }
}

/// Refuses a request target with a fragment: no target has one, and some parsers drop it in silence.
pub(crate) fn check_fragment(target: &str) -> Result<(), Refused> {
    match target.contains(FRAGMENT) {
        true => Err(Refused::new(
            Trouble::BadRequest,
            "the request target has a fragment: write `#` as `%23`",
        )),
        false => Ok(()),
    }
}

/// Has a witness tell of a refusal.
pub(crate) fn tell(witness: Option<Witness<'_>>, answer: &Result<Answer, Refused>) {
    if let (Some(witness), Err(refused)) = (witness, answer) {
        witness.tell(refused);
    }
}

/// An outcome that is a refusal for whoever asked.
pub(crate) fn refuse(reply: Reply) -> Refused {
    Refused::outcome(reply.take().0)
}
