//! A command to start, and how it ended.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::group::{CommandState, Group};
use super::process;
use super::terminal::Terminal;
use crate::exit;
use crate::signals::Signals;

/// A command to start.
pub(crate) struct Job<'a> {
    pub(crate) command: &'a [OsString],
    /// Variables to set or, with `None`, to remove from the inherited environment.
    pub(crate) environment: Vec<(&'static str, Option<String>)>,
    pub(crate) input: Stdio,
    pub(crate) output: Stdio,
    /// The signal that asks the command to end if its lease is lost. KILL follows after the grace period.
    pub(crate) loss_signal: Signal,
    /// How long the command may run before it is ended.
    pub(crate) max_hold: Option<Duration>,
    /// The terminal to give to the command.
    pub(crate) terminal: Terminal,
}

impl<'a> Job<'a> {
    /// Returns a command that inherits the input, the output and the terminal of this process.
    pub(crate) fn inheriting(
        command: &'a [OsString],
        environment: Vec<(&'static str, Option<String>)>,
    ) -> Self {
        Self {
            command,
            environment,
            input: Stdio::inherit(),
            output: Stdio::inherit(),
            loss_signal: Signal::SIGTERM,
            max_hold: None,
            terminal: Terminal::open(),
        }
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It exited with this code.
    Ended(u8),
    /// This signal ended it.
    Killed(Signal),
    /// This signal ended it, which a key of its terminal sent (Ctrl-C, Ctrl-\).
    Interrupted(Signal),
    /// It was ended because the lease was lost, for this reason.
    Lost(String),
    /// It was ended because it ran for longer than this.
    TimedOut(Duration),
    /// Some processes of its group could not be killed and still run. The lease must not be released.
    Survivors {
        /// The processes that still run, as a list.
        processes: String,
        /// How the command ended.
        outcome: Box<Outcome>,
    },
}

impl Outcome {
    pub(super) fn of(status: ExitStatus, foreground: bool) -> Self {
        match status.signal().map(Signal::try_from) {
            Some(Ok(signal @ (Signal::SIGINT | Signal::SIGQUIT))) if foreground => {
                Self::Interrupted(signal)
            }
            Some(Ok(signal)) => Self::Killed(signal),
            _ => Self::Ended(exit_code(status)),
        }
    }

    /// Returns the exit code of `leasehold` for this outcome.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Ended(code) => *code,
            Self::Killed(signal) | Self::Interrupted(signal) => exit::of_signal(*signal),
            Self::Lost(_) => exit::LOST,
            Self::TimedOut(_) => exit::TIMED_OUT,
            Self::Survivors { outcome, .. } => outcome.code(),
        }
    }
}

/// Returns the exit code of a command; 128 + N for a signal that has no name.
fn exit_code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Runs a command that holds no lease, and forwards signals to it.
pub(crate) async fn run_unleased(job: Job<'_>, signals: &mut Signals) -> io::Result<Outcome> {
    let mut children = signal(SignalKind::child())?;
    let (mut group, terminal) = Group::start(job)?;
    let foreground = terminal.give_to(group.id());
    group.run();
    loop {
        tokio::select! {
            signal = signals.next() => group.forward(signal),
            _ = children.recv() => match group.state() {
                CommandState::Running => process::reap_orphans(),
                CommandState::Stopped => terminal.stop_with(group.id()),
                CommandState::Ended => break,
            },
        }
    }
    terminal.take_from(group.id());
    match group.reap()? {
        Some(status) => Ok(Outcome::of(status, foreground)),
        None => Err(io::Error::other("the command did not end")),
    }
}
