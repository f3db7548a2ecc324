//! `leasehold run`: a command that runs only while it holds a lease.

mod group;
mod interrupted;
mod job;
mod process;
mod shim;
mod supervise;
mod terminal;
mod watchdog;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use leasehold::core::Name;
use leasehold::{Client, Error, Lease};
use serde_json::{Value, json};

use crate::acquire::tell_of_waiting;
use crate::arguments::{self, Common, Taking};
use crate::exit::{self, Failure};
use crate::signals::Signals;
use crate::store::Place;
use crate::{output, store};
pub(crate) use interrupted::end_by;
pub(crate) use job::{Job, Outcome, accompany};
pub(crate) use supervise::supervise;
pub(crate) use terminal::Terminal;

/// This very program, also if its file was replaced meanwhile.
const THIS_PROGRAM: &str = "/proc/self/exe";

const EXPLANATION: &str = "\
The command gets LEASEHOLD_NAME, LEASEHOLD_FENCE (pass it on to whatever can check it), LEASEHOLD_BODY (where an \
unfinished run stopped), LEASEHOLD_EXPIRES (when the lease would be over if it were not renewed, as of the start; it is \
renewed for as long as the command runs) and LEASEHOLD_STORE; with `--also`, LEASEHOLD_FENCES too, a JSON object with \
the fence of each name. If one of several leases is lost, the command is ended.

The command gets no secrets. If the store's URL has a password, or there is a token, LEASEHOLD_STORE and LEASEHOLD_TOKEN are \
`@FILE` for it where they are so here, which it can use if it may read that file. Otherwise they are `withheld:`, and a \
`leasehold` in the command says so instead of using another store.

The body that the command writes (`leasehold update`) is for the next holder if the command fails or is ended. When it \
ends with 0, the body is cleared in the write that releases the lease, unless `--keep-body` is given, the lease is \
shared, or the name is a work item. The bodies of `--also` names are left alone.

The command and all that it starts are one process group, which holds the lease as a whole: signals go to all of it, \
what the command leaves behind is ended when it ends, and only then the lease is released. If the lease cannot be \
renewed, or `leasehold` itself is killed or stopped, the group is ended (TERM, then KILL) before anybody else can get \
the lease: a quarter of the ttl before its end, but at most 5 s before. Processes that leave the group (daemons, \
`setsid`) are on their own. Processes of another user cannot be ended: use `sudo leasehold run …`, not \
`leasehold run … -- sudo …`.

The lease of a command that is stopped (Ctrl-Z) is not renewed: the command is ended unless it goes on in time.";

const EXAMPLES: &str = "\
Examples:
  leasehold run nightly -- ./report.sh
  leasehold run nightly -n -E 0 -- ./report.sh           it is fine if it runs elsewhere
  leasehold run nightly -w 10s --ttl 1m -- ./report.sh
  leasehold run gpu --shared --limit 4 -- ./train.sh     at most four at once
  leasehold run ada --also bob -- ./transfer.sh          both, or neither
  leasehold run job -- sh -c 'leasehold update \"$LEASEHOLD_NAME\" \"$LEASEHOLD_FENCE\" half-way'";

/// Run a command while holding a lease, like flock(1).
///
/// Waits for as long as it takes while somebody else holds the lease, unless told otherwise.
#[derive(Args, Debug)]
#[command(override_usage = "leasehold run [OPTIONS] <NAME> -- <COMMAND>...")]
#[command(after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXPLANATION}\n\n{EXAMPLES}\n\n{}", exit::TABLE))]
pub(crate) struct Run {
    #[command(flatten)]
    taking: Taking,

    /// Hold this lease too: all of them, or none. May be given several times.
    #[arg(long, value_name = "NAME", value_parser = arguments::name, conflicts_with = "shared")]
    also: Vec<Name>,

    /// Leave the body for the next holder when the command ends with 0. Otherwise a finished command's body is cleared,
    /// so that the next run does not resume finished work.
    #[arg(long)]
    keep_body: bool,

    /// The command to run, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Becomes a part of a running `leasehold run`, if that is what these arguments say.
pub(crate) fn helper(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match arguments.next()?.to_str()? {
        shim::WORD => Some(shim::main(arguments)),
        interrupted::WORD => Some(interrupted::main(arguments.next()?.to_str()?)),
        watchdog::WORD => Some(watchdog::process::main(arguments.next()?.to_str()?)),
        _ => None,
    }
}

impl Run {
    pub(crate) async fn execute(mut self, common: &Common) -> Result<u8, Failure> {
        // In `run -- -name -- COMMAND` the second pair of dashes is the one that was meant.
        if self.command.len() > 1 && self.command[0] == "--" {
            self.command.remove(0);
        }
        let mut signals = Signals::catch()?;
        let place = store::place(common)?;
        let client = tokio::select! {
            client = store::connect(&place) => client?,
            signal = signals.end() => return Ok(exit::by(signal)),
        };
        let ran = tokio::select! {
            leases = self.leases(&client) => match leases {
                Ok(leases) => self.hold(leases, &place, &mut signals).await,
                Err(error) => Err(self.taking.failure(&self.what(), error)),
            },
            signal = signals.end() => Ok(Outcome::Killed(signal)),
        };
        store::close(&client).await;
        match ran? {
            Outcome::Interrupted(key) => Ok(end_by(key)),
            Outcome::Lost(reason) => Err(Failure::new(
                exit::LOST,
                format!(
                    "{} is lost, and its command was ended: {reason}",
                    self.what()
                ),
            )),
            Outcome::Outlived { by, outcome } => Err(self.outlived(&by, &outcome)),
            ended => Ok(ended.code()),
        }
    }

    /// Whether the body is to be cleared, because nothing is left to resume. A shared body belongs to the other holders
    /// too, and that of a work item is its content.
    fn clears_body(&self, outcome: &io::Result<Outcome>, lease: &Lease) -> bool {
        matches!(outcome, Ok(Outcome::Ended(0)))
            && !self.keep_body
            && !self.taking.shared
            && lease.state().is_none()
    }

    /// Returns the failure that names the processes that could not be ended.
    fn outlived(&self, by: &str, outcome: &Outcome) -> Failure {
        let what = self.what();
        let message = match outcome {
            Outcome::Lost(reason) => {
                format!(
                    "{what} is lost ({reason}), but processes still run that cannot be ended: {by}"
                )
            }
            _ => format!(
                "{what} is left to expire, as processes still run that cannot be ended: {by}"
            ),
        };
        Failure::new(outcome.code(), message)
    }

    /// What it is that somebody else may hold.
    fn what(&self) -> String {
        match &*self.also {
            [] => self.taking.name.to_string(),
            _ => format!("one of {}", self.names().join(", ")),
        }
    }

    fn names(&self) -> Vec<&str> {
        let names = std::iter::once(&self.taking.name).chain(&self.also);
        names.map(Name::as_str).collect()
    }

    /// Takes the leases, that of the name first; says who is in the way if that takes a while.
    async fn leases(&self, client: &Client) -> leasehold::Result<Vec<Lease>> {
        if self.also.is_empty() {
            return Ok(vec![self.lease(client).await?]);
        }
        let taking = &self.taking;
        let mut several = client.lease_all(self.names()).ttl(taking.ttl);
        if let Some(owner) = &taking.owner {
            several = several.owner(owner.as_str());
        }
        let taken = match several.clone().acquire().await {
            Err(Error::Held(held)) if taking.patience() != Some(Duration::ZERO) => {
                tell_of_waiting(&self.names().join(", "), &held);
                several
                    .wait(taking.patience().unwrap_or(Duration::MAX))
                    .acquire()
                    .await?
            }
            taken => taken?,
        };
        let mut leases = taken.into_leases();
        leases.sort_by_key(|lease| *lease.name() != taking.name);
        Ok(leases)
    }

    /// Takes the only lease.
    async fn lease(&self, client: &Client) -> leasehold::Result<Lease> {
        let taking = &self.taking;
        let mut lease = client.lease(taking.name.as_str()).ttl(taking.ttl);
        if let Some(owner) = &taking.owner {
            lease = lease.owner(owner.as_str());
        }
        if taking.shared {
            lease = lease.shared(taking.limit);
        }
        let held = match lease.clone().acquire().await {
            Err(Error::Held(held)) if taking.patience() != Some(Duration::ZERO) => held,
            taken => return taken,
        };
        tell_of_waiting(taking.name.as_str(), &held);
        match taking.patience() {
            Some(wait) => lease.wait(wait).acquire().await,
            None => lease.wait_forever().acquire().await,
        }
    }

    /// Runs the command, and lets go.
    async fn hold(
        &self,
        leases: Vec<Lease>,
        place: &Place,
        signals: &mut Signals,
    ) -> Result<Outcome, Failure> {
        let mut environment = environment(&leases[0], place);
        if leases.len() > 1 {
            environment.push(("LEASEHOLD_FENCES", Some(fences(&leases))));
        }
        let job = Job::inheriting(&self.command, environment);
        let outcome = supervise(&leases, job, signals).await;
        if matches!(outcome, Ok(Outcome::Outlived { .. })) {
            // Dropping them would release them beside a process that still runs.
            leases.into_iter().for_each(std::mem::forget);
            return outcome
                .map_err(|error| Failure::system("the command cannot be started", error));
        }
        let lost = matches!(outcome, Ok(Outcome::Lost(_)));
        // The command was given the body of the first name only, so those of `--also` are not its own to clear.
        for (index, lease) in leases.into_iter().enumerate() {
            let name = lease.name().clone();
            let finished = index == 0 && self.clears_body(&outcome, &lease);
            let released = if finished {
                lease.complete().body("").await
            } else {
                lease.release().await.map(drop)
            };
            match released {
                Err(error) if !lost => {
                    output::note(&format!("{name} is left to expire: {error}"));
                }
                _ => {}
            }
        }
        outcome.map_err(|error| Failure::system("the command cannot be started", error))
    }
}

/// Names and fences, as a JSON object.
fn fences(leases: &[Lease]) -> String {
    let fences = leases
        .iter()
        .map(|lease| (lease.name().to_string(), json!(lease.fence())));
    Value::Object(fences.collect()).to_string()
}

/// What a command gets to know about its lease.
pub(crate) fn environment(lease: &Lease, place: &Place) -> Vec<(&'static str, Option<String>)> {
    let variables = [
        ("LEASEHOLD_NAME", Some(lease.name().to_string())),
        ("LEASEHOLD_FENCE", Some(lease.fence().to_string())),
        ("LEASEHOLD_BODY", Some(lease.body().to_string())),
        (
            "LEASEHOLD_STATE",
            lease.state().map(|state| state.to_string()),
        ),
        ("LEASEHOLD_EXPIRES", Some(output::time(lease.expires_at()))),
        ("LEASEHOLD_FENCES", None),
    ];
    // No variable can hold a NUL; a body that does is still there for `show --json`.
    let possible = |value: &String| !value.contains('\0');
    let variables = place.environment().into_iter().chain(variables);
    variables
        .map(|(name, value)| (name, value.filter(possible)))
        .collect()
}
