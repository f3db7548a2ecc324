//! `leasehold run`: runs a command while holding a lease.

mod group;
mod hold;
mod huge_pages;
mod interrupted;
mod job;
mod nested;
mod process;
mod shim;
mod supervise;
mod terminal;
mod watchdog;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use leasehold::Client;
use leasehold::core::Name;
use nix::sys::signal::Signal;

use crate::arguments::{self, AcquireOptions, Common};
use crate::exit::{self, Failure};
use crate::signals::Signals;
use crate::store::Target;
use crate::{output, store};
pub(crate) use hold::environment;
pub(crate) use huge_pages::disable as disable_huge_pages;
pub(crate) use interrupted::end_by;
pub(crate) use job::{Job, Outcome, run_unleased};
use nested::Enclosing;
pub(crate) use supervise::supervise;
pub(crate) use terminal::Terminal;

/// The running program, even if its file was replaced since.
const THIS_PROGRAM: &str = "/proc/self/exe";

const EXPLANATION: &str = "\
Environment: the command receives LEASEHOLD_NAME, LEASEHOLD_FENCE (pass it to the resources that check fences), \
LEASEHOLD_BODY (what an unfinished run left), LEASEHOLD_EXPIRES (the expiry as of the start; the lease is renewed while \
the command runs) and LEASEHOLD_STORE. With `--also` it also receives LEASEHOLD_FENCES, a JSON object with the fence of \
each name. If one of several leases is lost, the command is ended.

Secrets: the command receives none. A URL with a password and a token are passed on in LEASEHOLD_STORE and \
LEASEHOLD_TOKEN only if they were given as `@FILE`, and in that form. Otherwise the variables are set to `withheld:`, \
which a nested `leasehold` refuses, so that it does not silently use another store.

Body: what the command writes with `leasehold update` is kept for the next holder if the command fails or is ended. If \
the command ends with 0, the body is cleared in the write that releases the lease, unless `--keep-body` is given, the \
lease is shared, or the name is a work item. The bodies of `--also` names are not changed.

Processes: the command and its children form one process group, which holds the lease as a whole. Signals are forwarded \
to the group. When the command ends, the remaining processes are ended before the lease is released. If the lease \
cannot be renewed, or `leasehold` itself is killed or stopped, the group is ended (TERM, then KILL) before another \
holder can get the lease: a quarter of the ttl before its expiry, but at most 5 s before. Processes that leave the group \
(daemons, `setsid`) are not tracked. Processes of another user cannot be ended: use `sudo leasehold run …`, not \
`leasehold run … -- sudo …`.

Nested runs: a run of a name that the enclosing `leasehold run` holds would wait for itself, so it is refused. With \
`--nested` it runs its command at once, under the lease of the enclosing one.

Ctrl-Z: while the command is stopped, its lease is not renewed, and the command is ended unless it continues in time.";

const EXAMPLES: &str = "\
Examples:
  leasehold run nightly -- ./report.sh
  leasehold run nightly -n -E 0 -- ./report.sh           silent, with exit code 0, if it runs elsewhere
  leasehold run nightly -c './dump | gzip >dump.gz'      a line for the shell
  leasehold run nightly -n --at-least 1m -- ./report.sh  once, even if the clocks of the machines differ
  leasehold run nightly --max-hold 1h -- ./report.sh     ended after an hour
  leasehold run nightly -w 10s --ttl 1m -- ./report.sh
  leasehold run gpu --shared --limit 4 -- ./train.sh     at most four at a time
  leasehold run ada --also bob -- ./transfer.sh          both leases, or neither
  leasehold run job -- sh -c 'leasehold update \"$LEASEHOLD_NAME\" \"$LEASEHOLD_FENCE\" half-way'";

/// Run a command while holding a lease, like flock(1).
///
/// While another holder has the lease, the command waits, without limit unless `--wait` or `--no-wait` is given.
#[derive(Args, Debug)]
#[command(override_usage = "leasehold run [OPTIONS] <NAME> -- <COMMAND>...")]
#[command(after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXPLANATION}\n\n{EXAMPLES}\n\n{}", exit::TABLE))]
pub(crate) struct Run {
    #[command(flatten)]
    options: AcquireOptions,

    /// Hold this lease too: all leases or none are acquired. May be given several times.
    #[arg(long, value_name = "NAME", value_parser = arguments::name, conflicts_with = "shared")]
    also: Vec<Name>,

    /// Keep the body when the command ends with 0. By default it is cleared then, so that the next run does not resume
    /// finished work.
    #[arg(long)]
    keep_body: bool,

    /// Run this line with `sh -c` instead of a command.
    #[arg(short = 'c', long, value_name = "LINE", conflicts_with = "command")]
    shell: Option<OsString>,

    /// Keep the lease for at least this long: if the command ends earlier, `leasehold` waits before it releases the lease.
    #[arg(long, value_name = "TIME", value_parser = arguments::duration)]
    at_least: Option<Duration>,

    /// End the command after this long, with exit code 124.
    #[arg(long, value_name = "TIME", value_parser = arguments::duration)]
    max_hold: Option<Duration>,

    /// Signal for the command if the lease is lost: `term`, `kill`, or another one such as `usr1`. KILL follows.
    #[arg(long, value_name = "SIGNAL", default_value = "term", value_parser = signal)]
    on_loss: Signal,

    /// If the lease is lost, acquire it again and run the command again.
    #[arg(long)]
    restart: bool,

    /// If the enclosing `leasehold run` holds the lease, run the command under that lease.
    #[arg(long)]
    nested: bool,

    /// Command to run, with its arguments.
    #[arg(
        required_unless_present = "shell",
        trailing_var_arg = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// Runs as a helper process of `leasehold run` if the arguments ask for one.
pub(crate) fn helper(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match arguments.next()?.to_str()? {
        shim::WORD => Some(shim::main(arguments)),
        interrupted::WORD => Some(interrupted::main(arguments.next()?.to_str()?)),
        watchdog::WORD => {
            let arguments: Vec<_> = arguments.collect();
            let arguments: Option<Vec<_>> = arguments.iter().map(|text| text.to_str()).collect();
            Some(watchdog::process::main(&arguments?))
        }
        _ => None,
    }
}

impl Run {
    pub(crate) async fn execute(mut self, common: &Common) -> Result<u8, Failure> {
        // In `run -- -name -- COMMAND`, the second `--` separates the command.
        if self.command.len() > 1 && self.command[0] == "--" {
            self.command.remove(0);
        }
        if let Some(line) = &self.shell {
            self.command = vec!["sh".into(), "-c".into(), line.clone()];
        }
        let mut signals = Signals::catch()?;
        let target = store::target(common)?;
        let client = tokio::select! {
            client = store::connect(&target) => client?,
            signal = signals.end() => return Ok(exit::of_signal(signal)),
        };
        let is_held = tokio::select! {
            is_held = self.is_held_by_enclosing(&client, &target) => is_held,
            signal = signals.end() => return Ok(exit::of_signal(signal)),
        };
        let ran = match is_held {
            Ok(true) => {
                store::close(&client).await;
                huge_pages::restore(huge_pages::argument());
                let mut words = self.command.into_iter();
                let program = words.next().unwrap_or_default();
                return Ok(shim::execute(&program, words));
            }
            Ok(false) => self.run(&client, &target, &mut signals).await,
            Err(failure) => Err(failure),
        };
        store::close(&client).await;
        match ran? {
            Outcome::Interrupted(signal) => Ok(end_by(signal)),
            Outcome::Lost(reason) => Err(Failure::new(
                exit::LOST,
                format!(
                    "lost {}, and its command was ended: {reason}",
                    self.description()
                ),
            )),
            Outcome::TimedOut(limit) => Err(Failure::new(
                exit::TIMED_OUT,
                format!(
                    "ended the command, which held {} for longer than {}",
                    self.description(),
                    output::span(limit)
                ),
            )),
            Outcome::Survivors { processes, outcome } => Err(self.survivors(&processes, &outcome)),
            ended => Ok(ended.code()),
        }
    }

    /// Returns whether the enclosing `leasehold run` holds the names, with `--nested`. Without, that is an error.
    async fn is_held_by_enclosing(
        &self,
        client: &Client,
        target: &Target,
    ) -> Result<bool, Failure> {
        let Some(enclosing) = Enclosing::of_environment(target) else {
            return Ok(false);
        };
        let names = std::iter::once(&self.options.name).chain(&self.also);
        let held = enclosing.held(client, names).await?;
        let Some(first) = held.first() else {
            return Ok(false);
        };
        if !self.nested {
            return Err(Failure::new(
                exit::USAGE,
                format!(
                    "cannot acquire {first}: the enclosing `leasehold run` holds it, and would be waited for forever; \
                     give `--nested` to run the command under that lease"
                ),
            ));
        }
        if held.len() <= self.also.len() {
            return Err(Failure::new(
                exit::USAGE,
                format!(
                    "cannot run under the leases of the enclosing `leasehold run`: it holds {first}, but not all of {}; \
                     acquire all names in the enclosing one",
                    self.names().join(", ")
                ),
            ));
        }
        Ok(true)
    }

    /// Acquires the leases and runs the command, again and again if `--restart` is given and the leases are lost.
    async fn run(
        &self,
        client: &Client,
        target: &Target,
        signals: &mut Signals,
    ) -> Result<Outcome, Failure> {
        loop {
            let leases = tokio::select! {
                leases = self.leases(client) => leases,
                signal = signals.end() => return Ok(Outcome::Killed(signal)),
            };
            let leases =
                leases.map_err(|error| self.options.failure(&self.description(), error))?;
            match self.hold(leases, target, signals).await? {
                Outcome::Lost(reason) if self.restart => output::note(&format!(
                    "lost {}, and its command was ended: {reason}; acquiring it again",
                    self.description()
                )),
                outcome => return Ok(outcome),
            }
        }
    }

    /// Returns the failure that names the processes that could not be killed.
    fn survivors(&self, processes: &str, outcome: &Outcome) -> Failure {
        let name = self.description();
        let message = match outcome {
            Outcome::Lost(reason) => format!(
                "lost {name} ({reason}), but these processes still run and cannot be killed: {processes}"
            ),
            _ => format!(
                "cannot release {name}, because these processes still run and cannot be killed: {processes}; it \
                 expires after its ttl"
            ),
        };
        Failure::new(outcome.code(), message)
    }

    /// Returns the name or names for a message.
    fn description(&self) -> String {
        match &*self.also {
            [] => self.options.name.to_string(),
            _ => format!("one of {}", self.names().join(", ")),
        }
    }

    fn names(&self) -> Vec<&str> {
        let names = std::iter::once(&self.options.name).chain(&self.also);
        names.map(Name::as_str).collect()
    }
}

/// Parses the name of a signal, with or without `SIG`, in any case.
fn signal(text: &str) -> Result<Signal, String> {
    let name = text.to_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let signal = format!("SIG{name}").parse();
    signal.map_err(|_| {
        "unknown signal: give `term`, `kill` or another name, such as `usr1`".to_owned()
    })
}
