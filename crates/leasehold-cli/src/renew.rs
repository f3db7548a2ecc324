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
const TIMEOUT: Duration = Duration::from_secs(10);

/// Renew a lease that you hold.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  leasehold renew nightly 1794774434600001
  leasehold renew nightly 1794774434600001 --ttl 10m")]
pub(crate) struct Renew {
    /// Name of the lease.
    #[arg(value_parser = arguments::name)]
    name: Name,

    /// Fence of your lease.
    #[arg(value_parser = arguments::fence)]
    fence: Fence,

    /// New ttl [default: the present one].
    #[arg(long, value_name = "TIME", value_parser = arguments::duration)]
    #[arg(allow_hyphen_values = true)]
    ttl: Option<Duration>,
}

impl Renew {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let client = store::connect(&store::target(common)?).await?;
        let request = RenewRequest {
            name: self.name.clone(),
            fence: self.fence,
            ttl: self.ttl,
        };
        let sent = Machine.boot_time();
        let renewed = client.leases().renew(vec![request], TIMEOUT).await;
        store::close(&client).await;
        let missing = || {
            Err(Error::Unavailable(
                "cannot renew: the store did not answer; retry".into(),
            ))
        };
        let renewed = renewed.into_iter().next().unwrap_or_else(missing)?;
        if common.json {
            output::json(&wire::Lease::renewed(
                &renewed.renewal,
                sent,
                renewed.deadline,
            ))?;
        } else {
            let until = output::time(renewed.renewal.expires_at);
            output::confirmation(&format!("renewed {} until {until}", self.name))?;
        }
        Ok(0)
    }
}
