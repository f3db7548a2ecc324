//! Keep-alive connections to a service: borrowed for one exchange at a time, by as many as want one.
//!
//! A connection is driven by the task that uses it, so that an exchange costs no hop between tasks, and a caller that
//! goes away takes its connection with it: the service notices, and nothing waits on.

use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use super::url::ServiceUrl;
use crate::tls::{self, Stream};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(3);
/// How long an unused connection is kept: less than the service keeps its end.
const KEEP: Duration = Duration::from_secs(30);
/// How many unused connections are kept.
const SPARE: usize = 128;
/// The largest answer: a page of a thousand names, each with a body, fits.
const ANSWER_BYTES: usize = 128 * 1024 * 1024;

/// Why there is no answer.
#[derive(Clone)]
pub(super) enum Lost {
    /// TLS does not come about, now or later.
    Distrusted(String),
    /// Nothing was sent.
    Unsent(String),
    /// The request may have arrived.
    Sent(String),
}

/// One connection.
pub(super) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: http1::Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>,
}

impl Connection {
    async fn open(url: &ServiceUrl, tls: Option<&TlsConnector>) -> Result<Self, Lost> {
        let connecting = tls::connect(tls, &url.host, url.port);
        let unsent = |reason: String| Lost::Unsent(format!("{url} cannot be reached: {reason}"));
        let stream = tokio::time::timeout(CONNECT, connecting)
            .await
            .map_err(|_| unsent("no connection in time".into()))?
            .map_err(|error| match error.kind() {
                ErrorKind::InvalidData => Lost::Distrusted(format!(
                    "{url}: {error}: let `ca`, `cert` and `key` in the URL match what the service has and wants"
                )),
                _ => unsent(error.to_string()),
            })?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| unsent(error.to_string()))?;
        Ok(Self { sender, driver })
    }

    /// Sends a request and reads the whole answer.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), Lost> {
        let Self { sender, driver } = self;
        let mut driver = Some(driver);
        let answer = async {
            let response = sender.send_request(request).await.map_err(|error| {
                if error.is_canceled() {
                    Lost::Unsent(error.to_string())
                } else {
                    Lost::Sent(error.to_string())
                }
            })?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES).collect();
            let body = body.await.map_err(|error| Lost::Sent(error.to_string()))?;
            Ok((status, body.to_bytes()))
        };
        let mut answer = std::pin::pin!(answer);
        std::future::poll_fn(|context| {
            // What one of them does gives the other something to do: twice around, then wait.
            for _ in 0..2 {
                if let Poll::Ready(answer) = answer.as_mut().poll(context) {
                    return Poll::Ready(answer);
                }
                if let Some(connection) = &mut driver
                    && Pin::new(connection).poll(context).is_ready()
                {
                    driver = None;
                }
            }
            answer.as_mut().poll(context)
        })
        .await
    }

    /// Sends a request whose answer is read as it comes. The connection serves nothing else from then on.
    pub(super) async fn stream(
        self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Streaming), Lost> {
        let Self { mut sender, driver } = self;
        let driver = tokio::spawn(async move {
            let _ = driver.await;
        });
        let driver = Driver(driver.abort_handle());
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| Lost::Sent(error.to_string()))?;
        let status = response.status();
        let body = response.into_body();
        Ok((status, Streaming { body, driver }))
    }

    /// Whether another request can be sent on it, as far as can be told.
    async fn is_usable(&mut self) -> bool {
        std::future::poll_fn(|context| {
            let closed = Pin::new(&mut self.driver).poll(context).is_ready();
            Poll::Ready(!closed && self.sender.is_ready())
        })
        .await
    }
}

/// An answer that is read as it comes.
pub(super) struct Streaming {
    body: Incoming,
    #[allow(dead_code, reason = "it ends with this")]
    driver: Driver,
}

/// What drives a connection. Dropped, it ends.
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Streaming {
    /// What comes next; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            let frame = self.body.frame().await?.ok()?;
            if let Ok(bytes) = frame.into_data() {
                return Some(bytes);
            }
        }
    }
}

/// Connections that nobody uses at the moment.
pub(super) struct Pool {
    tls: Option<TlsConnector>,
    spare: Mutex<Vec<(Connection, Instant)>>,
}

impl Pool {
    pub(super) fn new(tls: Option<TlsConnector>) -> Self {
        let spare = Mutex::default();
        Self { tls, spare }
    }

    /// Another one of the same kind, still without connections.
    pub(super) fn another(&self) -> Self {
        Self::new(self.tls.clone())
    }

    /// The connection that was used last, or a new one.
    pub(super) async fn borrow(&self, url: &ServiceUrl) -> Result<Connection, Lost> {
        while let Some((mut connection, since)) = self.pop() {
            if since.elapsed() < KEEP && connection.is_usable().await {
                return Ok(connection);
            }
        }
        self.open(url).await
    }

    /// A connection that nobody else has used.
    pub(super) async fn open(&self, url: &ServiceUrl) -> Result<Connection, Lost> {
        Connection::open(url, self.tls.as_ref()).await
    }

    /// Keeps a connection for the next one, if it can be used again.
    pub(super) async fn give_back(&self, mut connection: Connection) {
        if connection.is_usable().await {
            let mut spare = self.spare();
            if spare.len() < SPARE {
                spare.push((connection, Instant::now()));
            }
        }
    }

    /// Forgets all connections: one of them did not answer, so the others may be dead too.
    pub(super) fn clear(&self) {
        self.spare().clear();
    }

    fn pop(&self) -> Option<(Connection, Instant)> {
        self.spare().pop()
    }

    fn spare(&self) -> MutexGuard<'_, Vec<(Connection, Instant)>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
