//! `leasehold renew`.

use std::time::Duration;

use clap::Args;
use leasehold::core::{Fence, Name};
use leasehold::host::{Host as _, Machine};
use leasehold::{Error, RenewRequest, wire};

use crate::arguments::{self, Common};
use crate::exit::Failure;
use crate::{output, store};

/// How long a renewal may take.
const WITHIN: Duration = Duration::from_secs(10);

/// Go on holding a lease.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  leasehold renew nightly 1794774434600001
  leasehold renew nightly 1794774434600001 --ttl 10m")]
pub(crate) struct Renew {
    /// The lease's name.
    #[arg(value_parser = arguments::name)]
    name: Name,

    /// The fence that you hold it by.
    #[arg(value_parser = arguments::fence)]
    fence: Fence,

    /// Another ttl than before.
    #[arg(long, value_name = "TIME", value_parser = leasehold::duration::parse)]
    #[arg(allow_hyphen_values = true)]
    ttl: Option<Duration>,
}

impl Renew {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let client = store::connect(&store::place(common)?).await?;
        let request = RenewRequest {
            name: self.name.clone(),
            fence: self.fence,
            ttl: self.ttl,
        };
        let asked = Machine.boot_time();
        let renewed = client.leases().renew(vec![request], WITHIN).await;
        store::close(&client).await;
        let missing = || {
            Err(Error::Unavailable(
                "the renewal was not answered: try again".into(),
            ))
        };
        let renewed = renewed.into_iter().next().unwrap_or_else(missing)?;
        if common.json {
            output::json(&wire::Lease::renewed(
                &renewed.renewal,
                asked,
                renewed.deadline,
            ))?;
        } else {
            let until = output::time(renewed.renewal.expires_at);
            output::text(&format!("{} is yours until {until}", self.name))?;
        }
        Ok(0)
    }
}
