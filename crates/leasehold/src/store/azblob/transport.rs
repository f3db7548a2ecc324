//! How requests get to Azure, and what is seen of them on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::Headers;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{AsyncRawResponse, Body, Context, Request, Transport, Url};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::DATE;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use leasehold_core::Stamp;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

use crate::store::date;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(2);
/// Below what Azure's front ends wait before they close an unused connection.
const IDLE: Duration = Duration::from_secs(60);

/// Goes with one request. Clones are the same witness.
#[derive(Clone, Debug, Default)]
pub(super) struct Witness(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    sent: AtomicBool,
    stamp: Mutex<Option<Stamp>>,
}

impl Witness {
    /// Whether anything of it may have left this machine.
    pub(super) fn was_sent(&self) -> bool {
        self.0.sent.load(Ordering::SeqCst)
    }

    /// The time in the answer's `Date`, be it an error or not.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        *self.0.stamp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self, stamp: Option<Stamp>) {
        *self.0.stamp.lock().unwrap_or_else(PoisonError::into_inner) = stamp;
    }
}

/// Hyper, which the library has already, instead of the SDK's reqwest.
#[derive(Debug)]
struct Wire(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

/// What sends requests: once each, on connections that are kept for the next.
pub(super) fn transport(endpoint: &Url) -> Result<Transport, rustls::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_nodelay(true);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls(endpoint)?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    let client = Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .pool_timer(hyper_util::rt::TokioTimer::new())
        .build(connector);
    Ok(Transport::with_policy(Arc::new(Wire(client))))
}

fn tls(endpoint: &Url) -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    // An emulator on a machine without any needs none.
    if endpoint.scheme() == "https" {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    Ok(config.with_no_client_auth())
}

#[async_trait]
#[expect(elided_lifetimes_in_paths, reason = "as the trait has it")]
impl Policy for Wire {
    async fn send(
        &self,
        context: &Context,
        request: &mut Request,
        _: &[Arc<dyn Policy>],
    ) -> PolicyResult {
        let outgoing = outgoing(request)?;
        let witness = context.value::<Witness>();
        if let Some(witness) = witness {
            witness.0.sent.store(true, Ordering::SeqCst);
        }
        let answer = self.0.request(outgoing).await.map_err(|error| {
            let kind = match error.is_connect() {
                true => ErrorKind::Connection,
                false => ErrorKind::Io,
            };
            Error::new(kind, error)
        })?;
        let (head, body) = answer.into_parts();
        if let Some(witness) = witness {
            let date = head.headers.get(DATE);
            witness.see(date.and_then(|date| date::stamp(date.to_str().ok()?)));
        }
        let mut headers = Headers::new();
        for (name, value) in &head.headers {
            if let Ok(value) = value.to_str() {
                headers.insert(name.as_str().to_owned(), value.to_owned());
            }
        }
        let body = body.collect().await;
        let body = body.map_err(|error| Error::new(ErrorKind::Io, error))?;
        let status = head.status.as_u16().into();
        Ok(AsyncRawResponse::from_bytes(
            status,
            headers,
            body.to_bytes(),
        ))
    }
}

fn outgoing(request: &Request) -> azure_core::Result<hyper::Request<Full<Bytes>>> {
    let Body::Bytes(body) = request.body() else {
        return Err(Error::with_message(
            ErrorKind::Other,
            "a record is no stream",
        ));
    };
    let mut outgoing = hyper::Request::builder()
        .method(request.method().as_str())
        .uri(request.url().as_str());
    for (name, value) in request.headers().iter() {
        outgoing = outgoing.header(name.as_str(), value.as_str());
    }
    outgoing
        .body(Full::new(body.clone()))
        .map_err(|error| Error::new(ErrorKind::DataConversion, error))
}
