//! The Azure client: endpoint, credentials and timeouts.

use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use azure_core::http::{ClientMethodOptions, ClientOptions, Context, RetryOptions, Url};
use azure_storage_blob::{
    BlobContainerClient, BlobContainerClientOptions, BlobServiceClient, BlobServiceClientOptions,
};
use leasehold_core::Stamp;
use tokio::time::{Instant, timeout_at};

use super::failure::{self, Ambiguity, Refusal};
use super::options::{AzBlobOptions, Credential};
use super::signing::SharedKeySigner;
use super::transport::{RequestTrace, transport};
use crate::store::azure;
use crate::{Error, Result};

/// The SDK's clients.
pub(super) struct Clients {
    pub(super) container: BlobContainerClient,
    /// The account, for `leasehold doctor`.
    pub(super) service: BlobServiceClient,
}

impl Clients {
    pub(super) fn new(options: &AzBlobOptions) -> Result<Self> {
        let transport = transport(&options.endpoint)?;
        let mut endpoint = options.endpoint.clone();
        let mut client = ClientOptions {
            // After a retry, it would be unknown whether the first attempt wrote.
            retry: RetryOptions::none(),
            transport: Some(transport.clone()),
            ..ClientOptions::default()
        };
        let mut token: Option<Arc<dyn TokenCredential>> = None;
        match &options.credential {
            Credential::Key(key) => client.per_try_policies.push(Arc::new(SharedKeySigner {
                account: options.account.clone(),
                key: key.clone(),
            })),
            Credential::Sas(sas) => endpoint.set_query(Some(sas.secret())),
            Credential::Entra => {
                token = Some(azure::identity(|name| std::env::var(name).ok(), transport)?);
            }
            Credential::Cli => token = Some(azure::developer_identity()?),
        }
        let unusable = |_| Error::invalid("the `endpoint` in the store URL is invalid");
        let service = BlobServiceClientOptions {
            client_options: client.clone(),
            ..BlobServiceClientOptions::default()
        };
        let container = BlobContainerClientOptions {
            client_options: client,
            ..BlobContainerClientOptions::default()
        };
        let url = container_url(&endpoint, &options.container);
        Ok(Self {
            container: BlobContainerClient::new(url, token.clone(), Some(container))
                .map_err(unusable)?,
            service: BlobServiceClient::new(endpoint, token, Some(service)).map_err(unusable)?,
        })
    }
}

fn container_url(endpoint: &Url, container: &str) -> Url {
    let mut url = endpoint.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().push(container);
    }
    url
}

/// Azure's answer, with its time.
pub(super) struct TimedAnswer<T> {
    pub(super) value: std::result::Result<T, Refusal>,
    pub(super) stamp: Stamp,
}

impl<T> TimedAnswer<T> {
    /// Returns the value, or the error for a refusal.
    pub(super) fn or_error(self, ambiguity: Ambiguity) -> Result<(T, Stamp)> {
        let value = self
            .value
            .map_err(|refusal| refusal.into_error(ambiguity))?;
        Ok((value, self.stamp))
    }
}

/// Sends a request once. An error means that there was no answer.
pub(super) async fn send<T, F>(
    deadline: Instant,
    ambiguity: Ambiguity,
    request: impl FnOnce(ClientMethodOptions<'static>) -> F,
) -> Result<TimedAnswer<T>>
where
    F: Future<Output = azure_core::Result<T>>,
{
    let trace = RequestTrace::default();
    let method = ClientMethodOptions {
        context: Context::new().with_value(trace.clone()),
    };
    let value = match timeout_at(deadline, request(method)).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failure::of(error, &trace, ambiguity)?),
        Err(_) if trace.was_sent() => {
            return Err(failure::unanswered(
                "Azure did not answer in time".into(),
                ambiguity,
            ));
        }
        Err(_) => {
            return Err(Error::Unavailable(
                "timed out before the request to Azure was sent".into(),
            ));
        }
    };
    match trace.stamp() {
        Some(stamp) => Ok(TimedAnswer { value, stamp }),
        None if ambiguity == Ambiguity::MayHaveWritten => Err(Error::Indeterminate(
            "Azure answered without a time".into(),
        )),
        None => Err(Error::Denied(
            "the answers of Azure have no `Date` header, which leases require: check the `endpoint` in the store URL".into(),
        )),
    }
}

/// Returns the later of two stamps, with which a holder's deadline is earlier.
pub(super) fn later(one: Option<Stamp>, other: Option<Stamp>) -> Option<Stamp> {
    [one, other]
        .into_iter()
        .flatten()
        .max_by_key(|stamp| stamp.time)
}
