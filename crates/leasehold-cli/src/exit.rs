//! Exit codes, and the failures that end with one.

use std::fmt::Display;
use std::process::ExitCode;

use leasehold::Error;
use leasehold::core::Held;
use leasehold::wire::Problem;
use serde_json::json;

use crate::output;

/// `work`: some commands failed. `show`: there is no record of the name.
pub(crate) const FAILED: u8 = 1;
/// Invalid arguments: an unknown flag, an invalid name or ttl.
pub(crate) const USAGE: u8 = 2;
/// A stored record is corrupt.
pub(crate) const CORRUPT: u8 = 65;
/// The store is unavailable, or the outcome of the call is unknown.
pub(crate) const UNAVAILABLE: u8 = 69;
/// A local error: a process cannot be started, the output cannot be written.
pub(crate) const SYSTEM: u8 = 71;
/// Contention: the lease is held, the gate is shut, or there is no item to claim.
pub(crate) const HELD: u8 = 75;
/// The lease was lost: the fence is not, or no longer, that of a live holder.
pub(crate) const LOST: u8 = 76;
/// A right is missing, or the setup is incomplete.
pub(crate) const DENIED: u8 = 77;
/// The command ran longer than it may, as with timeout(1).
pub(crate) const TIMED_OUT: u8 = 124;
/// The command exists but cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// Returns the exit code of a program that was ended by a signal.
pub(crate) fn of_signal(signal: nix::sys::signal::Signal) -> u8 {
    u8::try_from(128 + signal as i32).unwrap_or(1)
}

/// The exit codes, for `--help` and the manual.
pub(crate) const TABLE: &str = "\
Exit codes:
  0    success (`run`, `gate`: the exit code of the command, or 128 + the signal that ended it)
  1    `work`: some commands failed, and their items moved to the state of `--failed`; `show`: the name was not used yet
  2    invalid arguments: fix them; retrying will not help
  65   corrupt record in the store: stop and inspect it
  69   the store is unavailable, or the outcome is unknown: check before you retry
  71   a local error, such as a process that cannot be started
  75   contention: lease held, gate shut, or no item to claim (`-E` changes this code)
  76   the lease was lost, or the fence is not that of a holder; `run` has ended the command
  77   a right is missing, or the setup is incomplete: fix it; retrying will not help
  124  `run`: the command was ended after `--max-hold`
  126  the command cannot be executed
  127  the command was not found";

/// The failure that ends the program: a message for people, an exit code for programs.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
    /// Whether another holder is the cause, which `--quiet` leaves to the exit code.
    is_contention: bool,
    /// The problem document that a service would answer, if the store or the lease is the cause.
    problem: Option<Box<Problem>>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            is_contention: false,
            problem: None,
        }
    }

    /// Returns a local error.
    pub(crate) fn system(what: &str, error: impl std::fmt::Display) -> Self {
        Self::new(SYSTEM, format!("{what}: {error}"))
    }

    /// Converts an error of the store; if the lease is held, the message names it.
    ///
    /// The message says since when, not for how long: a holder renews its lease, so the remaining time says little.
    pub(crate) fn of(what: &impl Display, error: Error) -> Self {
        let message = match &error {
            Error::Held(held) => format!("{what} is {}", holder_of(held)),
            error => error.to_string(),
        };
        Self {
            message,
            ..Self::from(error)
        }
    }

    /// Returns the failure to pass a gate that is shut.
    pub(crate) fn shut(code: u8, message: String, held: &Held) -> Self {
        Self {
            code,
            message,
            is_contention: true,
            problem: Some(Box::new(Problem::throttled(held))),
        }
    }

    /// Prints the failure to standard error, as one line. Prints nothing if it counts as a success (`-E 0`).
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        if self.code == 0 || (output::is_quiet() && self.is_contention) {
            return ExitCode::from(self.code);
        }
        match &self.problem {
            Some(problem) if json => output::error(&json!(problem).to_string()),
            None if json => output::error(&json!({ "detail": self.message }).to_string()),
            _ => output::error(&format!("leasehold: {}", self.message.replace('\n', " "))),
        }
        ExitCode::from(self.code)
    }
}

/// Formats the holder that a contender met: `held by web-1 since TIME`.
pub(crate) fn holder_of(held: &Held) -> String {
    let owner = match &*held.owner {
        "" => "an unnamed holder or waiter",
        owner => owner,
    };
    let since = output::time_to_second(held.since);
    format!("held by {owner} since {since}")
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Held(_) => HELD,
            Error::Fenced | Error::Expired => LOST,
            Error::Invalid(_) => USAGE,
            Error::Denied(_) => DENIED,
            Error::Corrupt(_) => CORRUPT,
            _ => UNAVAILABLE,
        };
        Self {
            code,
            message: error.to_string(),
            is_contention: code == HELD,
            problem: Some(Box::new(Problem::from(&error))),
        }
    }
}

impl From<leasehold::core::Invalid> for Failure {
    fn from(invalid: leasehold::core::Invalid) -> Self {
        Error::from(invalid).into()
    }
}
