//! `leasehold break`.

use clap::{ArgGroup, Args};
use leasehold::core::{Fence, Name};
use leasehold::{BreakRequest, Broke, wire};

use crate::arguments::{self, Common};
use crate::exit::Failure;
use crate::release::holding;
use crate::{output, store};

/// End a lease: your own, or by force anybody's.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("by").required(true).multiple(true))]
#[command(after_help = "\
By force, the holder's fence acts no more, but until its time is over nobody else gets the lease: the holder may \
still believe in it. `--now` does not wait for that, so two may work at once: use it only when you know that the \
holder is gone.

Examples:
  leasehold break nightly --fence 1794774434600001
  leasehold break nightly --force --reason 'host is down'
  leasehold break nightly --force --reason 'host is down' --now")]
pub(crate) struct Break {
    /// The lease's name.
    #[arg(value_parser = arguments::name)]
    name: Name,

    /// The holder's fence; with `--force`, only that holder.
    #[arg(long, value_parser = arguments::fence, group = "by")]
    fence: Option<Fence>,

    /// The nonce that the holder acquired it with.
    #[arg(long, group = "by", conflicts_with_all = ["fence", "force"])]
    nonce: Option<String>,

    /// Whosever it is.
    #[arg(long, group = "by", requires = "reason")]
    force: bool,

    /// Why, for those who look at it later.
    #[arg(long, requires = "force")]
    reason: Option<String>,

    /// Do not wait until the holder's time is over. Unsafe.
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
        let client = store::connect(&store::place(common)?).await?;
        let broke = client.leases().break_lease(&self.name, how).await;
        store::close(&client).await;
        let broke = broke?;
        if common.json {
            let until = match broke {
                Broke::Until(until) => Some(until),
                Broke::Free | Broke::NotHeld => None,
            };
            let broken = broke != Broke::NotHeld;
            output::json(&wire::Broken { broken, until })?;
            return Ok(0);
        }
        let name = &self.name;
        output::text(&match broke {
            Broke::Free => format!("{name} is broken, and free"),
            Broke::Until(until) => {
                let until = output::time(until);
                format!("{name} is broken; its holder stays in the way until {until}")
            }
            Broke::NotHeld => format!("nobody holds {name}: nothing happened"),
        })?;
        Ok(0)
    }
}
