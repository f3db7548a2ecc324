//! A client of etcd's JSON gateway: connections, members, tokens, and the time of each answer.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HOST};
use hyper_util::rt::TokioIo;
use leasehold_core::Stamp;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::failure::{self, Ambiguity, Refusal};
use super::options::{Endpoint, EtcdOptions};
use crate::store::date;
use crate::tls;
use crate::{Error, Result};

/// How long a call may take: less than the engine's own limit.
const CALL_TIMEOUT: Duration = Duration::from_secs(4);
/// How long connecting may take before another member is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum number of idle connections.
const MAX_IDLE: usize = 16;

type Sender = SendRequest<Full<Bytes>>;

/// A client of a cluster.
pub(super) struct Gateway {
    endpoints: Vec<Endpoint>,
    tls: Option<TlsConnector>,
    user: Option<(String, String)>,
    token: Mutex<Option<String>>,
    /// The index of the preferred member.
    member: AtomicUsize,
    /// Idle connections, each with its member.
    idle: Mutex<Vec<(usize, Sender)>>,
}

impl Gateway {
    pub(super) fn new(options: &EtcdOptions) -> Result<Self> {
        Ok(Self {
            endpoints: options.endpoints.clone(),
            tls: match options.tls {
                true => Some(tls::connector(&options.files)?),
                false => None,
            },
            user: options.user.clone(),
            token: Mutex::default(),
            member: AtomicUsize::new(0),
            idle: Mutex::default(),
        })
    }

    /// Sends a request. Returns the answer and its time.
    pub(super) async fn call(
        &self,
        path: &str,
        body: &Value,
        ambiguity: Ambiguity,
    ) -> Result<(Value, Stamp)> {
        let deadline = Instant::now() + CALL_TIMEOUT;
        self.authenticate(deadline).await?;
        match self.send(path, body, ambiguity, deadline).await? {
            Ok(answer) => Ok(answer),
            Err(refusal) if refusal.is_token_rejected() => {
                *self.token() = None;
                self.authenticate(deadline).await?;
                let answer = self.send(path, body, ambiguity, deadline).await?;
                answer.map_err(|refusal| refusal.into_error(ambiguity))
            }
            Err(refusal) => Err(refusal.into_error(ambiguity)),
        }
    }

    /// Opens a stream of answers, one per line, on a separate connection.
    pub(super) async fn stream(&self, path: &str, body: &Value) -> Result<Incoming> {
        let deadline = Instant::now() + CALL_TIMEOUT;
        self.authenticate(deadline).await?;
        let (member, mut sender) = self.connect().await?;
        let sending = sender.send_request(self.request(member, path, body)?);
        let answer = timeout_at(deadline, sending).await;
        match answer {
            Ok(Ok(answer)) if answer.status().is_success() => Ok(answer.into_body()),
            _ => Err(Error::Unavailable("etcd refuses to open a stream".into())),
        }
    }

    async fn send(
        &self,
        path: &str,
        body: &Value,
        ambiguity: Ambiguity,
        deadline: Instant,
    ) -> Result<Result<(Value, Stamp), Refusal>> {
        // Retries only a request that was not sent, because its idle connection had been closed.
        for _ in 0..2 {
            let (member, mut sender) = self.acquire(deadline).await?;
            let request = self.request(member, path, body)?;
            let exchanging = async {
                let response = sender.send_request(request).await?;
                let date = response.headers().get(DATE);
                let stamp = date.and_then(|date| date::stamp(date.to_str().ok()?));
                let status = response.status();
                let body = response.into_body().collect().await?.to_bytes();
                Ok::<_, hyper::Error>((status, stamp, body))
            };
            match timeout_at(deadline, exchanging).await {
                Ok(Ok((status, stamp, body))) => {
                    self.release(member, sender);
                    let answer = serde_json::from_slice(&body).unwrap_or_default();
                    if !status.is_success() {
                        return Ok(Err(Refusal::new(status.as_u16(), &answer)));
                    }
                    let no_time =
                        || failure::unanswered("etcd did not report its time".into(), ambiguity);
                    return Ok(Ok((answer, stamp.ok_or_else(no_time)?)));
                }
                Ok(Err(error)) if error.is_canceled() => self.mark_failed(member),
                Ok(Err(error)) => {
                    self.mark_failed(member);
                    let hint = match self.tls {
                        Some(_) => "",
                        None => " (if it requires TLS, set `tls=on` in the store URL)",
                    };
                    let problem = format!("the connection to etcd was lost: {error}{hint}");
                    return Err(failure::unanswered(problem, ambiguity));
                }
                Err(_) => {
                    self.mark_failed(member);
                    return Err(failure::unanswered(
                        "etcd does not answer".into(),
                        ambiguity,
                    ));
                }
            }
        }
        Err(Error::Unavailable("etcd closes every connection".into()))
    }

    /// Requests a token if there is a user and no token yet.
    async fn authenticate(&self, deadline: Instant) -> Result<()> {
        let Some((name, password)) = &self.user else {
            return Ok(());
        };
        if self.token().is_some() {
            return Ok(());
        }
        let body = json!({ "name": name, "password": password });
        let answer = self.send("/v3/auth/authenticate", &body, Ambiguity::None, deadline);
        let (answer, _) = answer
            .await?
            .map_err(|refusal| refusal.into_error(Ambiguity::None))?;
        *self.token() = answer["token"].as_str().map(str::to_owned);
        Ok(())
    }

    fn request(&self, member: usize, path: &str, body: &Value) -> Result<Request<Full<Bytes>>> {
        let Endpoint { host, port } = &self.endpoints[member];
        let mut request = Request::post(path)
            .header(HOST, format!("{host}:{port}"))
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = &*self.token() {
            request = request.header(AUTHORIZATION, token);
        }
        request
            .body(Full::from(body.to_string()))
            .map_err(|_| Error::invalid("a host in the store URL is invalid"))
    }

    async fn acquire(&self, deadline: Instant) -> Result<(usize, Sender)> {
        while let Some((member, sender)) = self.pop() {
            if sender.is_ready() {
                return Ok((member, sender));
            }
        }
        let connecting = timeout_at(deadline, self.connect()).await;
        connecting
            .unwrap_or_else(|_| Err(Error::Unavailable("timed out connecting to etcd".into())))
    }

    /// Connects to the first member that accepts the connection.
    async fn connect(&self) -> Result<(usize, Sender)> {
        let first = self.member.load(Ordering::Relaxed);
        let (mut problems, mut is_tls) = (Vec::new(), false);
        for turn in 0..self.endpoints.len() {
            let member = (first + turn) % self.endpoints.len();
            let endpoint = &self.endpoints[member];
            let connecting = timeout(CONNECT_TIMEOUT, self.connect_to(endpoint)).await;
            let problem = match connecting.unwrap_or_else(|late| Err(late.into())) {
                Ok(sender) => {
                    self.member.store(member, Ordering::Relaxed);
                    return Ok((member, sender));
                }
                Err(problem) => problem,
            };
            // An error of rustls.
            is_tls |= problem.kind() == io::ErrorKind::InvalidData;
            problems.push(format!("{}:{}: {problem}", endpoint.host, endpoint.port));
        }
        let problems = problems.join(", ");
        match is_tls {
            true => Err(Error::Denied(format!(
                "etcd: {problems}: set `tls`, `ca`, `cert` and `key` in the store URL to match the server"
            ))),
            // A server that closes the connection during the handshake may be starting, or not use TLS.
            false if self.tls.is_some() => Err(Error::Unavailable(format!(
                "cannot connect to etcd: {problems}: check that it is running and uses TLS, and hosts and ports in the store URL; without TLS, remove `tls` from it"
            ))),
            false => Err(Error::Unavailable(format!(
                "cannot connect to etcd: {problems}: check that it is running, and hosts and ports in the store URL"
            ))),
        }
    }

    async fn connect_to(&self, endpoint: &Endpoint) -> io::Result<Sender> {
        let stream = tls::connect(self.tls.as_ref(), &endpoint.host, endpoint.port).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    fn release(&self, member: usize, sender: Sender) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push((member, sender));
        }
    }

    /// Prefers the next member, and drops the idle connections to this one, which may be dead too.
    fn mark_failed(&self, member: usize) {
        let next = (member + 1) % self.endpoints.len();
        let (from, order) = (member, Ordering::Relaxed);
        let _ = self.member.compare_exchange(from, next, order, order);
        self.idle().retain(|(other, _)| *other != member);
    }

    fn pop(&self) -> Option<(usize, Sender)> {
        self.idle().pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(usize, Sender)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn token(&self) -> MutexGuard<'_, Option<String>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
