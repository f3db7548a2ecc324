//! Who asks: a key that signs each request, or a token of Microsoft Entra ID.

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
use super::options::{Options, Who};
use crate::store::azure::{self, Http};
use crate::{Error, Result};

/// A token is renewed so long before it ends.
const EARLY: Duration = Duration::from_secs(300);

/// Who asks.
pub(super) enum Auth {
    Key(Secret),
    Token {
        credential: Arc<dyn TokenCredential>,
        scope: String,
        current: Mutex<Option<AccessToken>>,
    },
}

impl Auth {
    pub(super) fn new(options: &Options, http: &Http) -> Result<Self> {
        let credential = match &options.who {
            Who::Key(key) => return Ok(Self::Key(key.clone())),
            Who::Entra => {
                let transport = Transport::new(Arc::new(Carrier(http.clone())));
                azure::identity(|name| std::env::var(name).ok(), transport)?
            }
            Who::Cli => azure::logged_in()?,
        };
        let host = options.endpoint.host().unwrap_or_default();
        Ok(Self::Token {
            credential,
            scope: format!("https://{host}/.default"),
            current: Mutex::default(),
        })
    }

    /// The `authorization` of a request.
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
                let is_good =
                    |token: &AccessToken| OffsetDateTime::now_utc() + EARLY < token.expires_on;
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

/// Takes requests for tokens where they are to go, over the store's own connections.
#[derive(Debug)]
struct Carrier(Http);

#[async_trait]
impl HttpClient for Carrier {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let (answer, _) = azure::carry(&self.0, request).await?;
        Ok(answer)
    }
}

fn sign(key: &Secret, method: &Method, resource: &Resource, date: &str) -> Result<String> {
    let method = method.as_str().to_ascii_lowercase();
    let date = date.to_ascii_lowercase();
    let Resource { of_type, link, .. } = resource;
    hmac_sha256(&format!("{method}\n{of_type}\n{link}\n{date}\n\n"), key)
        .map_err(|_| Error::invalid("the key for Cosmos DB is not base64"))
}

fn denied(error: &azure_core::Error) -> Error {
    Error::Denied(format!(
        "no token of Microsoft Entra ID: {error}: set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or run \
         where there is a workload or managed identity; `auth=cli` goes by `az login`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in Microsoft's description of the REST API.
    #[tokio::test]
    async fn a_request_is_signed_as_microsoft_shows() {
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
