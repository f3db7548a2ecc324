//! `leasehold remove`.

use clap::Args;
use leasehold::core::Name;
use leasehold::wire;

use crate::arguments::{self, Common};
use crate::exit::Failure;
use crate::{output, store};

/// Remove a work item: its state and its body. If there is none, nothing happens, and that is no error.
#[derive(Args, Debug)]
#[command(after_help = "\
An item that somebody works on is left alone (exit code 75). The fence of its name stays: an item that is put under it \
again gets higher ones.

Examples:
  leasehold remove order-17")]
pub(crate) struct Remove {
    /// The item's name.
    #[arg(value_parser = arguments::name)]
    name: Name,
}

impl Remove {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let client = store::connect(&store::place(common)?).await?;
        let removed = client.leases().remove(&self.name).await;
        store::close(&client).await;
        removed.map_err(|error| Failure::of(&self.name, error))?;
        if common.json {
            output::json(&wire::Removed { removed: true })?;
        } else {
            output::text(&format!("{} is removed", self.name))?;
        }
        Ok(0)
    }
}
