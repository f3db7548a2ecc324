//! A command that is to be started, and how one ends.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::group::{Doing, Group};
use super::terminal::Terminal;
use crate::exit;
use crate::signals::Signals;

/// A command to be started.
pub(crate) struct Job<'a> {
    pub(crate) command: &'a [OsString],
    /// Variables for it. `None`: it shall not be there, not even from a command around this one.
    pub(crate) environment: Vec<(&'static str, Option<String>)>,
    pub(crate) input: Stdio,
    pub(crate) output: Stdio,
    /// The terminal to hand to it.
    pub(crate) terminal: Terminal,
}

impl<'a> Job<'a> {
    /// A command that gets what this process has: its input, its output and its terminal.
    pub(crate) fn inheriting(
        command: &'a [OsString],
        environment: Vec<(&'static str, Option<String>)>,
    ) -> Self {
        Self {
            command,
            environment,
            input: Stdio::inherit(),
            output: Stdio::inherit(),
            terminal: Terminal::open(),
        }
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// By itself, with this exit code.
    Ended(u8),
    /// By this signal.
    Killed(Signal),
    /// By a key that ends programs, on the terminal that was handed to it.
    Interrupted(Signal),
    /// It was ended, because the lease was about to be lost.
    Lost(String),
    /// Some processes of its group could not be ended and still run. The lease must not be released.
    Outlived {
        /// What still runs.
        by: String,
        /// How the command ended, or why it had to.
        outcome: Box<Outcome>,
    },
}

impl Outcome {
    pub(super) fn of(status: ExitStatus, foreground: bool) -> Self {
        match status.signal().map(Signal::try_from) {
            Some(Ok(key @ (Signal::SIGINT | Signal::SIGQUIT))) if foreground => {
                Self::Interrupted(key)
            }
            Some(Ok(signal)) => Self::Killed(signal),
            _ => Self::Ended(exit_code(status)),
        }
    }

    /// The exit code of a program that ran only this command.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Ended(code) => *code,
            Self::Killed(signal) | Self::Interrupted(signal) => exit::by(*signal),
            Self::Lost(_) => exit::LOST,
            Self::Outlived { outcome, .. } => outcome.code(),
        }
    }
}

/// The command's exit code; 128 and more for a signal that has no name.
fn exit_code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Runs a command that no lease depends on, and hands signals on to it.
pub(crate) async fn accompany(job: Job<'_>, signals: &mut Signals) -> io::Result<Outcome> {
    let mut children = signal(SignalKind::child())?;
    let (mut group, terminal) = Group::start(job)?;
    let foreground = terminal.hand_to(group.id());
    group.go();
    loop {
        tokio::select! {
            signal = signals.next() => group.forward(signal),
            _ = children.recv() => match group.doing() {
                Doing::Running => {}
                Doing::Stopped => terminal.stop_along_with(group.id()),
                Doing::Ended => break,
            },
        }
    }
    terminal.take_from(group.id());
    match group.reap()? {
        Some(status) => Ok(Outcome::of(status, foreground)),
        None => Err(io::Error::other("the command has not ended")),
    }
}
