//! The same leases through a running service.

mod connection;
mod events;
mod leases;
mod together;
mod url;
mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use leasehold_core::{BootTime, Name, Nonce};
use serde::de::DeserializeOwned;

use crate::awake::Worth;
use crate::host::{Host, Machine};
use crate::wire::{NONCE_HEADER, Problem};
use crate::{Error, Result, tls};
use connection::{Connection, Lost, Pool};
use together::{Goes, Together};
use url::{ServiceUrl, Target};

pub use events::RemoteEvents;

/// How long a service may take to answer, waiting in line not included: longer than it gives its store.
const ANSWER: Duration = Duration::from_secs(8);
/// How often a request is sent at most.
const ATTEMPTS: u32 = 4;
/// The first pause between two attempts; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(50);

/// Leases through a running service, behind the same [`Leases`](crate::Leases) trait as an engine's.
///
/// A request is repeated only where its nonce or its fence makes that safe. [`Error::Unavailable`] means that nothing
/// was sent, or that the service said so; [`Error::Indeterminate`], that a request was sent and not answered.
/// Deadlines count from the send of the attempt that was answered.
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
/// Cheap to clone; clones share their connections, and when many tasks ask at a time, their requests too. A call that
/// is dropped leaves nothing: who waits in line waits no more, and a lease that was granted meanwhile is given back.
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
}

struct Inner {
    url: ServiceUrl,
    host: Arc<dyn Host>,
    pool: Pool,
    together: Together,
    /// Whether to stay awake until the service has answered somebody who is alone.
    awake: Worth,
    /// The `Authorization` header.
    token: Option<HeaderValue>,
}

/// A request, as often as it is sent.
struct Ask {
    method: Method,
    target: Target,
    nonce: Option<Nonce>,
    body: Bytes,
    /// It is answered at once, so that it may go together with others.
    quick: bool,
    /// What it takes, to be let go again if nobody is there any more to have it.
    takes: Option<Name>,
}

impl Ask {
    fn new(method: Method, target: Target) -> Self {
        Self {
            method,
            target,
            nonce: None,
            body: Bytes::new(),
            quick: false,
            takes: None,
        }
    }

    /// One that is answered at once.
    fn quick(method: Method, target: Target) -> Self {
        Self {
            quick: true,
            ..Self::new(method, target)
        }
    }
}

/// Whether a request may be sent again when its answer is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// It changes nothing.
    Read,
    /// A nonce or a fence makes it safe.
    Safe,
    /// Only as long as nothing was sent.
    Never,
}

/// An answer.
struct Answered {
    status: StatusCode,
    body: Bytes,
    /// When the attempt that was answered was sent.
    sent: BootTime,
    /// Whether an attempt before it may have been performed too.
    repeated: bool,
}

impl Remote {
    /// Leases of the service at this URL, `http://HOST:PORT` or `https://HOST:PORT`. Only looks at the URL: a service that
    /// cannot be reached shows at the first use, as [`Error::Unavailable`].
    ///
    /// Over `https://`, options in the URL name PEM files: `ca` with the certificates to trust instead of the system's
    /// (authorities', or the service's own), `cert` and `key` with what the client shows of itself, as in
    /// `https://db1:12345?ca=ca.pem`.
    pub fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, Machine::shared())
    }

    /// The same in other surroundings.
    pub fn connect_with(url: &str, host: Arc<dyn Host>) -> Result<Self> {
        let url = ServiceUrl::parse(url)?;
        let tls = url.tls.as_ref().map(tls::connector).transpose()?;
        Ok(Self {
            inner: Arc::new(Inner {
                url,
                host,
                pool: Pool::new(tls),
                together: Together::default(),
                awake: Worth::default(),
                token: None,
            }),
        })
    }

    /// The same as the principal of this token (`leasehold token create` makes one), for a service that wants to know
    /// who asks.
    pub fn with_token(&self, token: &str) -> Result<Self> {
        let Inner {
            url, host, pool, ..
        } = &*self.inner;
        let mut header = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| Error::invalid("the token has characters that no token has"))?;
        header.set_sensitive(true);
        Ok(Self {
            inner: Arc::new(Inner {
                url: url.clone(),
                host: host.clone(),
                pool: pool.another(),
                together: Together::default(),
                awake: Worth::default(),
                token: Some(header),
            }),
        })
    }

    /// Sends what `ask` says after so much time, until it is answered or may not be sent again.
    async fn call(
        &self,
        repeat: Repeat,
        within: Duration,
        ask: impl Fn(Duration) -> Ask + Send,
    ) -> Result<Answered> {
        let started = Instant::now();
        let (mut reason, mut repeated) = (None, false);
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(self.pause(attempt)).await;
            }
            let elapsed = started.elapsed();
            let left = within.saturating_sub(elapsed);
            if left.is_zero() {
                break;
            }
            match self.attempt(ask(elapsed), left).await {
                Ok(answered) => {
                    return Ok(Answered {
                        repeated: repeated && repeat != Repeat::Read,
                        ..answered
                    });
                }
                Err(Lost::Distrusted(why)) => return Err(Error::Denied(why)),
                Err(Lost::Unsent(why)) => reason = Some(why),
                Err(Lost::Sent(why)) => {
                    repeated = true;
                    reason = Some(why);
                    if repeat == Repeat::Never {
                        break;
                    }
                }
            }
        }
        let reason = reason.unwrap_or_else(|| format!("{} was given no time", self.inner.url));
        Err(if repeated && repeat != Repeat::Read {
            Error::Indeterminate(reason)
        } else {
            Error::Unavailable(reason)
        })
    }

    async fn attempt(&self, ask: Ask, within: Duration) -> Result<Answered, Lost> {
        match self.send(ask) {
            Goes::Alone(ask, Some(one)) if one.is_alone() => {
                let answer = self.attempt_alone(ask, within);
                self.inner.awake.look_for(answer).await
            }
            Goes::Alone(ask, _under_way) => self.attempt_alone(ask, within).await,
            Goes::Together(told, _under_way) => {
                let url = &self.inner.url;
                match tokio::time::timeout(within, told).await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(_)) => Err(Lost::Sent(format!("nobody waits for {url} any more"))),
                    Err(_) => Err(Lost::Sent(format!("{url} did not answer in time"))),
                }
            }
        }
    }

    async fn attempt_alone(&self, ask: Ask, within: Duration) -> Result<Answered, Lost> {
        let Inner {
            url, host, pool, ..
        } = &*self.inner;
        let give_up = tokio::time::Instant::now() + within;
        let mut connection: Connection = tokio::time::timeout_at(give_up, pool.borrow(url))
            .await
            .map_err(|_| Lost::Unsent(format!("{url} cannot be reached in time")))??;
        let request = self.request(ask)?;
        let sent = host.boot_time();
        let exchange = connection.exchange(request);
        let Ok(answer) = tokio::time::timeout_at(give_up, exchange).await else {
            pool.clear();
            return Err(Lost::Sent(format!("{url} did not answer in time")));
        };
        let (status, body) = answer.map_err(|lost| match lost {
            Lost::Unsent(why) => Lost::Unsent(format!("{url} has gone: {why}")),
            Lost::Sent(why) => Lost::Sent(format!("{url} gave no answer: {why}")),
            other => other,
        })?;
        pool.give_back(connection).await;
        // Something in between speaks for a service that it could not reach, or that did not answer it.
        if status.is_server_error() && serde_json::from_slice::<Problem>(&body).is_err() {
            return Err(Lost::Sent(format!("{url} answered with {status}")));
        }
        Ok(Answered {
            status,
            body,
            sent,
            repeated: false,
        })
    }

    fn request(&self, ask: Ask) -> Result<Request<Full<Bytes>>, Lost> {
        let mut target = ask.target;
        let mut header = None;
        if let Some(nonce) = &ask.nonce {
            // Out of the URL, where logs would see it; but not every nonce fits into a header.
            if nonce.expose().bytes().all(|byte| byte.is_ascii_graphic()) {
                header = HeaderValue::from_str(nonce.expose()).ok();
            } else {
                target = target.with("nonce", nonce.expose());
            }
        }
        let mut request = Request::builder()
            .method(ask.method)
            .uri(target.into_string())
            .header(HOST, &self.inner.url.authority)
            .body(Full::new(ask.body))
            .map_err(|error| Lost::Unsent(format!("no request: {error}")))?;
        if let Some(token) = &self.inner.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        if let Some(mut nonce) = header {
            nonce.set_sensitive(true);
            request.headers_mut().insert(NONCE_HEADER, nonce);
        }
        Ok(request)
    }

    /// Between half of and all of the pause that is due before this attempt: clients must not come back in step.
    fn pause(&self, attempt: u32) -> Duration {
        let longest = PAUSE * 2_u32.pow(attempt - 1);
        let thousandths = u32::try_from(self.inner.host.random() % 500).unwrap_or_default();
        longest / 2 + longest * thousandths / 1_000
    }
}

/// What is left of a wait, in milliseconds as it is sent: one that has begun counts, or the wait would end too soon.
fn wait_left(wait: Duration, elapsed: Duration) -> Duration {
    let micros = wait.saturating_sub(elapsed).as_micros();
    Duration::from_millis(u64::try_from(micros.div_ceil(1_000)).unwrap_or(u64::MAX))
}

impl Answered {
    /// What the answer says, if it says anything that a service would.
    fn read<T: DeserializeOwned>(&self, url: &ServiceUrl) -> Result<T> {
        if self.status.is_success() {
            serde_json::from_slice(&self.body).map_err(|_| self.foreign(url))
        } else {
            match self
                .problem(url)
                .map_or_else(|foreign| foreign, Error::from)
            {
                // Only of the last attempt is it known that nothing happened.
                Error::Unavailable(why) if self.repeated => Err(Error::Indeterminate(format!(
                    "{why}; an answer was lost before: look before you try again"
                ))),
                error => Err(error),
            }
        }
    }

    fn problem(&self, url: &ServiceUrl) -> Result<Problem> {
        serde_json::from_slice(&self.body).map_err(|_| self.foreign(url))
    }

    fn foreign(&self, url: &ServiceUrl) -> Error {
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
    fn a_wait_does_not_end_before_it_is_over() {
        let wait = Duration::from_millis(150);
        for (micros, left) in [(0, 150), (1, 150), (999, 150), (1_000, 149), (150_000, 0)] {
            let left = Duration::from_millis(left);
            assert_eq!(wait_left(wait, Duration::from_micros(micros)), left);
        }
    }
}
