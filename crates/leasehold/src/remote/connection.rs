//! A pool of keep-alive connections to a service. Each serves one exchange at a time.
//!
//! The task that uses a connection also drives it, so an exchange requires no switch between tasks. Dropping a call
//! closes its connection: the service notices that, and cancels the request.

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

/// How long connecting may take, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an idle connection is kept: less than the service's idle timeout.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of idle connections.
const MAX_IDLE: usize = 128;
/// The maximum size of an answer: a page of a thousand names with bodies fits.
const MAX_ANSWER_BYTES: usize = 128 * 1024 * 1024;

/// Why a request has no answer.
#[derive(Clone)]
pub(super) enum ExchangeError {
    /// The TLS handshake failed; retrying will not help.
    Untrusted(String),
    /// Nothing was sent.
    NotSent(String),
    /// The request was sent and may have been performed.
    Ambiguous(String),
}

/// A pooled connection.
pub(super) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: http1::Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>,
}

impl Connection {
    async fn open(url: &ServiceUrl, tls: Option<&TlsConnector>) -> Result<Self, ExchangeError> {
        let connecting = tls::connect(tls, &url.host, url.port);
        let unsent =
            |reason: String| ExchangeError::NotSent(format!("{url} cannot be reached: {reason}"));
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, connecting)
            .await
            .map_err(|_| unsent(format!("no connection within {CONNECT_TIMEOUT:?}")))?
            .map_err(|error| match error.kind() {
                ErrorKind::InvalidData => ExchangeError::Untrusted(format!(
                    "cannot connect to {url}: {error} (check `ca`, `cert` and `key` in the URL)"
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
    ) -> Result<(StatusCode, Bytes), ExchangeError> {
        let Self { sender, driver } = self;
        let mut driver = Some(driver);
        let answer = async {
            let response = sender.send_request(request).await.map_err(|error| {
                if error.is_canceled() {
                    ExchangeError::NotSent(error.to_string())
                } else {
                    ExchangeError::Ambiguous(error.to_string())
                }
            })?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect();
            let body = body
                .await
                .map_err(|error| ExchangeError::Ambiguous(error.to_string()))?;
            Ok((status, body.to_bytes()))
        };
        let mut answer = std::pin::pin!(answer);
        std::future::poll_fn(|context| {
            // Progress of the driver wakes the answer and vice versa: poll both twice before waiting.
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

    /// Sends a request and returns its answer as a stream. The connection serves no other request afterwards.
    pub(super) async fn stream(
        self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Streaming), ExchangeError> {
        let Self { mut sender, driver } = self;
        let driver = tokio::spawn(async move {
            let _ = driver.await;
        });
        let driver = Driver(driver.abort_handle());
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| ExchangeError::Ambiguous(error.to_string()))?;
        let status = response.status();
        let body = response.into_body();
        Ok((status, Streaming { body, driver }))
    }

    /// Returns whether the connection still looks open and ready for another request.
    async fn is_usable(&mut self) -> bool {
        std::future::poll_fn(|context| {
            let closed = Pin::new(&mut self.driver).poll(context).is_ready();
            Poll::Ready(!closed && self.sender.is_ready())
        })
        .await
    }
}

/// An answer that is read as a stream.
pub(super) struct Streaming {
    body: Incoming,
    #[allow(dead_code, reason = "dropping it closes the connection")]
    driver: Driver,
}

/// The task that drives a connection. Dropping it aborts the task.
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Streaming {
    /// Returns the next bytes; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            let frame = self.body.frame().await?.ok()?;
            if let Ok(bytes) = frame.into_data() {
                return Some(bytes);
            }
        }
    }
}

/// The idle connections.
pub(super) struct Pool {
    tls: Option<TlsConnector>,
    idle: Mutex<Vec<(Connection, Instant)>>,
}

impl Pool {
    pub(super) fn new(tls: Option<TlsConnector>) -> Self {
        let idle = Mutex::default();
        Self { tls, idle }
    }

    /// Creates an empty pool with the same TLS configuration.
    pub(super) fn with_same_tls(&self) -> Self {
        Self::new(self.tls.clone())
    }

    /// Returns the most recently used idle connection, or a new one.
    pub(super) async fn checkout(&self, url: &ServiceUrl) -> Result<Connection, ExchangeError> {
        while let Some((mut connection, since)) = self.pop() {
            if since.elapsed() < IDLE_TIMEOUT && connection.is_usable().await {
                return Ok(connection);
            }
        }
        self.open(url).await
    }

    /// Opens a new connection.
    pub(super) async fn open(&self, url: &ServiceUrl) -> Result<Connection, ExchangeError> {
        Connection::open(url, self.tls.as_ref()).await
    }

    /// Returns a connection to the pool if it can be used again.
    pub(super) async fn check_in(&self, mut connection: Connection) {
        if connection.is_usable().await {
            let mut idle = self.idle();
            if idle.len() < MAX_IDLE {
                idle.push((connection, Instant::now()));
            }
        }
    }

    /// Closes all idle connections: one connection did not answer, so the others may be dead too.
    pub(super) fn clear(&self) {
        self.idle().clear();
    }

    fn pop(&self) -> Option<(Connection, Instant)> {
        self.idle().pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Connection, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
