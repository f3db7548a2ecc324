//! [`Leases`](crate::Leases) through a running service, over HTTP.

mod connection;
mod events;
mod items;
mod leases;
mod request_batcher;
mod url;

use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use leasehold_core::{BootTime, Name, Nonce};
use serde::de::DeserializeOwned;

use crate::host::{Host, Machine};
use crate::spin::AdaptiveSpin;
use crate::wire::{NONCE_HEADER, Problem};
use crate::{Error, Result, tls};
use connection::{Connection, ExchangeError, Pool};
use request_batcher::{Dispatch, RequestBatcher};
use url::{ServiceUrl, Target};

pub use events::RemoteEvents;

/// How long a service may take to answer, apart from the requested wait: longer than its timeout for the store.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);
/// The maximum number of times that a call is sent.
const MAX_ATTEMPTS: u32 = 4;
/// The backoff before the second attempt. It doubles with each attempt.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);

/// Leases through a running service, behind the same [`Leases`](crate::Leases) trait as an engine's.
///
/// A request is retried only if its nonce or its fence makes that safe. [`Error::Unavailable`] means that nothing was
/// sent, or that the service reported it. [`Error::Indeterminate`] means that a request was sent and not answered.
/// Deadlines count from the time when the answered attempt was sent.
///
/// ```no_run
/// # async fn example() -> leasehold::Result<()> {
/// use leasehold::{Client, Remote};
///
/// let remote = Remote::connect("http://localhost:12345")?;
/// let client = Client::new(std::sync::Arc::new(remote)); // what `leasehold::connect` does with such a URL
/// let lease = client.lease("nightly-report").acquire().await?;
/// # Ok(()) }
/// ```
///
/// Cheap to clone. Clones share their connections, and concurrent requests of many tasks are batched. Dropping a call
/// cancels it: its waiter leaves the queue, and a lease that was granted meanwhile is released.
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
}

struct Inner {
    url: ServiceUrl,
    host: Arc<dyn Host>,
    pool: Pool,
    batcher: RequestBatcher,
    /// Whether to poll for the answer when only one request is in flight.
    spin: AdaptiveSpin,
    /// The `Authorization` header.
    token: Option<HeaderValue>,
}

/// A call of the service's API, before it is encoded.
struct ServiceCall {
    method: Method,
    target: Target,
    nonce: Option<Nonce>,
    body: Bytes,
    /// The service answers without waiting, so the call may share a batch with others.
    batchable: bool,
    /// The name that the call acquires. A grant is released if its caller has been dropped.
    acquires: Option<Name>,
}

impl ServiceCall {
    fn new(method: Method, target: Target) -> Self {
        Self {
            method,
            target,
            nonce: None,
            body: Bytes::new(),
            batchable: false,
            acquires: None,
        }
    }

    /// Creates a call that the service answers without waiting.
    fn batchable(method: Method, target: Target) -> Self {
        Self {
            batchable: true,
            ..Self::new(method, target)
        }
    }
}

/// Whether a call may be sent again after its answer was lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RetryPolicy {
    /// The call changes nothing.
    ReadOnly,
    /// A nonce or a fence makes a repetition safe.
    Idempotent,
    /// Only if nothing was sent.
    Never,
}

/// An answer of the service.
struct ServiceResponse {
    status: StatusCode,
    body: Bytes,
    /// When the answered attempt was sent.
    sent: BootTime,
    /// Whether an earlier attempt may have been performed too.
    repeated: bool,
}

impl Remote {
    /// Returns the leases of the service at this URL, `http://HOST:PORT` or `https://HOST:PORT`. Does not connect: an
    /// unreachable service is [`Error::Unavailable`] at the first use.
    ///
    /// An `https://` URL may name PEM files in its options, as in `https://db1:12345?ca=ca.pem`:
    ///
    /// - `ca`: the certificates to trust instead of the system's, of authorities or of the service itself
    /// - `cert` and `key`: the client's own certificate and key
    pub fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, Machine::shared())
    }

    /// As [`connect`](Self::connect), with another [`Host`].
    pub fn connect_with(url: &str, host: Arc<dyn Host>) -> Result<Self> {
        let url = ServiceUrl::parse(url)?;
        let tls = url.tls.as_ref().map(tls::connector).transpose()?;
        Ok(Self {
            inner: Arc::new(Inner {
                url,
                host,
                pool: Pool::new(tls),
                batcher: RequestBatcher::default(),
                spin: AdaptiveSpin::default(),
                token: None,
            }),
        })
    }

    /// Returns the same leases, authenticated by a token of `leasehold token create`.
    pub fn with_token(&self, token: &str) -> Result<Self> {
        let Inner {
            url, host, pool, ..
        } = &*self.inner;
        let mut header = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
            Error::invalid(
                "the token is not valid in a header: use a token of `leasehold token create`",
            )
        })?;
        header.set_sensitive(true);
        Ok(Self {
            inner: Arc::new(Inner {
                url: url.clone(),
                host: host.clone(),
                pool: pool.with_same_tls(),
                batcher: RequestBatcher::default(),
                spin: AdaptiveSpin::default(),
                token: Some(header),
            }),
        })
    }

    /// Sends a call until it is answered or must not be retried. `call` builds each attempt, given the elapsed time.
    async fn perform(
        &self,
        retry: RetryPolicy,
        within: Duration,
        call: impl Fn(Duration) -> ServiceCall + Send,
    ) -> Result<ServiceResponse> {
        let started = Instant::now();
        let (mut reason, mut repeated) = (None, false);
        for attempt in 0..MAX_ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(self.backoff(attempt)).await;
            }
            let elapsed = started.elapsed();
            let remaining = within.saturating_sub(elapsed);
            if remaining.is_zero() {
                break;
            }
            match self.attempt(call(elapsed), remaining).await {
                Ok(response) => {
                    return Ok(ServiceResponse {
                        repeated: repeated && retry != RetryPolicy::ReadOnly,
                        ..response
                    });
                }
                Err(ExchangeError::Untrusted(why)) => return Err(Error::Denied(why)),
                Err(ExchangeError::NotSent(why)) => reason = Some(why),
                Err(ExchangeError::Ambiguous(why)) => {
                    repeated = true;
                    reason = Some(why);
                    if retry == RetryPolicy::Never {
                        break;
                    }
                }
            }
        }
        let reason = reason
            .unwrap_or_else(|| format!("{} was not asked: the time limit is zero", self.inner.url));
        Err(if repeated && retry != RetryPolicy::ReadOnly {
            Error::Indeterminate(reason)
        } else {
            Error::Unavailable(reason)
        })
    }

    async fn attempt(
        &self,
        call: ServiceCall,
        within: Duration,
    ) -> Result<ServiceResponse, ExchangeError> {
        match self.dispatch(call) {
            Dispatch::SingleRequest(call, Some(in_flight)) if in_flight.is_only_one() => {
                let answer = self.send_single(call, within);
                self.inner.spin.wait_for(answer).await
            }
            Dispatch::SingleRequest(call, _in_flight) => self.send_single(call, within).await,
            Dispatch::Batched(answer, _in_flight) => {
                let url = &self.inner.url;
                match tokio::time::timeout(within, answer).await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(_)) => Err(ExchangeError::Ambiguous(format!(
                        "the request to {url} was dropped: its runtime has shut down"
                    ))),
                    Err(_) => Err(ExchangeError::Ambiguous(format!(
                        "{url} did not answer in time"
                    ))),
                }
            }
        }
    }

    /// Sends a call on a connection of its own.
    async fn send_single(
        &self,
        call: ServiceCall,
        within: Duration,
    ) -> Result<ServiceResponse, ExchangeError> {
        let Inner {
            url, host, pool, ..
        } = &*self.inner;
        let deadline = tokio::time::Instant::now() + within;
        let mut connection: Connection = tokio::time::timeout_at(deadline, pool.checkout(url))
            .await
            .map_err(|_| ExchangeError::NotSent(format!("{url} cannot be reached in time")))??;
        let request = self.request(call)?;
        let sent = host.boot_time();
        let exchange = connection.exchange(request);
        let Ok(answer) = tokio::time::timeout_at(deadline, exchange).await else {
            pool.clear();
            return Err(ExchangeError::Ambiguous(format!(
                "{url} did not answer in time"
            )));
        };
        let (status, body) = answer.map_err(|error| match error {
            ExchangeError::NotSent(why) => {
                ExchangeError::NotSent(format!("{url} closed the connection: {why}"))
            }
            ExchangeError::Ambiguous(why) => {
                ExchangeError::Ambiguous(format!("{url} gave no answer: {why}"))
            }
            other => other,
        })?;
        pool.check_in(connection).await;
        // A proxy answers in place of a service that it could not reach or that did not answer: ambiguous.
        if status.is_server_error() && serde_json::from_slice::<Problem>(&body).is_err() {
            return Err(ExchangeError::Ambiguous(format!(
                "{url} answered with {status}"
            )));
        }
        Ok(ServiceResponse {
            status,
            body,
            sent,
            repeated: false,
        })
    }

    fn request(&self, call: ServiceCall) -> Result<Request<Full<Bytes>>, ExchangeError> {
        let mut target = call.target;
        let mut header = None;
        if let Some(nonce) = &call.nonce {
            // In a header, because URLs are logged. Some nonces are not valid in a header.
            if nonce.expose().bytes().all(|byte| byte.is_ascii_graphic()) {
                header = HeaderValue::from_str(nonce.expose()).ok();
            } else {
                target = target.with("nonce", nonce.expose());
            }
        }
        let mut request = Request::builder()
            .method(call.method)
            .uri(target.into_string())
            .header(HOST, &self.inner.url.authority)
            .body(Full::new(call.body))
            .map_err(|error| {
                ExchangeError::NotSent(format!("cannot encode the request: {error}"))
            })?;
        if let Some(token) = &self.inner.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        if let Some(mut nonce) = header {
            nonce.set_sensitive(true);
            request.headers_mut().insert(NONCE_HEADER, nonce);
        }
        Ok(request)
    }

    /// Returns the backoff before an attempt, with a jitter of up to a half, so that clients do not retry in step.
    fn backoff(&self, attempt: u32) -> Duration {
        let longest = FIRST_BACKOFF * 2_u32.pow(attempt - 1);
        let thousandths = u32::try_from(self.inner.host.random() % 500).unwrap_or_default();
        longest / 2 + longest * thousandths / 1_000
    }
}

/// Returns the remaining wait, rounded up to the milliseconds of the API, so that it does not end too early.
fn remaining_wait(wait: Duration, elapsed: Duration) -> Duration {
    let micros = wait.saturating_sub(elapsed).as_micros();
    Duration::from_millis(u64::try_from(micros.div_ceil(1_000)).unwrap_or(u64::MAX))
}

impl ServiceResponse {
    /// Parses the answer, or returns the error that it reports.
    fn parse<T: DeserializeOwned>(&self, url: &ServiceUrl) -> Result<T> {
        if self.status.is_success() {
            serde_json::from_slice(&self.body).map_err(|_| self.not_a_service(url))
        } else {
            match self.problem(url).map_or_else(|error| error, Error::from) {
                // The problem says only that the last attempt had no effect.
                Error::Unavailable(why) if self.repeated => Err(Error::Indeterminate(format!(
                    "{why}; an earlier answer was lost: check the lease before you retry"
                ))),
                error => Err(error),
            }
        }
    }

    fn problem(&self, url: &ServiceUrl) -> Result<Problem> {
        serde_json::from_slice(&self.body).map_err(|_| self.not_a_service(url))
    }

    /// The error of an answer that is not from a Leasehold service.
    fn not_a_service(&self, url: &ServiceUrl) -> Error {
        Error::Denied(format!(
            "{url} does not answer like a Leasehold service (status {}): check the URL",
            self.status.as_u16()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_wait_is_rounded_up() {
        let wait = Duration::from_millis(150);
        for (micros, remaining) in [(0, 150), (1, 150), (999, 150), (1_000, 149), (150_000, 0)] {
            let remaining = Duration::from_millis(remaining);
            assert_eq!(
                remaining_wait(wait, Duration::from_micros(micros)),
                remaining
            );
        }
    }
}
