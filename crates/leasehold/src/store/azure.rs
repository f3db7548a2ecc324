//! Microsoft Entra ID: who this program is to Azure.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::{Secret, TokenCredential};
use azure_core::error::{Error, ErrorKind, Result};
use azure_core::http::headers::{HeaderName, HeaderValue, Headers};
use azure_core::http::{AsyncRawResponse, ClientOptions, HttpClient, Request, Transport};
use azure_identity::{
    AzureCliCredential, ClientAssertionCredentialOptions, ClientSecretCredential,
    ClientSecretCredentialOptions, ManagedIdentityCredential, ManagedIdentityCredentialOptions,
    UserAssignedId, WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;

/// Connections to anywhere.
pub(super) type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// What the environment says: an application with a secret, or a Kubernetes workload; otherwise the managed identity of this
/// machine or App Service. Asks nobody before a token is needed.
pub(super) fn of_environment(http: Http) -> Result<Arc<dyn TokenCredential>> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let client_options = ClientOptions {
        transport: Some(Transport::new(Arc::new(Carrier(http)))),
        ..ClientOptions::default()
    };
    if let Some(secret) = variable("AZURE_CLIENT_SECRET") {
        return Ok(ClientSecretCredential::new(
            &variable("AZURE_TENANT_ID").unwrap_or_default(),
            variable("AZURE_CLIENT_ID").unwrap_or_default(),
            Secret::new(secret),
            Some(ClientSecretCredentialOptions { client_options }),
        )?);
    }
    if variable("AZURE_FEDERATED_TOKEN_FILE").is_some() {
        let credential_options = ClientAssertionCredentialOptions { client_options };
        let options = WorkloadIdentityCredentialOptions {
            credential_options,
            ..WorkloadIdentityCredentialOptions::default()
        };
        return Ok(WorkloadIdentityCredential::new(Some(options))?);
    }
    let options = ManagedIdentityCredentialOptions {
        user_assigned_id: variable("AZURE_CLIENT_ID").map(UserAssignedId::ClientId),
        client_options,
    };
    Ok(ManagedIdentityCredential::new(Some(options))?)
}

/// Whoever has run `az login` on this machine.
pub(super) fn of_login() -> Result<Arc<dyn TokenCredential>> {
    Ok(AzureCliCredential::new(None)?)
}

/// Takes Azure's requests where they are to go, over the library's own connections.
struct Carrier(Http);

impl std::fmt::Debug for Carrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Carrier")
    }
}

#[async_trait]
impl HttpClient for Carrier {
    async fn execute_request(&self, request: &Request) -> Result<AsyncRawResponse> {
        let mut carried = hyper::Request::builder()
            .method(request.method().as_ref())
            .uri(request.url().as_str());
        for (name, value) in request.headers().iter() {
            carried = carried.header(name.as_str(), value.as_str());
        }
        let carried = carried
            .body(Full::new(Bytes::from(request.body())))
            .map_err(|error| Error::new(ErrorKind::DataConversion, error))?;
        let lost = |error| Error::new(ErrorKind::Io, error);
        let answer = self.0.request(carried).await;
        let (head, body) = answer
            .map_err(|error| Error::new(ErrorKind::Io, error))?
            .into_parts();
        let mut headers = Headers::new();
        for (name, value) in &head.headers {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            headers.insert(
                HeaderName::from(name.as_str().to_owned()),
                HeaderValue::from(value),
            );
        }
        let body = body.collect().await.map_err(lost)?.to_bytes();
        Ok(AsyncRawResponse::from_bytes(
            head.status.as_u16().into(),
            headers,
            body,
        ))
    }
}
