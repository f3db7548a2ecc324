//! The watchdog: a separate process that ends the command **before** another holder can get its lease, even if
//! `leasehold run` was killed or stopped.
//!
//! It starts before the command, and reads lines from a pipe that only `leasehold run` has open:
//!
//! | line | answer | meaning |
//! |---|---|---|
//! | | `ready` | the watchdog runs in a session of its own |
//! | `watch GROUP DEADLINE` | `watching` | end this process group before this time of the boot clock, in µs |
//!
//! The end of the pipe means that `leasehold run` is dead. The watchdog writes `ended` when it ends the group: TERM (or the
//! signal of `--on-loss`) first, and KILL some time before the deadline. `leasehold run` disarms it by killing it, which works in every state.
//!
//! `pkill -9 leasehold` must not kill it together with `leasehold run`. Therefore its process name and its arguments never
//! contain that word, the name of the lease or the URL of the store: the kernel names a process after the path that it was
//! started by, which is [`THIS_PROGRAM`](super::THIS_PROGRAM).

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;
use std::time::Duration;

use leasehold::core::BootTime;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::process::{forget_handled, spawn_handled};

pub(super) mod process;

/// The argument that starts this program as the watchdog.
pub(super) const WORD: &str = "__watchdog";

/// The name of the watchdog in `ps`. `pkill leasehold` must not match it.
const PROCESS_NAME: &CStr = c"lh-watchdog";

const READY: &str = "ready";
const WATCH: &str = "watch";
const WATCHING: &str = "watching";
const ENDED: &str = "ended";

/// Returns how long before the deadline a command receives TERM, so that it can end cleanly.
pub(super) fn grace(ttl: Duration) -> Duration {
    (ttl / 4).min(Duration::from_secs(5))
}

/// The handle of `leasehold run` to its watchdog.
pub(super) struct Watchdog {
    process: Child,
    id: Pid,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Watchdog {
    /// Starts the watchdog, and waits until it has detached from the terminal of this process.
    pub(super) async fn start(ttl: Duration, loss_signal: Signal) -> io::Result<Self> {
        let mut command = Command::new(super::THIS_PROGRAM);
        command
            .arg0(OsStr::from_bytes(PROCESS_NAME.to_bytes()))
            .arg(WORD)
            .arg(ttl.as_micros().to_string())
            .arg(loss_signal.as_str())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = spawn_handled(|| command.spawn(), Child::id)?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(io::Error::other("the watchdog has no pipes"));
        };
        let id = process.id().and_then(|id| i32::try_from(id).ok());
        let mut watchdog = Self {
            process,
            id: Pid::from_raw(id.unwrap_or_default()),
            input,
            answers: BufReader::new(output).lines(),
        };
        watchdog.expect(READY).await?;
        Ok(watchdog)
    }

    /// Starts watching a process group; returns once the watchdog confirms it.
    pub(super) async fn watch(&mut self, group: Pid, deadline: BootTime) -> io::Result<()> {
        self.set_deadline(group, deadline).await?;
        self.expect(WATCHING).await
    }

    /// Sends a new deadline.
    pub(super) async fn set_deadline(&mut self, group: Pid, deadline: BootTime) -> io::Result<()> {
        let line = format!("{WATCH} {group} {}\n", deadline.as_micros());
        self.input.write_all(line.as_bytes()).await
    }

    /// Waits until the watchdog ends the group (true) or has died (false). Cancel safe.
    pub(super) async fn wait_for_end(&mut self) -> bool {
        loop {
            match self.answers.next_line().await {
                Ok(Some(line)) if line == ENDED => return true,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return false,
            }
        }
    }

    /// Kills the watchdog, so that it cannot end another group that reuses the id. Returns whether it had ended its group
    /// before.
    pub(super) async fn disarm(mut self) -> bool {
        // Fails only if the watchdog is dead already.
        let _ = self.process.kill().await;
        let mut ended = false;
        while let Ok(Some(line)) = self.answers.next_line().await {
            ended |= line == ENDED;
        }
        ended
    }

    async fn expect(&mut self, word: &str) -> io::Result<()> {
        while let Some(line) = self.answers.next_line().await? {
            if line == word {
                return Ok(());
            }
        }
        Err(io::Error::new(
            io::ErrorKind::BrokenPipe,
            "the watchdog has ended",
        ))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        forget_handled(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_is_a_quarter_of_the_ttl_and_at_most_five_seconds() {
        assert_eq!(grace(Duration::from_secs(4)), Duration::from_secs(1));
        assert_eq!(grace(Duration::from_secs(3600)), Duration::from_secs(5));
    }
}
