//! `leasehold remove`.

use clap::Args;
use leasehold::core::Name;
use leasehold::wire;

use crate::arguments::{self, Common};
use crate::exit::Failure;
use crate::{output, store};

/// Remove a work item: its state and its body.
///
/// Removing a missing item changes nothing, and is not an error.
#[derive(Args, Debug)]
#[command(after_help = "\
An item that a worker has claimed is not removed (exit code 75). The fence of the name is kept: a new item of the same \
name gets higher fences.

Examples:
  leasehold remove order-17")]
pub(crate) struct Remove {
    /// Name of the item.
    #[arg(value_parser = arguments::name)]
    name: Name,
}

impl Remove {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let client = store::connect(&store::target(common)?).await?;
        let removed = client.leases().remove(&self.name).await;
        store::close(&client).await;
        removed.map_err(|error| Failure::of(&self.name, error))?;
        if common.json {
            output::json(&wire::RemoveResponse { removed: true })?;
        } else {
            output::confirmation(&format!("removed {}", self.name))?;
        }
        Ok(0)
    }
}
