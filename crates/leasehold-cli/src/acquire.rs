//! `leasehold acquire`.

use std::time::Duration;

use clap::Args;
use leasehold::core::{BootTime, Fence, Held, Nonce};
use leasehold::host::{Host as _, Machine};
use leasehold::wire;
use leasehold::{AcquireOutcome, AcquireRequest, Client, Error, Hold};
use serde::Serialize;

use crate::arguments::{self, AcquireOptions, Common};
use crate::exit::{self, Failure};
use crate::signals::Signals;
use crate::{output, store};

const EXAMPLES: &str = "\
The lease is not renewed: it expires after its ttl unless you `renew` it before. To hold a lease for as long as a \
command runs, use `run`.

Examples:
  leasehold acquire nightly --ttl 5m
  fence=$(leasehold acquire nightly --json | jq .fence)
  leasehold acquire nightly --nonce my-job-17     repeated, it returns the same lease at once";

/// Acquire a lease for its ttl, without running a command.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Acquire {
    #[command(flatten)]
    options: AcquireOptions,

    /// Identifies this acquisition, so that it can be repeated: a secret of 1 to 64 characters [default: random].
    #[arg(long)]
    nonce: Option<String>,

    /// Your current fence: with the same nonce, the lease is renewed and keeps this fence.
    #[arg(long, value_parser = arguments::fence, requires = "nonce")]
    fence: Option<Fence>,
}

#[derive(Serialize)]
struct AcquiredLease<'a> {
    name: &'a str,
    nonce: &'a str,
    #[serde(flatten)]
    lease: wire::Lease,
}

impl Acquire {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let nonce = match &self.nonce {
            Some(nonce) => Nonce::new(nonce)?,
            None => Nonce::new(format!("{:032x}", Machine.random()))?,
        };
        let mut signals = Signals::catch()?;
        let client = store::connect(&store::target(common)?).await?;
        let acquired = tokio::select! {
            acquired = self.acquire(&client, &nonce) => Ok(acquired),
            signal = signals.end() => Err(exit::of_signal(signal)),
        };
        store::close(&client).await;
        let acquired = match acquired {
            Ok(acquired) => acquired,
            Err(interrupted) => return Ok(interrupted),
        };
        let (hold, sent) =
            acquired.map_err(|error| self.options.failure(&self.options.name, error))?;
        let name = self.options.name.as_str();
        if common.json {
            let lease = wire::Lease::granted(&hold.grant, sent, hold.deadline);
            let nonce = nonce.expose();
            output::json(&AcquiredLease { name, nonce, lease })?;
        } else {
            output::text(&for_people(name, &hold))?;
        }
        Ok(0)
    }

    /// Returns the lease, and when the granted request was sent.
    async fn acquire(&self, client: &Client, nonce: &Nonce) -> leasehold::Result<(Hold, BootTime)> {
        let mut request = AcquireRequest {
            name: self.options.name.clone(),
            nonce: nonce.clone(),
            owner: match &self.options.owner {
                Some(owner) => owner.as_str().into(),
                None => client.owner().clone(),
            },
            ttl: self.options.ttl,
            mode: self.options.mode(),
            fence: self.fence,
            wait: Duration::ZERO,
        };
        let give_up = self
            .options
            .wait_limit()
            .map(|wait| Machine.boot_time() + wait);
        let mut is_reported = false;
        loop {
            let sent = Machine.boot_time();
            let held = match client.leases().acquire(request.clone()).await? {
                AcquireOutcome::Granted(hold) => return Ok((hold, sent)),
                AcquireOutcome::Held(held) => held,
            };
            let left = give_up.map_or(Duration::MAX, |end| end.since(Machine.boot_time()));
            if left.is_zero() {
                return Err(Error::Held(held));
            }
            if !std::mem::replace(&mut is_reported, true) {
                report_waiting(request.name.as_str(), &held);
            }
            request.wait = left.min(client.leases().max_wait());
        }
    }
}

/// Prints to standard error which holder this process waits for.
pub(crate) fn report_waiting(name: &str, held: &Held) {
    output::note(&format!("waiting for {name}: {}", exit::holder_of(held)));
}

fn for_people(name: &str, hold: &Hold) -> String {
    let grant = &hold.grant;
    let (quoted, fence) = (output::quoted(name), grant.fence);
    let dashes = if name.starts_with('-') { "-- " } else { "" };
    let mut lines = vec![
        format!("acquired {name} with fence {fence}"),
        format!(
            "to renew it within {}:  leasehold renew {dashes}{quoted} {fence}",
            leasehold::duration::format(grant.ttl)
        ),
        format!("to release it:  leasehold release {dashes}{quoted} {fence}"),
    ];
    if let Some(last) = &grant.last {
        let how = serde_json::to_value(wire::LastHolderView::from(last).how).unwrap_or_default();
        let how = how.as_str().unwrap_or("ended").to_owned();
        let at = output::time_to_second(last.at);
        lines.push(format!("previous holder: {}, {how} at {at}", last.owner));
    }
    if !grant.body.is_empty() {
        lines.push(format!("body: {}", grant.body));
    }
    output::joined(&lines)
}
