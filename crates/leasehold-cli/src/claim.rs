//! `leasehold claim`.

use std::time::Duration;

use clap::Args;
use leasehold::core::{BootTime, Nonce};
use leasehold::host::{Host as _, Machine};
use leasehold::{ClaimRequest, Client, NamedHold, wire};

use crate::arguments::{self, Common};
use crate::exit::{self, Failure};
use crate::signals::Signals;
use crate::{output, store};

const EXAMPLES: &str = "\
Prints one line of JSON per item (with `--json`, one object with all of them): its name, fence, state and body, and \
when the claim expires. No other worker gets these items before that. Claims are not renewed: `renew` them if the work \
takes longer. Move each item on with `update NAME FENCE --state DONE --release`, or return it with `release NAME \
FENCE`. To run a command for each item, use `work`.

Examples:
  leasehold claim REQUESTED --limit 10
  leasehold claim REQUESTED --prefix orders/ --wait 30s --ttl 5m
  leasehold claim REQUESTED --limit 1 | jq -r '.name, .fence'";

/// Claim the next free work items in a state, oldest first.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Claim {
    #[command(flatten)]
    items: ItemOptions,

    /// Maximum number of items, from 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,

    /// How long to wait for an item if there is none.
    #[arg(short, long, value_name = "TIME", value_parser = arguments::duration)]
    #[arg(allow_hyphen_values = true, default_value = "0s")]
    wait: Duration,

    /// Exit code if there is no item to claim.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::HELD)]
    held_code: u8,
}

/// Which items to claim, and for how long: the options that `claim` and `work` share.
#[derive(Args, Debug)]
pub(crate) struct ItemOptions {
    /// State of the items to claim.
    pub(crate) state: String,

    /// Only names with this prefix.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    /// Time to live: how long an item stays claimed after the last renewal.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = arguments::duration)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) ttl: Duration,

    /// Owner to show to other users of the store [default: HOST:PID].
    #[arg(long)]
    pub(crate) owner: Option<String>,
}

impl Claim {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let mut signals = Signals::catch()?;
        let client = store::connect(&store::target(common)?).await?;
        let claimed = tokio::select! {
            claimed = self.claim(&client) => Ok(claimed),
            signal = signals.end() => Err(exit::of_signal(signal)),
        };
        store::close(&client).await;
        let (claimed, sent) = match claimed {
            Ok(claimed) => claimed?,
            Err(interrupted) => return Ok(interrupted),
        };
        let items: Vec<_> = claimed.iter().map(|item| to_wire(item, sent)).collect();
        let code = if items.is_empty() { self.held_code } else { 0 };
        if common.json {
            output::json(&wire::Items { items })?;
        } else if items.is_empty() {
            output::note(&format!("no item to claim in state {}", self.items.state));
        } else {
            items.iter().try_for_each(output::json)?;
        }
        Ok(code)
    }

    /// Returns the claimed items, and when the request was sent.
    async fn claim(&self, client: &Client) -> leasehold::Result<(Vec<NamedHold>, BootTime)> {
        let give_up = Machine.boot_time() + self.wait;
        loop {
            let sent = Machine.boot_time();
            let left = give_up.since(sent);
            let request = ClaimRequest {
                state: self.items.state.as_str().into(),
                prefix: self.items.prefix.clone(),
                limit: self.limit,
                ttl: self.items.ttl,
                owner: match &self.items.owner {
                    Some(owner) => owner.as_str().into(),
                    None => client.owner().clone(),
                },
                nonce: Nonce::new(format!("{:032x}", Machine.random()))?,
                wait: left.min(client.leases().max_wait()),
            };
            let claimed = client.leases().claim(request).await?;
            if !claimed.is_empty() || Machine.boot_time() >= give_up {
                return Ok((claimed, sent));
            }
        }
    }
}

fn to_wire(item: &NamedHold, sent: BootTime) -> wire::NamedLease {
    wire::NamedLease {
        name: item.name.as_str().into(),
        lease: wire::Lease::granted(&item.hold.grant, sent, item.hold.deadline),
    }
}
