//! Cosmos DB by its REST API: connections, requests, and the time that every answer tells.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, DATE, ETAG, HeaderMap};
use hyper::http::response::Parts;
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::Error as HttpError;
use leasehold_core::{Stamp, Text};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::{Instant, timeout_at};

use super::auth::Auth;
use super::failure::{self, Doubt};
use super::options::Options;
use crate::store::azure::{Connections, Http};
use crate::store::date;
use crate::{Error, Result};

/// How long a call may take; below an engine's own limit.
pub(super) const PATIENCE: Duration = Duration::from_secs(4);
/// The REST API as of then.
const API_VERSION: &str = "2020-07-15";

/// All but what means itself everywhere in a URL.
pub(super) const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    /// `docs`, `colls`, …
    pub(super) of_type: &'static str,
    /// By which ids one gets there: `dbs/D/colls/C`.
    pub(super) link: String,
    /// Whether all of that type there are meant, rather than the one that the link leads to.
    pub(super) is_feed: bool,
}

impl Resource {
    fn path(&self) -> String {
        // What stands between ids stays.
        const IN_PATHS: &AsciiSet = &RESERVED.remove(b'/');
        let link = utf8_percent_encode(&self.link, IN_PATHS);
        match (self.is_feed, self.link.is_empty()) {
            (false, _) => format!("/{link}"),
            (true, true) => format!("/{}", self.of_type),
            (true, false) => format!("/{link}/{}", self.of_type),
        }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) resource: Resource,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Bytes,
    pub(super) doubt: Doubt,
}

/// An answer, whatever it says.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// What the status leaves open; 0 if it says it all.
    pub(super) substatus: u32,
    pub(super) stamp: Stamp,
    pub(super) etag: Option<Text>,
    /// Where a feed goes on.
    pub(super) continuation: Option<String>,
    /// When to try again.
    retry_after: Option<Duration>,
    pub(super) body: Bytes,
}

/// Calls to an account.
pub(super) struct Client {
    connections: Connections,
    endpoint: Uri,
    auth: Auth,
}

impl Client {
    pub(super) fn new(options: &Options) -> Result<Self> {
        let connections = Connections::new(options.is_plain())?;
        Ok(Self {
            auth: Auth::new(options, &connections.current())?,
            connections,
            endpoint: options.endpoint.clone(),
        })
    }

    /// Asks, and again if there was too much at once.
    pub(super) async fn ask(&self, ask: &Ask, deadline: Instant) -> Result<Reply> {
        loop {
            let reply = self.ask_once(ask, deadline).await?;
            let is_busy = matches!(reply.status, 429 | 449);
            let pause = reply.retry_after.unwrap_or(Duration::from_millis(20));
            if !is_busy || Instant::now() + pause >= deadline {
                return Ok(reply);
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn ask_once(&self, ask: &Ask, deadline: Instant) -> Result<Reply> {
        let late = |doubt| failure::lost("Cosmos DB does not answer".into(), doubt);
        let request = timeout_at(deadline, self.request(ask));
        // Nothing of it was sent.
        let request = request.await.map_err(|_| late(Doubt::None))??;
        let exchanging = async {
            let exchanged = exchange(&self.connections.current(), request.clone()).await;
            match exchanged {
                // The server may have closed an idle connection just then. A read can be repeated, on a new one.
                Err(broken) if ask.doubt == Doubt::None && !broken.is_unreachable() => {
                    self.connections.give_up();
                    exchange(&self.connections.current(), request).await
                }
                exchanged => exchanged,
            }
        };
        match timeout_at(deadline, exchanging).await {
            Ok(Ok((head, body))) => {
                let status = head.status.as_u16();
                // The write region may be another one now, and the account's name lead there.
                if status == 403 {
                    self.connections.give_up();
                }
                Reply::new(status, &head.headers, body).ok_or_else(|| silent(ask.doubt))
            }
            Ok(Err(broken)) => {
                self.connections.give_up();
                Err(broken.into_error(ask.doubt))
            }
            Err(_) => {
                self.connections.give_up();
                Err(late(ask.doubt))
            }
        }
    }

    async fn request(&self, ask: &Ask) -> Result<Request<Full<Bytes>>> {
        let date = date_of_now();
        let authorization = self
            .auth
            .authorization(&ask.method, &ask.resource, &date)
            .await?;
        let uri = Uri::builder()
            .scheme(self.endpoint.scheme_str().unwrap_or("https"))
            .authority(
                self.endpoint
                    .authority()
                    .map_or("", |authority| authority.as_str()),
            )
            .path_and_query(ask.resource.path())
            .build()
            .map_err(|_| Error::invalid("the endpoint in the store URL cannot be used"))?;
        let mut request = Request::builder()
            .method(&ask.method)
            .uri(uri)
            .header(AUTHORIZATION, authorization)
            .header("x-ms-date", date)
            .header("x-ms-version", API_VERSION);
        for (name, value) in &ask.headers {
            request = request.header(*name, value);
        }
        request
            .body(Full::new(ask.body.clone()))
            .map_err(|_| Error::invalid("that version was not made by this store"))
    }
}

impl Reply {
    /// `None`: it does not tell the time.
    fn new(status: u16, headers: &HeaderMap, body: Bytes) -> Option<Self> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let number = |name: &str| text(name).and_then(|text| text.parse().ok());
        let millis: Option<f64> = text("x-ms-retry-after-ms").and_then(|text| text.parse().ok());
        let continuation = text("x-ms-continuation").filter(|token| !token.is_empty());
        Some(Self {
            status,
            substatus: number("x-ms-substatus").unwrap_or(0),
            stamp: date::stamp(text(DATE.as_str())?)?,
            etag: text(ETAG.as_str()).map(Into::into),
            continuation: continuation.map(str::to_owned),
            retry_after: millis.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok()),
            body,
        })
    }

    #[cfg(test)]
    pub(super) fn of(status: u16, substatus: u32, body: &'static str) -> Self {
        Self {
            status,
            substatus,
            stamp: Stamp {
                time: leasehold_core::Time::from_micros(1),
                resolution: Duration::from_secs(1),
            },
            etag: None,
            continuation: None,
            retry_after: None,
            body: Bytes::from_static(body.as_bytes()),
        }
    }

    /// What it says, as JSON.
    pub(super) fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_slice(&self.body).map_err(|_| failure::odd())
    }
}

/// Sends a request, and reads the whole answer.
async fn exchange(
    http: &Http,
    request: Request<Full<Bytes>>,
) -> std::result::Result<(Parts, Bytes), Broken> {
    let response = http.request(request).await.map_err(Broken::Request)?;
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(Broken::Answer)?;
    Ok((head, body.to_bytes()))
}

/// How an exchange went wrong.
enum Broken {
    Request(HttpError),
    Answer(hyper::Error),
}

impl Broken {
    /// Whether there was no connection, so that nothing was sent.
    fn is_unreachable(&self) -> bool {
        matches!(self, Self::Request(error) if error.is_connect())
    }

    fn into_error(self, doubt: Doubt) -> Error {
        let is_unreachable = self.is_unreachable();
        let causes: &dyn std::error::Error = match &self {
            Self::Request(error) => error,
            Self::Answer(error) => error,
        };
        let cause = std::iter::successors(Some(causes), |error| error.source()).last();
        let cause = cause.map_or_else(String::new, ToString::to_string);
        match self {
            Self::Request(_) if is_unreachable => Error::Unavailable(format!(
                "Cosmos DB cannot be reached: {cause}: are account and `endpoint` (http or https) in the store URL right?"
            )),
            _ => failure::lost(
                format!("the connection to Cosmos DB was lost: {cause}"),
                doubt,
            ),
        }
    }
}

fn silent(doubt: Doubt) -> Error {
    let problem = "the answers of Cosmos DB have no `Date`, by which leases expire: what is at the `endpoint`?";
    match doubt {
        Doubt::None => Error::Denied(problem.into()),
        doubt => failure::lost(problem.into(), doubt),
    }
}

/// This machine's wall clock, which a request must be signed with. Nothing else depends on it.
fn date_of_now() -> String {
    jiff::fmt::rfc2822::DateTimePrinter::new()
        .timestamp_to_rfc9110_string(&jiff::Timestamp::now())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_what_is_asked_for() {
        for (of_type, link, is_feed, path) in [
            ("", "", false, "/"),
            ("dbs", "", true, "/dbs"),
            (
                "docs",
                "dbs/a b/colls/ü",
                true,
                "/dbs/a%20b/colls/%C3%BC/docs",
            ),
            (
                "docs",
                "dbs/d/colls/c/docs/lock.a~2Fb",
                false,
                "/dbs/d/colls/c/docs/lock.a~2Fb",
            ),
        ] {
            let link = link.to_owned();
            let resource = Resource {
                of_type,
                link,
                is_feed,
            };
            assert_eq!(resource.path(), path);
        }
    }
}
