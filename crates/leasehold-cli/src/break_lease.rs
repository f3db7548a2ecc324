//! `leasehold break`.

use clap::{ArgGroup, Args};
use leasehold::core::{Fence, Name};
use leasehold::{BreakOutcome, BreakRequest, wire};

use crate::arguments::{self, Common};
use crate::exit::Failure;
use crate::release::holding;
use crate::{output, store};

/// Break a lease: your own, or with `--force` that of another holder.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("by").required(true).multiple(true))]
#[command(after_help = "\
`--force` invalidates the fence of the holder at once, but the lease stays taken until it would have expired, because \
the holder may still be working. `--now` frees the lease at once, so two holders may work at the same time: use it only \
if you know that the holder is dead.

Examples:
  leasehold break nightly --fence 1794774434600001
  leasehold break nightly --force --reason 'host is down'
  leasehold break nightly --force --reason 'host is down' --now")]
pub(crate) struct Break {
    /// Name of the lease.
    #[arg(value_parser = arguments::name)]
    name: Name,

    /// Fence of the holder; with `--force`, break only the holder with this fence.
    #[arg(long, value_parser = arguments::fence, group = "by")]
    fence: Option<Fence>,

    /// Nonce that you acquired the lease with.
    #[arg(long, group = "by", conflicts_with_all = ["fence", "force"])]
    nonce: Option<String>,

    /// Break the lease even if another holder has it.
    #[arg(long, group = "by", requires = "reason")]
    force: bool,

    /// Reason, recorded with the lease.
    #[arg(long, requires = "force")]
    reason: Option<String>,

    /// Unsafe: free the lease at once instead of at its expiry.
    #[arg(long, requires = "force")]
    now: bool,
}

impl Break {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let how = match self.reason {
            Some(reason) => BreakRequest::Force {
                fence: self.fence,
                reason: reason.into(),
                now: self.now,
            },
            None => BreakRequest::Own(holding(self.fence, self.nonce.as_deref())?),
        };
        let client = store::connect(&store::target(common)?).await?;
        let broke = client.leases().break_lease(&self.name, how).await;
        store::close(&client).await;
        let broke = broke?;
        if common.json {
            let until = match broke {
                BreakOutcome::Until(until) => Some(until),
                BreakOutcome::Free | BreakOutcome::NotHeld => None,
            };
            let broken = broke != BreakOutcome::NotHeld;
            output::json(&wire::BreakResponse { broken, until })?;
            return Ok(0);
        }
        let name = &self.name;
        output::confirmation(&match broke {
            BreakOutcome::Free => format!("broke {name}, which is free now"),
            BreakOutcome::Until(until) => {
                let until = output::time(until);
                format!("broke {name}, which stays taken until {until}")
            }
            BreakOutcome::NotHeld => format!("{name} is not held: nothing was broken"),
        })?;
        Ok(0)
    }
}
