//! Authenticates requests: with a key that signs each request, or a token of Microsoft Entra ID.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, Secret, TokenCredential};
use azure_core::hmac::hmac_sha256;
use azure_core::http::{AsyncRawResponse, HttpClient, Request, Transport};
use azure_core::time::OffsetDateTime;
use hyper::Method;
use percent_encoding::utf8_percent_encode;
use tokio::sync::Mutex;

use super::client::{RESERVED, Resource};
use super::options::{CosmosOptions, Credential};
use crate::store::azure::{self, Http};
use crate::{Error, Result};

/// How long before its expiry a token is renewed.
const RENEWAL_LEAD: Duration = Duration::from_secs(300);

/// The authentication.
pub(super) enum Auth {
    Key(Secret),
    Token {
        credential: Arc<dyn TokenCredential>,
        scope: String,
        current: Mutex<Option<AccessToken>>,
    },
}

impl Auth {
    pub(super) fn new(options: &CosmosOptions, http: &Http) -> Result<Self> {
        let credential = match &options.credential {
            Credential::Key(key) => return Ok(Self::Key(key.clone())),
            Credential::Entra => {
                let transport = Transport::new(Arc::new(TokenTransport(http.clone())));
                azure::identity(|name| std::env::var(name).ok(), transport)?
            }
            Credential::Cli => azure::developer_identity()?,
        };
        let host = options.endpoint.host().unwrap_or_default();
        Ok(Self::Token {
            credential,
            scope: format!("https://{host}/.default"),
            current: Mutex::default(),
        })
    }

    /// Returns the `authorization` header of a request.
    pub(super) async fn authorization(
        &self,
        method: &Method,
        resource: &Resource,
        date: &str,
    ) -> Result<String> {
        let plain = match self {
            Self::Key(key) => format!(
                "type=master&ver=1.0&sig={}",
                sign(key, method, resource, date)?
            ),
            Self::Token {
                credential,
                scope,
                current,
            } => {
                let mut current = current.lock().await;
                let is_good = |token: &AccessToken| {
                    OffsetDateTime::now_utc() + RENEWAL_LEAD < token.expires_on
                };
                let token = match current.take().filter(is_good) {
                    Some(token) => token,
                    None => credential
                        .get_token(&[scope], None)
                        .await
                        .map_err(|error| denied(&error))?,
                };
                let plain = format!("type=aad&ver=1.0&sig={}", token.token.secret());
                *current = Some(token);
                plain
            }
        };
        Ok(utf8_percent_encode(&plain, RESERVED).to_string())
    }
}

/// Sends token requests over the store's own connections.
#[derive(Debug)]
struct TokenTransport(Http);

#[async_trait]
impl HttpClient for TokenTransport {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let (answer, _) = azure::send(&self.0, request).await?;
        Ok(answer)
    }
}

fn sign(key: &Secret, method: &Method, resource: &Resource, date: &str) -> Result<String> {
    let method = method.as_str().to_ascii_lowercase();
    let date = date.to_ascii_lowercase();
    let Resource { of_type, link, .. } = resource;
    hmac_sha256(&format!("{method}\n{of_type}\n{link}\n{date}\n\n"), key).map_err(|_| {
        Error::invalid("the key for Cosmos DB is not base64: copy it from Azure unchanged")
    })
}

fn denied(error: &azure_core::Error) -> Error {
    Error::Denied(format!(
        "cannot get a token from Microsoft Entra ID: {error}: set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or run \
         with a workload or managed identity; `auth=cli` uses `az login`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Microsoft's REST API documentation.
    #[tokio::test]
    async fn signature_matches_microsofts_example() {
        let key = "dsZQi3KtZmCv1ljt3VNWNm7sQUF1y5rJfC6kv5JiwvW0EndXdDku/dkKBp8/ufDToSxLzR4y+O/0H/t4bQtVNw==";
        let auth = Auth::Key(Secret::new(key));
        let resource = Resource {
            of_type: "dbs",
            link: "dbs/ToDoList".to_owned(),
            is_feed: false,
        };
        let signed = auth
            .authorization(&Method::GET, &resource, "Thu, 27 Apr 2017 00:51:12 GMT")
            .await
            .unwrap();
        assert_eq!(
            signed.to_lowercase(),
            "type%3dmaster%26ver%3d1.0%26sig%3dc09pevjrgp2uqrkr934kfbtqhbyc7tvr3ohyqlu%2bc%2bc%3d"
        );
    }
}
