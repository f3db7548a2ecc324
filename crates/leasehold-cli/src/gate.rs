//! `leasehold gate`: runs a command at most once per period.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use leasehold::core::{BootTime, Mode, Name, Nonce};
use leasehold::host::{Host as _, Machine};
use leasehold::{
    AcquireOutcome, AcquireRequest, BreakOutcome, BreakRequest, Client, Hold, HolderKey, wire,
};

use crate::arguments::{self, Common};
use crate::exit::{self, Failure};
use crate::run::{Job, Outcome, end_by, run_unleased};
use crate::signals::Signals;
use crate::store::Target;
use crate::{output, store};

const EXPLANATION: &str = "\
The first caller passes the gate, which is then shut for all callers until the period is over. If the command fails \
(with any exit code but 0), the gate opens again, so that the next caller can retry. If a signal ends the command or \
`leasehold`, it is unknown how far the command got, and the gate stays shut. The gate is passed, not held: a command \
that runs for longer than the period may run twice at the same time (`run` prevents that).

The command receives LEASEHOLD_GATE, LEASEHOLD_GATE_FENCE (higher each time) and LEASEHOLD_STORE. As with `run`, it \
receives no secrets.";

const EXAMPLES: &str = "\
Examples:
  leasehold gate device-42 --every 60s -- ./notify.sh
  leasehold gate device-42 --every 60s -E 0 -- ./notify.sh    exit code 0 also if the gate is shut
  if leasehold gate report --every 1d; then …; fi             without a command: the exit code says whether it passed
  leasehold gate device-42 --reopen
  leasehold show --gate device-42
  leasehold list --gates";

/// Run a command at most once per period, across all machines.
#[derive(Args, Debug)]
#[command(override_usage = "leasehold gate [OPTIONS] <ID> --every <TIME> [-- <COMMAND>...]")]
#[command(after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXPLANATION}\n\n{EXAMPLES}\n\n{}", exit::TABLE))]
pub(crate) struct Gate {
    /// Id of the gate: at most 512 bytes, without control characters.
    #[arg(value_parser = arguments::gate)]
    id: Name,

    /// Length of the period: from a millisecond to ten years.
    #[arg(long, value_name = "TIME", value_parser = arguments::duration)]
    #[arg(allow_hyphen_values = true, required_unless_present = "reopen")]
    every: Option<Duration>,

    /// Open a shut gate, so that the next caller passes it.
    #[arg(long, conflicts_with_all = ["every", "command"])]
    reopen: bool,

    /// Keep the gate shut even if the command fails.
    #[arg(long)]
    no_reopen: bool,

    /// Exit code if the gate is shut.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::HELD)]
    held_code: u8,

    /// Owner to show to other users of the store [default: HOST:PID].
    #[arg(long)]
    owner: Option<String>,

    /// Command to run, with its arguments.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Gate {
    pub(crate) async fn execute(mut self, common: &Common) -> Result<u8, Failure> {
        // In `gate --every 1m -- -id -- COMMAND`, the second `--` separates the command.
        if self.command.first().is_some_and(|word| word == "--") {
            self.command.remove(0);
        }
        let mut signals = Signals::catch()?;
        let target = store::target(common)?;
        let client = tokio::select! {
            client = store::connect(&target) => client?,
            signal = signals.end() => return Ok(exit::of_signal(signal)),
        };
        if self.reopen {
            let reopened = self.open_for_next(&client, common).await;
            store::close(&client).await;
            return reopened;
        }
        let sent = Machine.boot_time();
        let passed = tokio::select! {
            passed = self.pass(&client) => passed,
            signal = signals.end() => {
                store::close(&client).await;
                return Ok(exit::of_signal(signal));
            }
        };
        let done = match passed {
            Ok(hold) if self.command.is_empty() => {
                self.report_passed(&hold, sent, common).map(Outcome::Ended)
            }
            Ok(hold) => {
                self.run_command(&client, &target, &hold, &mut signals)
                    .await
            }
            Err(refused) => Err(refused),
        };
        store::close(&client).await;
        match done? {
            Outcome::Interrupted(signal) => Ok(end_by(signal)),
            ended => Ok(ended.code()),
        }
    }

    /// Opens the gate for the next caller.
    async fn open_for_next(&self, client: &Client, common: &Common) -> Result<u8, Failure> {
        let request = BreakRequest::Force {
            fence: None,
            reason: "opened by hand".into(),
            now: true,
        };
        let opened = client.leases().break_lease(&self.id, request).await? != BreakOutcome::NotHeld;
        if common.json {
            let (broken, until) = (opened, None);
            output::json(&wire::BreakResponse { broken, until })?;
        } else if opened {
            output::confirmation(&format!("opened {}", self.id))?;
        } else {
            output::confirmation(&format!("{} is open already", self.id))?;
        }
        Ok(0)
    }

    async fn pass(&self, client: &Client) -> Result<Hold, Failure> {
        let request = AcquireRequest {
            name: self.id.clone(),
            nonce: Nonce::new(format!("{:032x}", Machine.random()))?,
            owner: match &self.owner {
                Some(owner) => owner.as_str().into(),
                None => client.owner().clone(),
            },
            ttl: self.every.unwrap_or_default(),
            mode: Mode::Exclusive,
            fence: None,
            wait: Duration::ZERO,
        };
        let held = match client.leases().acquire(request).await? {
            AcquireOutcome::Granted(hold) => return Ok(hold),
            AcquireOutcome::Held(held) => held,
        };
        let (id, left) = (&self.id, output::span(held.retry_after));
        let message = format!("{id} is shut for another {left}: passed by {}", held.owner);
        Err(Failure::shut(self.held_code, message, &held))
    }

    /// Prints that the gate was passed.
    fn report_passed(&self, hold: &Hold, sent: BootTime, common: &Common) -> Result<u8, Failure> {
        let until = output::time(hold.grant.expires_at);
        if common.json {
            let name = self.id.as_str().into();
            let lease = wire::Lease::granted(&hold.grant, sent, hold.deadline);
            output::json(&wire::NamedLease { name, lease })?;
        } else {
            output::confirmation(&format!("passed {}, which is shut until {until}", self.id))?;
        }
        Ok(0)
    }

    /// Runs the command, and opens the gate again if the command fails.
    async fn run_command(
        &self,
        client: &Client,
        target: &Target,
        hold: &Hold,
        signals: &mut Signals,
    ) -> Result<Outcome, Failure> {
        let mut environment = target.environment();
        environment.extend([
            ("LEASEHOLD_GATE", Some(self.id.to_string())),
            ("LEASEHOLD_GATE_FENCE", Some(hold.grant.fence.to_string())),
        ]);
        let outcome = run_unleased(Job::inheriting(&self.command, environment), signals).await;
        match &outcome {
            Ok(Outcome::Ended(0)) => {}
            Ok(Outcome::Ended(_)) | Err(_) => self.reopen(client, hold).await,
            Ok(_) => output::note(&format!(
                "{} stays shut: a signal ended its command",
                self.id
            )),
        }
        outcome.map_err(|error| Failure::system("cannot start the command", error))
    }

    async fn reopen(&self, client: &Client, hold: &Hold) {
        if self.no_reopen {
            return;
        }
        let holding = HolderKey::Fence(hold.grant.fence);
        if let Err(error) = client.leases().release(&self.id, holding).await {
            output::note(&format!("{} stays shut: {error}", self.id));
        }
    }
}
