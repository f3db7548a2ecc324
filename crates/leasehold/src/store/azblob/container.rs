//! Creates the container.

use azure_storage_blob::models::BlobContainerClientCreateOptions;

use super::AzBlob;
use super::client::send;
use super::failure::Ambiguity;
use super::load::NO_RECORD;
use crate::{Error, Result};

impl AzBlob {
    /// Creates the container if it is missing, and refuses one that cannot be read.
    pub(super) async fn prepare(&self) -> Result<()> {
        match self.download(NO_RECORD, self.deadline()).await?.value {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.is_not_found() => Ok(()),
            Err(refusal) if refusal.code == "ContainerNotFound" => self.create().await,
            Err(refusal) => Err(refusal.into_error(Ambiguity::None)),
        }
    }

    async fn create(&self) -> Result<()> {
        let answer = send(
            self.deadline(),
            Ambiguity::None,
            |method_options| async move {
                let options = BlobContainerClientCreateOptions {
                    method_options,
                    ..BlobContainerClientCreateOptions::default()
                };
                self.clients.container.create(Some(options)).await
            },
        );
        let Err(refusal) = answer.await?.value else {
            return Ok(());
        };
        // Another process has created it.
        if refusal.code == "ContainerAlreadyExists" {
            return Ok(());
        }
        let (account, container) = (&self.options.account, &self.options.container);
        match refusal.into_error(Ambiguity::None) {
            Error::Denied(why) => Err(Error::Denied(format!(
                "the container `{container}` does not exist, and cannot be created: {why}; or ask an administrator to run `az storage \
                 container create --account-name {account} --name {container}`"
            ))),
            other => Err(other),
        }
    }
}
