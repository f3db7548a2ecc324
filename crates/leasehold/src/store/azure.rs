//! What the stores on Azure share: connections, and who this process is to Entra ID.

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

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(2);
/// Below what Azure's front ends wait before they close an unused connection.
const IDLE: Duration = Duration::from_secs(60);
/// The same without TLS, as emulators are used: Node.js closes an idle connection after five seconds.
const IDLE_EMULATOR: Duration = Duration::from_secs(3);

/// Connections that are kept for the next request: hyper, which the library has already, instead of the SDK's reqwest.
pub(super) type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The connections of a store. All are dropped when one of them fails: the others may be as dead.
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

    /// The next request makes a new connection. Requests under way go on.
    pub(super) fn give_up(&self) {
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

/// Trusts whom this machine trusts; where nothing is encrypted, nobody has to be. Ring rather than AWS-LC, which takes a C compiler
/// and minutes to build.
fn tls(is_plain: bool) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    if !is_plain {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(Error::Denied(
                "this machine trusts nobody: install `ca-certificates`, or set SSL_CERT_FILE"
                    .into(),
            ));
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Denied(format!("TLS cannot be used: {error}")))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Sends a request of the SDK, once. The answer, and the time that it tells.
pub(super) async fn carry(
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
        let problem = "a record is no stream";
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

/// The identity that the environment describes: a service principal, a workload, or else that of the machine. Nobody is asked before
/// a token is needed.
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

/// Whoever has logged in on this machine.
pub(super) fn logged_in() -> Result<Arc<dyn TokenCredential>> {
    Ok(DeveloperToolsCredential::new(None).map_err(unusable)?)
}

fn unusable(error: azure_core::Error) -> Error {
    Error::Denied(format!(
        "Entra ID cannot be used like this: {error}: mend the AZURE_… variables of the environment"
    ))
}
