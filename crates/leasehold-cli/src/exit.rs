//! Exit codes, and the failures that end with one.

use std::fmt::Display;
use std::process::ExitCode;

use leasehold::Error;
use leasehold::core::Held;
use leasehold::wire::Problem;
use serde_json::json;

use crate::output;

/// Some commands of `work` failed.
pub(crate) const FAILED: u8 = 1;
/// The call is wrong: an unknown flag, a bad name or ttl.
pub(crate) const USAGE: u8 = 2;
/// What is stored makes no sense.
pub(crate) const CORRUPT: u8 = 65;
/// The store does not answer, or did not say what became of the call.
pub(crate) const UNAVAILABLE: u8 = 69;
/// Something on this machine failed: a process that cannot be started, an output that is closed.
pub(crate) const SYSTEM: u8 = 71;
/// Not now: somebody else holds the lease, the gate is shut, there is no item to claim.
pub(crate) const HELD: u8 = 75;
/// The lease was lost: the fence is not, or no longer, the holder's.
pub(crate) const LOST: u8 = 76;
/// A right or a part of the set-up is missing.
pub(crate) const DENIED: u8 = 77;
/// The command is there but cannot be run.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command is not there.
pub(crate) const NOT_FOUND: u8 = 127;

/// The code of a program that a signal has ended.
pub(crate) fn by(signal: nix::sys::signal::Signal) -> u8 {
    u8::try_from(128 + signal as i32).unwrap_or(1)
}

/// The codes, for `--help` and the manual.
pub(crate) const TABLE: &str = "\
Exit codes:
  0    done (`run`, `gate`: the command's own code, or 128 + the signal that ended it)
  1    `work`: some commands failed, and their items were moved on to `--failed`
  2    the call is wrong: mend it
  65   what is stored makes no sense: stop, and look
  69   the store does not answer, or did not say what became of the call: look before you try again
  71   something on this machine failed
  75   not now: somebody else holds the lease, the gate is shut, there is no item to claim (`-E` changes this code)
  76   the lease was lost: the fence does not hold it (any more); `run` has ended the command
  77   a right or a part of the set-up is missing: mend it
  126  the command cannot be run
  127  the command is not there";

/// What ends the program: one line for people, one code for programs.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
    /// The same as a service would put it, where the store or the lease is the cause.
    problem: Option<Box<Problem>>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            problem: None,
        }
    }

    /// Something on this machine failed.
    pub(crate) fn system(what: &str, error: impl std::fmt::Display) -> Self {
        Self::new(SYSTEM, format!("{what}: {error}"))
    }

    /// What went wrong with this.
    pub(crate) fn of(what: &impl Display, error: Error) -> Self {
        let mut failure = Self::from(error);
        if failure.code == HELD {
            failure.message = format!("{what} is {}", failure.message);
        }
        failure
    }

    /// A gate is shut.
    pub(crate) fn shut(code: u8, message: String, held: &Held) -> Self {
        Self {
            code,
            message,
            problem: Some(Box::new(Problem::throttled(held))),
        }
    }

    /// Tells it on standard error, as one line.
    pub(crate) fn tell(&self, json: bool) -> ExitCode {
        match &self.problem {
            Some(problem) if json => output::error(&json!(problem).to_string()),
            None if json => output::error(&json!({ "detail": self.message }).to_string()),
            _ => output::note(&self.message.replace('\n', " ")),
        }
        ExitCode::from(self.code)
    }
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
            problem: Some(Box::new(Problem::from(&error))),
        }
    }
}

impl From<leasehold::core::Invalid> for Failure {
    fn from(invalid: leasehold::core::Invalid) -> Self {
        Error::from(invalid).into()
    }
}
