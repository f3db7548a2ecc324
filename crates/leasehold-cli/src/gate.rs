//! `leasehold gate`: a command that runs at most once in a while, wherever it is started.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use leasehold::core::{BootTime, Mode, Name, Nonce};
use leasehold::host::{Host as _, Machine};
use leasehold::{AcquireRequest, Acquired, Client, Hold, Holding, wire};

use crate::arguments::{self, Common};
use crate::exit::{self, Failure};
use crate::run::{Job, Outcome, accompany, end_by};
use crate::signals::Signals;
use crate::store::Place;
use crate::{output, store};

const EXPLANATION: &str = "\
Whoever passes shuts the gate for the period, for everybody. If the command fails (any exit code but 0), the gate is \
opened again, so that the next one tries. If the command is ended by a signal, or `leasehold` is, nobody knows how far \
it came: the gate stays shut. The gate is passed, not held: a command that runs for longer than the period may run \
twice at once (`run` prevents that).

The command gets LEASEHOLD_GATE, LEASEHOLD_GATE_FENCE (higher each time) and LEASEHOLD_STORE, and as \
with `run` no secrets.";

const EXAMPLES: &str = "\
Examples:
  leasehold gate device-42 --every 60s -- ./notify.sh
  leasehold gate device-42 --every 60s -E 0 -- ./notify.sh    it is fine if it was notified already
  if leasehold gate report --every 1d; then …; fi             without a command it only passes or does not
  leasehold show --gate device-42
  leasehold list --gates";

/// Run a command at most once per period, wherever it is started.
#[derive(Args, Debug)]
#[command(override_usage = "leasehold gate [OPTIONS] <ID> --every <TIME> [-- <COMMAND>...]")]
#[command(after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXPLANATION}\n\n{EXAMPLES}\n\n{}", exit::TABLE))]
pub(crate) struct Gate {
    /// The gate's id: anything but control characters, at most 512 bytes.
    #[arg(value_parser = arguments::gate)]
    id: Name,

    /// The period, from a millisecond to ten years.
    #[arg(long, value_name = "TIME", value_parser = leasehold::duration::parse)]
    #[arg(allow_hyphen_values = true)]
    every: Duration,

    /// Leave the gate shut even if the command fails.
    #[arg(long)]
    no_reopen: bool,

    /// The exit code when the gate is shut.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::HELD)]
    held_code: u8,

    /// Who passes, for people to read [default: HOST:PID].
    #[arg(long)]
    owner: Option<String>,

    /// The command to run, and its arguments.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Gate {
    pub(crate) async fn execute(mut self, common: &Common) -> Result<u8, Failure> {
        // In `gate --every 1m -- -id -- COMMAND` the second pair of dashes is the one that was meant.
        if self.command.first().is_some_and(|word| word == "--") {
            self.command.remove(0);
        }
        let mut signals = Signals::catch()?;
        let place = store::place(common)?;
        let client = tokio::select! {
            client = store::connect(&place) => client?,
            signal = signals.end() => return Ok(exit::by(signal)),
        };
        let asked = Machine.boot_time();
        let passed = tokio::select! {
            passed = self.pass(&client) => passed,
            signal = signals.end() => {
                store::close(&client).await;
                return Ok(exit::by(signal));
            }
        };
        let done = match passed {
            Ok(hold) if self.command.is_empty() => {
                self.tell(&hold, asked, common).map(Outcome::Ended)
            }
            Ok(hold) => self.act(&client, &place, &hold, &mut signals).await,
            Err(refused) => Err(refused),
        };
        store::close(&client).await;
        match done? {
            Outcome::Interrupted(key) => Ok(end_by(key)),
            ended => Ok(ended.code()),
        }
    }

    async fn pass(&self, client: &Client) -> Result<Hold, Failure> {
        let request = AcquireRequest {
            name: self.id.clone(),
            nonce: Nonce::new(format!("{:032x}", Machine.random()))?,
            owner: match &self.owner {
                Some(owner) => owner.as_str().into(),
                None => client.owner().clone(),
            },
            ttl: self.every,
            mode: Mode::Exclusive,
            fence: None,
            wait: Duration::ZERO,
        };
        let held = match client.leases().acquire(request).await? {
            Acquired::Granted(hold) => return Ok(hold),
            Acquired::Held(held) => held,
        };
        let (id, left) = (&self.id, output::span(held.retry_after));
        let message = format!("{id} is shut for another {left}: {} passed it", held.owner);
        Err(Failure::shut(self.held_code, message, &held))
    }

    /// Says that it is passed.
    fn tell(&self, hold: &Hold, asked: BootTime, common: &Common) -> Result<u8, Failure> {
        let until = output::time(hold.grant.expires_at);
        if common.json {
            let name = self.id.as_str().into();
            let lease = wire::Lease::granted(&hold.grant, asked, hold.deadline);
            output::json(&wire::NamedLease { name, lease })?;
        } else {
            output::text(&format!("{} is passed, and shut until {until}", self.id))?;
        }
        Ok(0)
    }

    /// Runs the command; opens the gate again if that failed.
    async fn act(
        &self,
        client: &Client,
        place: &Place,
        hold: &Hold,
        signals: &mut Signals,
    ) -> Result<Outcome, Failure> {
        let mut environment = place.environment();
        environment.extend([
            ("LEASEHOLD_GATE", Some(self.id.to_string())),
            ("LEASEHOLD_GATE_FENCE", Some(hold.grant.fence.to_string())),
        ]);
        let outcome = accompany(Job::inheriting(&self.command, environment), signals).await;
        match &outcome {
            Ok(Outcome::Ended(0)) => {}
            Ok(Outcome::Ended(_)) | Err(_) => self.reopen(client, hold).await,
            Ok(_) => output::note(&format!("{} stays shut: its command was killed", self.id)),
        }
        outcome.map_err(|error| Failure::system("the command cannot be started", error))
    }

    async fn reopen(&self, client: &Client, hold: &Hold) {
        if self.no_reopen {
            return;
        }
        let who = Holding::Fence(hold.grant.fence);
        if let Err(error) = client.leases().release(&self.id, who).await {
            output::note(&format!("{} stays shut: {error}", self.id));
        }
    }
}
