//! A client of Cosmos DB's REST API: connections, requests, and the time of each answer.

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
use super::failure::{self, Ambiguity};
use super::options::CosmosOptions;
use crate::store::azure::{Connections, Http};
use crate::store::date;
use crate::{Error, Result};

/// How long a call may take: less than the engine's own limit.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(4);
/// The version of the REST API.
const API_VERSION: &str = "2020-07-15";

/// Every character that must be encoded in some part of a URL.
pub(super) const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// The resource of a request.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    /// The type: `docs`, `colls`, …
    pub(super) of_type: &'static str,
    /// The path of ids: `dbs/D/colls/C`.
    pub(super) link: String,
    /// Whether it is all resources of that type under the link, rather than the linked one.
    pub(super) is_feed: bool,
}

impl Resource {
    fn path(&self) -> String {
        // The separators between ids are not encoded.
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
pub(super) struct ApiRequest {
    pub(super) method: Method,
    pub(super) resource: Resource,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Bytes,
    pub(super) ambiguity: Ambiguity,
}

/// An answer with any status.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// The detailed status; 0 if there is none.
    pub(super) substatus: u32,
    pub(super) stamp: Stamp,
    pub(super) etag: Option<Text>,
    /// The continuation token of a feed.
    pub(super) continuation: Option<String>,
    /// When to retry.
    retry_after: Option<Duration>,
    pub(super) body: Bytes,
}

/// A client of an account.
pub(super) struct Client {
    connections: Connections,
    endpoint: Uri,
    auth: Auth,
}

impl Client {
    pub(super) fn new(options: &CosmosOptions) -> Result<Self> {
        let connections = Connections::new(options.is_plain())?;
        Ok(Self {
            auth: Auth::new(options, &connections.current())?,
            connections,
            endpoint: options.endpoint.clone(),
        })
    }

    /// Sends a request, and retries it when it was throttled.
    pub(super) async fn send(&self, request: &ApiRequest, deadline: Instant) -> Result<Reply> {
        loop {
            let reply = self.send_once(request, deadline).await?;
            let is_busy = matches!(reply.status, 429 | 449);
            let pause = reply.retry_after.unwrap_or(Duration::from_millis(20));
            if !is_busy || Instant::now() + pause >= deadline {
                return Ok(reply);
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn send_once(&self, request: &ApiRequest, deadline: Instant) -> Result<Reply> {
        let late = |ambiguity| failure::unanswered("Cosmos DB does not answer".into(), ambiguity);
        let signed = timeout_at(deadline, self.sign(request));
        // Nothing was sent.
        let signed = signed.await.map_err(|_| late(Ambiguity::None))??;
        let exchanging = async {
            let answer = exchange(&self.connections.current(), signed.clone()).await;
            match answer {
                // The server may have just closed an idle connection. A read can be repeated on a new one.
                Err(failure)
                    if request.ambiguity == Ambiguity::None && !failure.is_unreachable() =>
                {
                    self.connections.reset();
                    exchange(&self.connections.current(), signed).await
                }
                answer => answer,
            }
        };
        match timeout_at(deadline, exchanging).await {
            Ok(Ok((head, body))) => {
                let status = head.status.as_u16();
                // The write region may have changed, and the account's host name may lead to the new one.
                if status == 403 {
                    self.connections.reset();
                }
                Reply::new(status, &head.headers, body)
                    .ok_or_else(|| missing_date(request.ambiguity))
            }
            Ok(Err(failure)) => {
                self.connections.reset();
                Err(failure.into_error(request.ambiguity))
            }
            Err(_) => {
                self.connections.reset();
                Err(late(request.ambiguity))
            }
        }
    }

    async fn sign(&self, request: &ApiRequest) -> Result<Request<Full<Bytes>>> {
        let date = date_of_now();
        let authorization = self
            .auth
            .authorization(&request.method, &request.resource, &date)
            .await?;
        let uri = Uri::builder()
            .scheme(self.endpoint.scheme_str().unwrap_or("https"))
            .authority(
                self.endpoint
                    .authority()
                    .map_or("", |authority| authority.as_str()),
            )
            .path_and_query(request.resource.path())
            .build()
            .map_err(|_| Error::invalid("the `endpoint` in the store URL is invalid"))?;
        let mut signed = Request::builder()
            .method(&request.method)
            .uri(uri)
            .header(AUTHORIZATION, authorization)
            .header("x-ms-date", date)
            .header("x-ms-version", API_VERSION);
        for (name, value) in &request.headers {
            signed = signed.header(*name, value);
        }
        signed
            .body(Full::new(request.body.clone()))
            .map_err(|_| Error::invalid("the version is not from this store"))
    }
}

impl Reply {
    /// Reads an answer's head; `None` if it has no time.
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

    /// Parses the body as JSON.
    pub(super) fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_slice(&self.body).map_err(|_| failure::unexpected_answer())
    }
}

/// Sends a request and reads the whole answer.
async fn exchange(
    http: &Http,
    request: Request<Full<Bytes>>,
) -> std::result::Result<(Parts, Bytes), ExchangeError> {
    let response = http
        .request(request)
        .await
        .map_err(ExchangeError::Request)?;
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(ExchangeError::Answer)?;
    Ok((head, body.to_bytes()))
}

/// The failure of an exchange.
enum ExchangeError {
    Request(HttpError),
    Answer(hyper::Error),
}

impl ExchangeError {
    /// Returns whether connecting failed, so that nothing was sent.
    fn is_unreachable(&self) -> bool {
        matches!(self, Self::Request(error) if error.is_connect())
    }

    fn into_error(self, ambiguity: Ambiguity) -> Error {
        let is_unreachable = self.is_unreachable();
        let causes: &dyn std::error::Error = match &self {
            Self::Request(error) => error,
            Self::Answer(error) => error,
        };
        let cause = std::iter::successors(Some(causes), |error| error.source()).last();
        let cause = cause.map_or_else(String::new, ToString::to_string);
        match self {
            Self::Request(_) if is_unreachable => Error::Unavailable(format!(
                "cannot connect to Cosmos DB: {cause}: check account and `endpoint` (http or https) in the store URL"
            )),
            _ => failure::unanswered(
                format!("the connection to Cosmos DB was lost: {cause}"),
                ambiguity,
            ),
        }
    }
}

fn missing_date(ambiguity: Ambiguity) -> Error {
    let problem = "the answers of Cosmos DB have no `Date` header, which leases require: check the `endpoint` in the store URL";
    match ambiguity {
        Ambiguity::None => Error::Denied(problem.into()),
        ambiguity => failure::unanswered(problem.into(), ambiguity),
    }
}

/// Returns the wall clock's date, with which requests must be signed. Nothing else depends on it.
fn date_of_now() -> String {
    jiff::fmt::rfc2822::DateTimePrinter::new()
        .timestamp_to_rfc9110_string(&jiff::Timestamp::now())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_paths_are_encoded() {
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
