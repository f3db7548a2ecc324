//! Ctrl-C ends a command that has the terminal to itself. The scripts around it have to learn of that, or a loop of
//! theirs would go on with the next command.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use nix::sys::signal::{Signal, killpg, raise};
use nix::unistd::getpgrp;

use super::THIS_PROGRAM;
use crate::exit;

/// The word that makes this program end by a signal.
pub(super) const WORD: &str = "__interrupted";

/// Does to this job what the key would have done, and ends by the signal: shells look at that, not at exit codes.
/// Returns the exit code that comes closest, if it cannot.
pub(crate) fn end_by(key: Signal) -> u8 {
    let _ = killpg(getpgrp(), key);
    // This process catches the signal; as a new program it does not.
    let _ = Command::new(THIS_PROGRAM)
        .arg0("leasehold")
        .args([WORD, key.as_str()])
        .exec();
    exit::by(key)
}

/// Ends by the signal of this name.
pub(super) fn main(key: &str) -> ExitCode {
    let Ok(key) = key.parse::<Signal>() else {
        return ExitCode::from(exit::USAGE);
    };
    let _ = raise(key);
    ExitCode::from(exit::by(key))
}
