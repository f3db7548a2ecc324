//! What the command line looks like, and the arguments that several commands share.

use std::fmt::Display;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use leasehold::core::{Fence, Mode, Name};

use crate::exit::{self, Failure};
use crate::{
    acquire, bench, break_lease, claim, completions, doctor, gate, init, list, man, purge, put,
    release, remove, renew, run, serve, show, store, token, update, watch, work,
};

const EXAMPLES: &str = "\
Examples:
  leasehold run nightly -- ./report.sh        run it once, however many start it
  leasehold run nightly -n -- ./report.sh     …or give up at once (exit code 75)
  leasehold gate alert --every 1m -- ./mail   at most once a minute, wherever it is started
  leasehold list                              who holds what
  leasehold watch                             what happens, as it happens
  leasehold serve                             the same leases over HTTP, on port 12345
  leasehold --store http://db1:12345 list     …and from another machine";

/// Leases with fencing tokens on the database you already run.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = format!("{EXAMPLES}\n\n{}", exit::TABLE))]
#[command(propagate_version = true, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Args, Debug)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Common {
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LEASEHOLD_STORE",
        hide_env_values = true
    )]
    #[arg(help = "Where the leases are kept [default: a SQLite file in your data folder]")]
    #[arg(long_help = store::help())]
    pub(crate) store: Option<String>,

    /// Who asks, for a service that requires it: a token of `leasehold token create`. Every user of this machine can see
    /// arguments (`ps`), so give it as the variable, or as @FILE: the only line of that file.
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "LEASEHOLD_TOKEN",
        hide_env_values = true
    )]
    pub(crate) token: Option<String>,

    /// Answer in JSON, for programs.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Run),
    Gate(gate::Gate),
    Acquire(acquire::Acquire),
    Renew(renew::Renew),
    Update(update::Update),
    Release(release::Release),
    Break(break_lease::Break),
    Put(put::Put),
    Remove(remove::Remove),
    Claim(claim::Claim),
    Work(work::Work),
    Show(show::Show),
    List(list::List),
    Watch(watch::Watch),
    Serve(serve::Serve),
    Token(token::Token),
    Doctor(doctor::Doctor),
    Init(init::Init),
    Purge(purge::Purge),
    Bench(bench::Bench),
    Completions(completions::Completions),
    Man(man::Man),
}

/// How a lease is taken: the same for `run` and `acquire`.
#[derive(Args, Debug)]
pub(crate) struct Taking {
    /// The lease's name: anything but control characters, at most 512 bytes.
    #[arg(value_parser = name)]
    pub(crate) name: Name,

    /// Do not wait: give up at once if somebody else holds it.
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// Wait at most so long (`500ms`, `30s`, `5m`, `2h`); without it, for as long as it takes.
    #[arg(short, long, value_name = "TIME", value_parser = leasehold::duration::parse)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,

    /// The exit code when somebody else holds it.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::HELD)]
    pub(crate) held_code: u8,

    /// How long the lease outlives its holder's last sign of life.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = leasehold::duration::parse)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) ttl: Duration,

    /// Who holds it, for people to read [default: HOST:PID].
    #[arg(long)]
    pub(crate) owner: Option<String>,

    /// Share the lease with others that do so too.
    #[arg(long)]
    pub(crate) shared: bool,

    /// Share it among at most so many.
    #[arg(long, value_name = "N", requires = "shared")]
    pub(crate) limit: Option<u16>,
}

impl Taking {
    pub(crate) fn mode(&self) -> Mode {
        if self.shared {
            Mode::Shared { limit: self.limit }
        } else {
            Mode::Exclusive
        }
    }

    /// How long to wait; `None` for as long as it takes.
    pub(crate) fn patience(&self) -> Option<Duration> {
        if self.no_wait {
            Some(Duration::ZERO)
        } else {
            self.wait
        }
    }

    /// The failure that this error is, with the exit code that was asked for.
    pub(crate) fn failure(&self, what: &impl Display, error: leasehold::Error) -> Failure {
        let mut failure = Failure::of(what, error);
        if failure.code == exit::HELD {
            failure.code = self.held_code;
        }
        failure
    }
}

/// Reads a lease's name.
pub(crate) fn name(text: &str) -> Result<Name, leasehold::core::Invalid> {
    Name::lock(text)
}

/// Reads a gate's id.
pub(crate) fn gate(text: &str) -> Result<Name, leasehold::core::Invalid> {
    Name::gate(text)
}

/// Reads a fence.
pub(crate) fn fence(text: &str) -> Result<Fence, String> {
    text.parse()
        .ok()
        .and_then(Fence::new)
        .ok_or_else(|| "a fence is a whole number, as `acquire` and `show` print it".to_owned())
}
