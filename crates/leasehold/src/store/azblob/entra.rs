//! Who this process is to Entra ID. Asked only when the store URL says so.

use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use azure_core::http::{ClientOptions, Transport};
use azure_identity::{
    ClientAssertionCredentialOptions, ClientSecretCredential, ClientSecretCredentialOptions,
    DeveloperToolsCredential, ManagedIdentityCredential, ManagedIdentityCredentialOptions,
    UserAssignedId, WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};

use crate::{Error, Result};

/// The identity that the environment describes: a service principal, a workload, or else that of the machine.
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
