//! The shim: it leads the process group of the command, waits until the watchdog watches that group, and then replaces
//! itself by the command (`exec`). If `leasehold run` dies before, the command never starts.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use super::huge_pages;
use crate::{exit, output};

/// The name of the shim in `ps -f`. `pkill -f leasehold` must not match it.
pub(super) const PROCESS_NAME: &str = "lh-exec";

/// The argument that starts this program as the shim.
pub(super) const WORD: &str = "__exec";

/// Waits for a byte on the descriptor of the first argument, and executes the command of the third and the further
/// arguments. The second one is about [huge pages](huge_pages).
pub(super) fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut next = || arguments.next()?.into_string().ok();
    let (Some(descriptor), Some(huge_pages)) = (next().and_then(|text| text.parse().ok()), next())
    else {
        return ExitCode::from(exit::USAGE);
    };
    let Some(program) = arguments.next() else {
        return ExitCode::from(exit::USAGE);
    };
    if !wait_for_start(descriptor) {
        return ExitCode::from(exit::LOST);
    }
    huge_pages::restore(&huge_pages);
    ExitCode::from(execute(&program, arguments))
}

/// Replaces this process by a command. If that fails, prints why and returns the exit code.
pub(super) fn execute(program: &OsStr, arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let error = Command::new(program).args(arguments).exec();
    let program = program.to_string_lossy();
    if error.kind() == ErrorKind::NotFound {
        output::error(&format!(
            "leasehold: cannot run {program}: command not found"
        ));
        exit::NOT_FOUND
    } else {
        output::error(&format!("leasehold: cannot run {program}: {error}"));
        exit::NOT_EXECUTABLE
    }
}

/// Returns whether the byte arrived. Closes the descriptor, so that the command does not inherit it.
fn wait_for_start(descriptor: i32) -> bool {
    let pipe = File::open(format!("/proc/self/fd/{descriptor}"));
    let closed = nix::unistd::close(descriptor);
    let byte = pipe.and_then(|mut pipe| pipe.read(&mut [0]));
    closed.is_ok() && matches!(byte, Ok(1))
}
