//! `leasehold release`.

use clap::{ArgGroup, Args};
use leasehold::core::{Fence, Name, Nonce};
use leasehold::{Holding, wire};

use crate::arguments::{self, Common};
use crate::exit::Failure;
use crate::{output, store};

/// Let go of a lease. If you do not hold it, nothing happens, and that is no error.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("by").required(true))]
#[command(after_help = "\
Examples:
  leasehold release nightly 1794774434600001
  leasehold release nightly --nonce my-job-17")]
pub(crate) struct Release {
    /// The lease's name.
    #[arg(value_parser = arguments::name)]
    name: Name,

    /// The fence that you hold it by.
    #[arg(value_parser = arguments::fence, group = "by")]
    fence: Option<Fence>,

    /// The nonce that you acquired it with, instead of the fence.
    #[arg(long, group = "by")]
    nonce: Option<String>,
}

impl Release {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let who = holding(self.fence, self.nonce.as_deref())?;
        let client = store::connect(&store::place(common)?).await?;
        let released = client.leases().release(&self.name, who).await;
        store::close(&client).await;
        let released = released?;
        if common.json {
            output::json(&wire::Released { released })?;
        } else if released {
            output::text(&format!("{} is released", self.name))?;
        } else {
            output::text(&format!("{} was not yours: nothing happened", self.name))?;
        }
        Ok(0)
    }
}

/// By what the caller holds a lease: one of the two.
pub(crate) fn holding(fence: Option<Fence>, nonce: Option<&str>) -> Result<Holding, Failure> {
    match (fence, nonce) {
        (Some(fence), _) => Ok(Holding::Fence(fence)),
        (None, nonce) => Ok(Holding::Nonce(Nonce::new(nonce.unwrap_or_default())?)),
    }
}
