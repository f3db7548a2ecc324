//! `leasehold acquire`.

use std::time::Duration;

use clap::Args;
use leasehold::core::{BootTime, Fence, Held, Nonce};
use leasehold::host::{Host as _, Machine};
use leasehold::wire;
use leasehold::{AcquireRequest, Acquired, Client, Error, Hold};
use serde::Serialize;

use crate::arguments::{self, Common, Taking};
use crate::exit::{self, Failure};
use crate::signals::Signals;
use crate::{output, store};

const EXAMPLES: &str = "\
The lease is not renewed: it is over after its ttl, unless you `renew` it by then. To hold a lease for as long as a \
command runs, use `run`.

Examples:
  leasehold acquire nightly --ttl 5m
  fence=$(leasehold acquire nightly --json | jq .fence)
  leasehold acquire nightly --nonce my-job-17     repeated, it gets the same lease back at once";

/// Take a lease, and keep it for its ttl.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Acquire {
    #[command(flatten)]
    taking: Taking,

    /// What identifies this acquisition, so that it can be repeated: a secret of 1 to 64 characters [default: random].
    #[arg(long)]
    nonce: Option<String>,

    /// The fence that you hold already: with the same nonce, it is kept.
    #[arg(long, value_parser = arguments::fence, requires = "nonce")]
    fence: Option<Fence>,
}

#[derive(Serialize)]
struct Answer<'a> {
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
        let client = store::connect(&store::place(common)?).await?;
        let taken = tokio::select! {
            taken = self.take(&client, &nonce) => Ok(taken),
            signal = signals.end() => Err(exit::by(signal)),
        };
        store::close(&client).await;
        let taken = match taken {
            Ok(taken) => taken,
            Err(interrupted) => return Ok(interrupted),
        };
        let (hold, asked) = taken.map_err(|error| self.taking.failure(&self.taking.name, error))?;
        let name = self.taking.name.as_str();
        if common.json {
            let lease = wire::Lease::granted(&hold.grant, asked, hold.deadline);
            let nonce = nonce.expose();
            output::json(&Answer { name, nonce, lease })?;
        } else {
            output::text(&for_people(name, &hold))?;
        }
        Ok(0)
    }

    /// The lease, and when the call that took it was made.
    async fn take(&self, client: &Client, nonce: &Nonce) -> leasehold::Result<(Hold, BootTime)> {
        let mut request = AcquireRequest {
            name: self.taking.name.clone(),
            nonce: nonce.clone(),
            owner: match &self.taking.owner {
                Some(owner) => owner.as_str().into(),
                None => client.owner().clone(),
            },
            ttl: self.taking.ttl,
            mode: self.taking.mode(),
            fence: self.fence,
            wait: Duration::ZERO,
        };
        let give_up = self
            .taking
            .patience()
            .map(|wait| Machine.boot_time() + wait);
        let mut told = false;
        loop {
            let asked = Machine.boot_time();
            let held = match client.leases().acquire(request.clone()).await? {
                Acquired::Granted(hold) => return Ok((hold, asked)),
                Acquired::Held(held) => held,
            };
            let left = give_up.map_or(Duration::MAX, |end| end.since(Machine.boot_time()));
            if left.is_zero() {
                return Err(Error::Held(held));
            }
            if !std::mem::replace(&mut told, true) {
                tell_of_waiting(request.name.as_str(), &held);
            }
            request.wait = left.min(client.leases().longest_wait());
        }
    }
}

/// Says on standard error who is in the way.
pub(crate) fn tell_of_waiting(name: &str, held: &Held) {
    let owner = match &*held.owner {
        "" => "somebody",
        owner => owner,
    };
    let since = output::second(held.since);
    output::note(&format!(
        "waiting for {name}: held by {owner} since {since}"
    ));
}

fn for_people(name: &str, hold: &Hold) -> String {
    let grant = &hold.grant;
    let (quoted, fence) = (output::quoted(name), grant.fence);
    let dashes = if name.starts_with('-') { "-- " } else { "" };
    let mut lines = vec![
        format!("{name} is yours, with fence {fence}"),
        format!(
            "it is over in {} unless you renew it:  leasehold renew {dashes}{quoted} {fence}",
            leasehold::duration::format(grant.ttl)
        ),
        format!("to let go:  leasehold release {dashes}{quoted} {fence}"),
    ];
    if let Some(last) = &grant.last {
        let how = serde_json::to_value(wire::Ending::from(last).how).unwrap_or_default();
        let how = how.as_str().unwrap_or("ended").to_owned();
        let at = output::second(last.at);
        lines.push(format!("before you: {}, {how} at {at}", last.owner));
    }
    if !grant.body.is_empty() {
        lines.push(format!("body: {}", grant.body));
    }
    output::joined(&lines)
}
