//! Ends this process by the signal that ended the command. Without that, a shell loop around `leasehold run` would
//! continue after Ctrl-C, because the terminal sent the signal to the group of the command only.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use nix::sys::signal::{Signal, killpg, raise};
use nix::unistd::getpgrp;

use super::THIS_PROGRAM;
use crate::exit;

/// The argument that starts this program to end by a signal.
pub(super) const WORD: &str = "__interrupted";

/// Sends the signal to this process group, and ends this process by it, which shells check instead of the exit code.
/// Returns the corresponding exit code if that fails.
pub(crate) fn end_by(signal: Signal) -> u8 {
    let _ = killpg(getpgrp(), signal);
    // This process catches the signal; executed again, it does not.
    let _ = Command::new(THIS_PROGRAM)
        .arg0("leasehold")
        .args([WORD, signal.as_str()])
        .exec();
    exit::of_signal(signal)
}

/// Ends this process by the signal of this name.
pub(super) fn main(signal: &str) -> ExitCode {
    let Ok(signal) = signal.parse::<Signal>() else {
        return ExitCode::from(exit::USAGE);
    };
    let _ = raise(signal);
    ExitCode::from(exit::of_signal(signal))
}
