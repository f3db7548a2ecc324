//! `leasehold claim`.

use std::time::Duration;

use clap::Args;
use leasehold::core::{BootTime, Nonce};
use leasehold::host::{Host as _, Machine};
use leasehold::{ClaimRequest, Claimed, Client, wire};

use crate::arguments::Common;
use crate::exit::{self, Failure};
use crate::signals::Signals;
use crate::{output, store};

const EXAMPLES: &str = "\
Prints a line of JSON for each item (with `--json`, one object with all of them): its name, fence, state and body, and \
when the claim is over. Nobody else gets these items until then. Claims are not renewed: `renew` them if it takes \
longer, and move each item on with `update NAME FENCE --state DONE --release`, or give it back with `release NAME \
FENCE`. To run a command for each item, use `work`.

Examples:
  leasehold claim REQUESTED --limit 10
  leasehold claim REQUESTED --prefix orders/ --wait 30s --ttl 5m
  leasehold claim REQUESTED --limit 1 | jq -r '.name, .fence'";

/// Lease the next work items in a state: those that nobody has, oldest first.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Claim {
    #[command(flatten)]
    which: Which,

    /// At most so many items, from 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,

    /// Wait so long for an item while there is none.
    #[arg(short, long, value_name = "TIME", value_parser = leasehold::duration::parse)]
    #[arg(allow_hyphen_values = true, default_value = "0s")]
    wait: Duration,

    /// The exit code when there is no item to claim.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::HELD)]
    held_code: u8,
}

/// Which items, and for how long: the same for `claim` and `work`.
#[derive(Args, Debug)]
pub(crate) struct Which {
    /// Items in this state.
    pub(crate) state: String,

    /// Only items whose names start like this.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    /// How long an item stays claimed after its worker's last sign of life.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = leasehold::duration::parse)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) ttl: Duration,

    /// Who works on it, for people to read [default: HOST:PID].
    #[arg(long)]
    pub(crate) owner: Option<String>,
}

impl Claim {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let mut signals = Signals::catch()?;
        let client = store::connect(&store::place(common)?).await?;
        let claimed = tokio::select! {
            claimed = self.claim(&client) => Ok(claimed),
            signal = signals.end() => Err(exit::by(signal)),
        };
        store::close(&client).await;
        let (claimed, asked) = match claimed {
            Ok(claimed) => claimed?,
            Err(interrupted) => return Ok(interrupted),
        };
        let items: Vec<_> = claimed.iter().map(|item| as_seen(item, asked)).collect();
        let code = if items.is_empty() { self.held_code } else { 0 };
        if common.json {
            output::json(&wire::Items { items })?;
        } else if items.is_empty() {
            output::note(&format!(
                "there is nothing to claim in {}",
                self.which.state
            ));
        } else {
            items.iter().try_for_each(output::json)?;
        }
        Ok(code)
    }

    /// The items, and when the call that claimed them was made.
    async fn claim(&self, client: &Client) -> leasehold::Result<(Vec<Claimed>, BootTime)> {
        let give_up = Machine.boot_time() + self.wait;
        loop {
            let asked = Machine.boot_time();
            let left = give_up.since(asked);
            let request = ClaimRequest {
                state: self.which.state.as_str().into(),
                prefix: self.which.prefix.clone(),
                limit: self.limit,
                ttl: self.which.ttl,
                owner: match &self.which.owner {
                    Some(owner) => owner.as_str().into(),
                    None => client.owner().clone(),
                },
                nonce: Nonce::new(format!("{:032x}", Machine.random()))?,
                wait: left.min(client.leases().longest_wait()),
            };
            let claimed = client.leases().claim(request).await?;
            if !claimed.is_empty() || Machine.boot_time() >= give_up {
                return Ok((claimed, asked));
            }
        }
    }
}

fn as_seen(item: &Claimed, asked: BootTime) -> wire::NamedLease {
    wire::NamedLease {
        name: item.name.as_str().into(),
        lease: wire::Lease::granted(&item.hold.grant, asked, item.hold.deadline),
    }
}
