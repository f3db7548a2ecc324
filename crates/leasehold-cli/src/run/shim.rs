//! What becomes the command: it leads its own process group, waits until the watchdog knows that group, and only then
//! turns into the command. If `leasehold run` dies before, the command never starts.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use crate::{exit, output};

/// What `ps -f` shows it as. `pkill -f leasehold` must not match it before it has become the command.
pub(super) const PROCESS_NAME: &str = "lh-exec";

/// The word that makes this program a shim.
pub(super) const WORD: &str = "__exec";

/// Waits for a byte on the descriptor of the first argument, then becomes the command in the others.
pub(super) fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(descriptor), Some(program)) = (
        arguments
            .next()
            .and_then(|text| text.to_str()?.parse().ok()),
        arguments.next(),
    ) else {
        return ExitCode::from(exit::USAGE);
    };
    if !may_go(descriptor) {
        return ExitCode::from(exit::LOST);
    }
    let error = Command::new(&program).args(arguments).exec();
    let program = program.to_string_lossy();
    if error.kind() == ErrorKind::NotFound {
        output::note(&format!("{program}: there is no such command"));
        ExitCode::from(exit::NOT_FOUND)
    } else {
        output::note(&format!("{program} cannot be run: {error}"));
        ExitCode::from(exit::NOT_EXECUTABLE)
    }
}

/// Whether the byte came. The descriptor is closed afterwards: the command never sees it.
fn may_go(descriptor: i32) -> bool {
    let gate = File::open(format!("/proc/self/fd/{descriptor}"));
    let closed = nix::unistd::close(descriptor);
    let byte = gate.and_then(|mut gate| gate.read(&mut [0]));
    closed.is_ok() && matches!(byte, Ok(1))
}
