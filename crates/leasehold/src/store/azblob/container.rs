//! The container, and making it.

use azure_storage_blob::models::BlobContainerClientCreateOptions;

use super::AzBlob;
use super::client::ask;
use super::failure::Doubt;
use super::load::NO_RECORD;
use crate::{Error, Result};

impl AzBlob {
    /// Makes the container if there is none, and refuses one that cannot be read.
    pub(super) async fn prepare(&self) -> Result<()> {
        match self.download(NO_RECORD, self.deadline()).await?.value {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.is_absence() => Ok(()),
            Err(refusal) if refusal.code == "ContainerNotFound" => self.make().await,
            Err(refusal) => Err(refusal.into_error(Doubt::None)),
        }
    }

    async fn make(&self) -> Result<()> {
        let made = ask(self.deadline(), Doubt::None, |method_options| async move {
            let options = BlobContainerClientCreateOptions {
                method_options,
                ..BlobContainerClientCreateOptions::default()
            };
            self.clients.container.create(Some(options)).await
        });
        let Err(refusal) = made.await?.value else {
            return Ok(());
        };
        // Somebody else was faster.
        if refusal.code == "ContainerAlreadyExists" {
            return Ok(());
        }
        let (account, container) = (&self.options.account, &self.options.container);
        match refusal.into_error(Doubt::None) {
            Error::Denied(why) => Err(Error::Denied(format!(
                "there is no container `{container}`, and it cannot be made: {why}; or let somebody who may run `az storage \
                 container create --account-name {account} --name {container}`"
            ))),
            other => Err(other),
        }
    }
}
