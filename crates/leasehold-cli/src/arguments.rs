//! The definition of the command line, and the arguments that several commands share.

use std::fmt::Display;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use leasehold::core::{Fence, Mode, Name};

use crate::exit::{self, Failure};
use crate::{
    acquire, bench, break_lease, claim, completions, doctor, gate, init, list, man, purge, put,
    release, remove, renew, run, serve, show, stores, token, update, watch, work,
};

const EXAMPLES: &str = "\
Examples:
  leasehold run nightly -- ./report.sh        one at a time across all machines; the others wait
  leasehold run nightly -n -- ./report.sh     without waiting: exit code 75 if the lease is held
  leasehold gate alert --every 1m -- ./mail   at most once a minute, across all machines
  leasehold list                              all leases and their holders
  leasehold watch                             events as they happen
  leasehold serve                             the same leases over HTTP, on port 12345
  leasehold --store http://db1:12345 list     use a service from another machine
  leasehold help stores                       the URLs of databases, and their options";

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

/// The options of every command.
#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Common {
    /// Where the leases are: a URL (see `leasehold help stores`), or @FILE, a file with the URL [default: a SQLite file in
    /// your data folder].
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LEASEHOLD_STORE",
        hide_env_values = true
    )]
    pub(crate) store: Option<String>,

    /// Token for a service that requires one, from `leasehold token create`. Every user of this machine can see
    /// arguments (`ps`): set the variable instead, or give @FILE, a file that contains only the token.
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "LEASEHOLD_TOKEN",
        hide_env_values = true
    )]
    pub(crate) token: Option<String>,

    /// Print JSON, for programs.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Print results and errors only: no confirmations, no notes, and nothing on contention.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
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
    Stores(stores::Stores),
    Completions(completions::Completions),
    Man(man::Man),
}

/// How to acquire a lease: the options that `run` and `acquire` share.
#[derive(Args, Debug)]
pub(crate) struct AcquireOptions {
    /// Name of the lease: at most 512 bytes, without control characters.
    #[arg(value_parser = name)]
    pub(crate) name: Name,

    /// Do not wait: fail at once if the lease is held.
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// How long to wait for the lease (`500ms`, `30s`, `5m`, `2h`) [default: without limit].
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,

    /// Exit code if another holder has the lease.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::HELD)]
    pub(crate) held_code: u8,

    /// Time to live: how long the lease lasts after its last renewal.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) ttl: Duration,

    /// Owner to show to other users of the store [default: HOST:PID].
    #[arg(long)]
    pub(crate) owner: Option<String>,

    /// Acquire the lease in shared mode, together with other shared holders.
    #[arg(long)]
    pub(crate) shared: bool,

    /// Maximum number of shared holders.
    #[arg(long, value_name = "N", requires = "shared")]
    pub(crate) limit: Option<u16>,
}

impl AcquireOptions {
    pub(crate) fn mode(&self) -> Mode {
        if self.shared {
            Mode::Shared { limit: self.limit }
        } else {
            Mode::Exclusive
        }
    }

    /// Returns how long to wait; `None` means without limit.
    pub(crate) fn wait_limit(&self) -> Option<Duration> {
        if self.no_wait {
            Some(Duration::ZERO)
        } else {
            self.wait
        }
    }

    /// Converts an error into a failure, with the exit code of `--held-code` if the lease is held.
    pub(crate) fn failure(&self, what: &impl Display, error: leasehold::Error) -> Failure {
        let mut failure = Failure::of(what, error);
        if failure.code == exit::HELD {
            failure.code = self.held_code;
        }
        failure
    }
}

/// Parses the name of a lease.
pub(crate) fn name(text: &str) -> Result<Name, leasehold::core::Invalid> {
    Name::lock(text)
}

/// Parses the id of a gate.
pub(crate) fn gate(text: &str) -> Result<Name, leasehold::core::Invalid> {
    Name::gate(text)
}

/// Parses a duration: a number with a unit, or plain seconds (`10`, `0.5`) as flock(1) and sleep(1) accept them.
pub(crate) fn duration(text: &str) -> Result<Duration, leasehold::core::Invalid> {
    let is_plain = !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds = text.parse().ok().filter(|_| is_plain);
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(duration) => Ok(duration),
        None => leasehold::duration::parse(text),
    }
}

/// Parses a fence.
pub(crate) fn fence(text: &str) -> Result<Fence, String> {
    text.parse()
        .ok()
        .and_then(Fence::new)
        .ok_or_else(|| "a fence is a whole number, as printed by `acquire` and `show`".to_owned())
}
