//! The connection to Azure: where it is, who asks, and how long to wait.

use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use azure_core::http::{ClientMethodOptions, ClientOptions, Context, RetryOptions, Url};
use azure_storage_blob::{
    BlobContainerClient, BlobContainerClientOptions, BlobServiceClient, BlobServiceClientOptions,
};
use leasehold_core::Stamp;
use tokio::time::{Instant, timeout_at};

use super::failure::{self, Doubt, Refusal};
use super::options::{Credential, Options};
use super::signing::Signing;
use super::transport::{Witness, transport};
use crate::store::azure;
use crate::{Error, Result};

/// The two things of Azure's that are asked.
pub(super) struct Clients {
    pub(super) container: BlobContainerClient,
    /// The account, of which `leasehold doctor` wants to know.
    pub(super) service: BlobServiceClient,
}

impl Clients {
    pub(super) fn new(options: &Options) -> Result<Self> {
        let wire = transport(&options.endpoint)?;
        let mut endpoint = options.endpoint.clone();
        let mut client = ClientOptions {
            // Whether a write that was repeated had been done before, nobody could tell for sure.
            retry: RetryOptions::none(),
            transport: Some(wire.clone()),
            ..ClientOptions::default()
        };
        let mut token: Option<Arc<dyn TokenCredential>> = None;
        match &options.credential {
            Credential::Key(key) => client.per_try_policies.push(Arc::new(Signing {
                account: options.account.clone(),
                key: key.clone(),
            })),
            Credential::Sas(sas) => endpoint.set_query(Some(sas.secret())),
            Credential::Entra => {
                token = Some(azure::identity(|name| std::env::var(name).ok(), wire)?);
            }
            Credential::Cli => token = Some(azure::logged_in()?),
        }
        let unusable = |_| Error::invalid("the `endpoint` in the store URL cannot be used");
        let service = BlobServiceClientOptions {
            client_options: client.clone(),
            ..BlobServiceClientOptions::default()
        };
        let container = BlobContainerClientOptions {
            client_options: client,
            ..BlobContainerClientOptions::default()
        };
        let place = container_url(&endpoint, &options.container);
        Ok(Self {
            container: BlobContainerClient::new(place, token.clone(), Some(container))
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

/// What Azure answered, and when.
pub(super) struct Answered<T> {
    pub(super) value: std::result::Result<T, Refusal>,
    pub(super) stamp: Stamp,
}

impl<T> Answered<T> {
    /// What was asked for, or what a refusal means.
    pub(super) fn or_error(self, doubt: Doubt) -> Result<(T, Stamp)> {
        let value = self.value.map_err(|refusal| refusal.into_error(doubt))?;
        Ok((value, self.stamp))
    }
}

/// Asks once. An error means that there was no answer.
pub(super) async fn ask<T, F>(
    deadline: Instant,
    doubt: Doubt,
    request: impl FnOnce(ClientMethodOptions<'static>) -> F,
) -> Result<Answered<T>>
where
    F: Future<Output = azure_core::Result<T>>,
{
    let witness = Witness::default();
    let method = ClientMethodOptions {
        context: Context::new().with_value(witness.clone()),
    };
    let value = match timeout_at(deadline, request(method)).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failure::of(error, &witness, doubt)?),
        Err(_) if witness.was_sent() => {
            return Err(failure::lost("Azure did not answer in time".into(), doubt));
        }
        Err(_) => {
            return Err(Error::Unavailable(
                "Azure could not be asked in time".into(),
            ));
        }
    };
    match witness.stamp() {
        Some(stamp) => Ok(Answered { value, stamp }),
        None if doubt == Doubt::MayHaveWritten => Err(Error::Indeterminate(
            "Azure answered, but told no time".into(),
        )),
        None => Err(Error::Denied(
            "the answers of Azure have no `Date`, by which leases expire: what is at the `endpoint`?".into(),
        )),
    }
}

/// The later of two stamps: a holder that counts by it lets go the sooner.
pub(super) fn later(one: Option<Stamp>, other: Option<Stamp>) -> Option<Stamp> {
    [one, other]
        .into_iter()
        .flatten()
        .max_by_key(|stamp| stamp.time)
}
