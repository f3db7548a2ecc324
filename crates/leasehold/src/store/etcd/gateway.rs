//! etcd's JSON gateway: connections, members, tokens, and the time that every answer tells.

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

use super::failure::{self, Doubt, Refusal};
use super::options::{Endpoint, Options};
use crate::store::date;
use crate::tls;
use crate::{Error, Result};

/// How long a call may take; below an engine's own limit.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long a connection may take to come about, before another member is tried.
const CONNECT: Duration = Duration::from_secs(1);
/// How many unused connections are kept.
const SPARE: usize = 16;

type Sender = SendRequest<Full<Bytes>>;

/// Calls to a cluster.
pub(super) struct Gateway {
    endpoints: Vec<Endpoint>,
    tls: Option<TlsConnector>,
    user: Option<(String, String)>,
    token: Mutex<Option<String>>,
    /// Which member is asked first.
    member: AtomicUsize,
    /// Unused connections, each to a member.
    spare: Mutex<Vec<(usize, Sender)>>,
}

impl Gateway {
    pub(super) fn new(options: &Options) -> Result<Self> {
        Ok(Self {
            endpoints: options.endpoints.clone(),
            tls: match options.tls {
                true => Some(tls::connector(&options.files)?),
                false => None,
            },
            user: options.user.clone(),
            token: Mutex::default(),
            member: AtomicUsize::new(0),
            spare: Mutex::default(),
        })
    }

    /// Asks, and tells the time at which it was answered.
    pub(super) async fn call(
        &self,
        path: &str,
        body: &Value,
        doubt: Doubt,
    ) -> Result<(Value, Stamp)> {
        let deadline = Instant::now() + PATIENCE;
        self.log_in(deadline).await?;
        match self.ask(path, body, doubt, deadline).await? {
            Ok(answer) => Ok(answer),
            Err(refusal) if refusal.wants_a_new_token() => {
                *self.token() = None;
                self.log_in(deadline).await?;
                let again = self.ask(path, body, doubt, deadline).await?;
                again.map_err(|refusal| refusal.into_error(doubt))
            }
            Err(refusal) => Err(refusal.into_error(doubt)),
        }
    }

    /// Opens a stream of answers, one a line, on a connection of its own.
    pub(super) async fn stream(&self, path: &str, body: &Value) -> Result<Incoming> {
        let deadline = Instant::now() + PATIENCE;
        self.log_in(deadline).await?;
        let (member, mut sender) = self.connect().await?;
        let sending = sender.send_request(self.request(member, path, body)?);
        let answer = timeout_at(deadline, sending).await;
        match answer {
            Ok(Ok(answer)) if answer.status().is_success() => Ok(answer.into_body()),
            _ => Err(Error::Unavailable("etcd gives no stream".into())),
        }
    }

    async fn ask(
        &self,
        path: &str,
        body: &Value,
        doubt: Doubt,
        deadline: Instant,
    ) -> Result<Result<(Value, Stamp), Refusal>> {
        // Only one that was not sent is sent again: on a connection that was closed while nobody used it.
        for _ in 0..2 {
            let (member, mut sender) = self.borrow(deadline).await?;
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
                    self.give_back(member, sender);
                    let answer = serde_json::from_slice(&body).unwrap_or_default();
                    if !status.is_success() {
                        return Ok(Err(Refusal::new(status.as_u16(), &answer)));
                    }
                    let silent = || failure::lost("etcd tells no time".into(), doubt);
                    return Ok(Ok((answer, stamp.ok_or_else(silent)?)));
                }
                Ok(Err(error)) if error.is_canceled() => self.avoid(member),
                Ok(Err(error)) => {
                    self.avoid(member);
                    let hint = match self.tls {
                        Some(_) => "",
                        None => " (if it wants TLS, `tls=on` in the store URL)",
                    };
                    let problem = format!("the connection to etcd was lost: {error}{hint}");
                    return Err(failure::lost(problem, doubt));
                }
                Err(_) => {
                    self.avoid(member);
                    return Err(failure::lost("etcd does not answer".into(), doubt));
                }
            }
        }
        Err(Error::Unavailable("etcd closes every connection".into()))
    }

    /// Gets a token, where there is a user and none yet.
    async fn log_in(&self, deadline: Instant) -> Result<()> {
        let Some((name, password)) = &self.user else {
            return Ok(());
        };
        if self.token().is_some() {
            return Ok(());
        }
        let body = json!({ "name": name, "password": password });
        let asked = self.ask("/v3/auth/authenticate", &body, Doubt::None, deadline);
        let (answer, _) = asked
            .await?
            .map_err(|refusal| refusal.into_error(Doubt::None))?;
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
            .map_err(|_| Error::invalid("a host in the store URL cannot be used"))
    }

    async fn borrow(&self, deadline: Instant) -> Result<(usize, Sender)> {
        while let Some((member, sender)) = self.pop() {
            if sender.is_ready() {
                return Ok((member, sender));
            }
        }
        let connecting = timeout_at(deadline, self.connect()).await;
        connecting.unwrap_or_else(|_| Err(Error::Unavailable("etcd cannot be reached".into())))
    }

    /// Connects to the first member that takes us.
    async fn connect(&self) -> Result<(usize, Sender)> {
        let first = self.member.load(Ordering::Relaxed);
        let (mut problems, mut is_tls) = (Vec::new(), false);
        for turn in 0..self.endpoints.len() {
            let member = (first + turn) % self.endpoints.len();
            let endpoint = &self.endpoints[member];
            let connecting = timeout(CONNECT, self.connect_to(endpoint)).await;
            let problem = match connecting.unwrap_or_else(|late| Err(late.into())) {
                Ok(sender) => {
                    self.member.store(member, Ordering::Relaxed);
                    return Ok((member, sender));
                }
                Err(problem) => problem,
            };
            // What rustls has to say.
            is_tls |= problem.kind() == io::ErrorKind::InvalidData;
            problems.push(format!("{}:{}: {problem}", endpoint.host, endpoint.port));
        }
        let problems = problems.join(", ");
        match is_tls {
            true => Err(Error::Denied(format!(
                "etcd: {problems}: let `tls`, `ca`, `cert` and `key` in the store URL match what the server wants"
            ))),
            // Whoever hangs up on a handshake may be starting, or speak no TLS at all.
            false if self.tls.is_some() => Err(Error::Unavailable(format!(
                "etcd cannot be reached: {problems}: is it running, are hosts and ports right, and does it speak TLS? Without, leave `tls` out of the store URL"
            ))),
            false => Err(Error::Unavailable(format!(
                "etcd cannot be reached: {problems}: is it running, and are hosts and ports right?"
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

    fn give_back(&self, member: usize, sender: Sender) {
        let mut spare = self.spare();
        if spare.len() < SPARE {
            spare.push((member, sender));
        }
    }

    /// Asks the next member first, and forgets connections that may be as dead.
    fn avoid(&self, member: usize) {
        let next = (member + 1) % self.endpoints.len();
        let (from, order) = (member, Ordering::Relaxed);
        let _ = self.member.compare_exchange(from, next, order, order);
        self.spare().retain(|(other, _)| *other != member);
    }

    fn pop(&self) -> Option<(usize, Sender)> {
        self.spare().pop()
    }

    fn spare(&self) -> MutexGuard<'_, Vec<(usize, Sender)>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn token(&self) -> MutexGuard<'_, Option<String>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
