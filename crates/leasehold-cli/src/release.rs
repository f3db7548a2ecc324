//! `leasehold release`.

use clap::{ArgGroup, Args};
use leasehold::core::{Fence, Name, Nonce};
use leasehold::{HolderKey, wire};

use crate::arguments::{self, Common};
use crate::exit::Failure;
use crate::{output, store};

/// Release a lease.
///
/// Releasing a lease that you do not hold changes nothing, and is not an error.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("by").required(true))]
#[command(after_help = "\
Examples:
  leasehold release nightly 1794774434600001
  leasehold release nightly --nonce my-job-17")]
pub(crate) struct Release {
    /// Name of the lease.
    #[arg(value_parser = arguments::name)]
    name: Name,

    /// Fence of your lease.
    #[arg(value_parser = arguments::fence, group = "by")]
    fence: Option<Fence>,

    /// Nonce that you acquired the lease with, instead of the fence.
    #[arg(long, group = "by")]
    nonce: Option<String>,
}

impl Release {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let holding = holding(self.fence, self.nonce.as_deref())?;
        let client = store::connect(&store::target(common)?).await?;
        let released = client.leases().release(&self.name, holding).await;
        store::close(&client).await;
        let released = released?;
        if common.json {
            output::json(&wire::ReleaseResponse { released })?;
        } else if released {
            output::confirmation(&format!("released {}", self.name))?;
        } else {
            output::confirmation(&format!(
                "you do not hold {}: nothing was released",
                self.name
            ))?;
        }
        Ok(0)
    }
}

/// Returns how the caller identifies its lease: by fence, or else by nonce.
pub(crate) fn holding(fence: Option<Fence>, nonce: Option<&str>) -> Result<HolderKey, Failure> {
    match (fence, nonce) {
        (Some(fence), _) => Ok(HolderKey::Fence(fence)),
        (None, nonce) => Ok(HolderKey::Nonce(Nonce::new(nonce.unwrap_or_default())?)),
    }
}
