//! Shared by the Azure stores: connections, and this process's identity in Entra ID.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use azure_core::credentials::TokenCredential;
use azure_core::error::ErrorKind;
use azure_core::http::headers::Headers;
use azure_core::http::{AsyncRawResponse, Body, ClientOptions, Request, Transport};
use azure_identity::{
    ClientAssertionCredentialOptions, ClientSecretCredential, ClientSecretCredentialOptions,
    DeveloperToolsCredential, ManagedIdentityCredential, ManagedIdentityCredentialOptions,
    UserAssignedId, WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::DATE;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use leasehold_core::Stamp;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

use super::date;
use crate::{Error, Result};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(2);
/// How long an idle connection is kept: less than Azure's front ends keep it.
const IDLE: Duration = Duration::from_secs(60);
/// The same for emulators, without TLS: Node.js closes an idle connection after five seconds.
const IDLE_EMULATOR: Duration = Duration::from_secs(3);

/// A pool of HTTP connections. It uses hyper, which the library depends on anyway, instead of the SDK's reqwest.
pub(super) type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The connections of a store. If one fails, all are dropped, because the others may have failed too.
#[derive(Debug)]
pub(super) struct Connections {
    http: Mutex<Http>,
    tls: ClientConfig,
    idle: Duration,
}

impl Connections {
    pub(super) fn new(is_plain: bool) -> Result<Self> {
        let tls = tls(is_plain)?;
        let idle = if is_plain { IDLE_EMULATOR } else { IDLE };
        Ok(Self {
            http: Mutex::new(connections(&tls, idle)),
            tls,
            idle,
        })
    }

    pub(super) fn current(&self) -> Http {
        self.http().clone()
    }

    /// Replaces the connections for later requests. Requests in progress continue.
    pub(super) fn reset(&self) {
        *self.http() = connections(&self.tls, self.idle);
    }

    fn http(&self) -> MutexGuard<'_, Http> {
        self.http.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn connections(tls: &ClientConfig, idle: Duration) -> Http {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_nodelay(true);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls.clone())
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    Client::builder(TokioExecutor::new())
        .pool_idle_timeout(idle)
        .pool_timer(TokioTimer::new())
        .build(connector)
}

/// Trusts the system's certificates; without TLS, none are needed. Uses ring because AWS-LC needs a C compiler and
/// takes minutes to build.
fn tls(is_plain: bool) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    if !is_plain {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(Error::Denied(
                "this system has no trusted certificates: install `ca-certificates`, or set SSL_CERT_FILE"
                    .into(),
            ));
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Denied(format!("TLS cannot be used: {error}")))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Sends a request of the SDK once. Returns the response and its time.
pub(super) async fn send(
    http: &Http,
    request: &Request,
) -> azure_core::Result<(AsyncRawResponse, Option<Stamp>)> {
    let answer = http.request(outgoing(request)?).await.map_err(|error| {
        let kind = match error.is_connect() {
            true => ErrorKind::Connection,
            false => ErrorKind::Io,
        };
        azure_core::Error::new(kind, error)
    })?;
    let (head, body) = answer.into_parts();
    let date = head.headers.get(DATE);
    let stamp = date.and_then(|date| date::stamp(date.to_str().ok()?));
    let mut headers = Headers::new();
    for (name, value) in &head.headers {
        if let Ok(value) = value.to_str() {
            headers.insert(name.as_str().to_owned(), value.to_owned());
        }
    }
    let body = body.collect().await;
    let body = body.map_err(|error| azure_core::Error::new(ErrorKind::Io, error))?;
    let status = head.status.as_u16().into();
    let response = AsyncRawResponse::from_bytes(status, headers, body.to_bytes());
    Ok((response, stamp))
}

fn outgoing(request: &Request) -> azure_core::Result<hyper::Request<Full<Bytes>>> {
    let Body::Bytes(body) = request.body() else {
        let problem = "streaming request bodies are not supported";
        return Err(azure_core::Error::with_message(ErrorKind::Other, problem));
    };
    let mut outgoing = hyper::Request::builder()
        .method(request.method().as_str())
        .uri(request.url().as_str());
    for (name, value) in request.headers().iter() {
        outgoing = outgoing.header(name.as_str(), value.as_str());
    }
    outgoing
        .body(Full::new(body.clone()))
        .map_err(|error| azure_core::Error::new(ErrorKind::DataConversion, error))
}

/// Returns the identity that the environment describes: a service principal, a workload, or else the machine's.
/// Requests no token yet.
pub(super) fn identity(
    environment: impl Fn(&str) -> Option<String>,
    transport: Transport,
) -> Result<Arc<dyn TokenCredential>> {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    let client_options = ClientOptions {
        transport: Some(transport),
        ..ClientOptions::default()
    };
    let client = set("AZURE_CLIENT_ID");
    let secret = set("AZURE_CLIENT_SECRET");
    Ok(match (set("AZURE_TENANT_ID"), client, secret) {
        (Some(tenant), Some(client), Some(secret)) => {
            let options = ClientSecretCredentialOptions { client_options };
            ClientSecretCredential::new(&tenant, client, secret.into(), Some(options))
                .map_err(unusable)?
        }
        _ if set("AZURE_FEDERATED_TOKEN_FILE").is_some() => {
            let options = WorkloadIdentityCredentialOptions {
                credential_options: ClientAssertionCredentialOptions { client_options },
                ..WorkloadIdentityCredentialOptions::default()
            };
            WorkloadIdentityCredential::new(Some(options)).map_err(unusable)?
        }
        (_, client, _) => {
            let options = ManagedIdentityCredentialOptions {
                user_assigned_id: client.map(UserAssignedId::ClientId),
                client_options,
            };
            ManagedIdentityCredential::new(Some(options)).map_err(unusable)?
        }
    })
}

/// Returns the identity of the developer tools' login on this machine.
pub(super) fn developer_identity() -> Result<Arc<dyn TokenCredential>> {
    Ok(DeveloperToolsCredential::new(None).map_err(unusable)?)
}

fn unusable(error: azure_core::Error) -> Error {
    Error::Denied(format!(
        "cannot use Entra ID: {error}: fix the AZURE_… environment variables"
    ))
}
