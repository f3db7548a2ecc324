//! The watchdog: a process of its own that ends the command **before** its lease can pass to anybody else, also when
//! `leasehold run` was killed or stopped and can do nothing any more.
//!
//! It is started first, and reads lines from a pipe that nobody else has open:
//!
//! | line | answer | |
//! |---|---|---|
//! | | `ready` | it is in a session of its own |
//! | `watch GROUP DEADLINE` | `watching` | end this process group before this moment of the boot clock, in µs |
//!
//! The end of the pipe means that `leasehold run` is gone. It says `ended` when it has to end the group: TERM first, and
//! KILL with some time to spare before the deadline. It is disarmed by killing it, which works whatever it does.
//!
//! `pkill -9 leasehold` must not end it together with `leasehold run`. So neither its process name nor its arguments
//! contain that word, the lease's name or the store's URL, from its start on: the kernel names a process after the path
//! that it was started by, which is [`THIS_PROGRAM`](super::THIS_PROGRAM).

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;
use std::time::Duration;

use leasehold::core::BootTime;
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

pub(super) mod process;

/// The word that makes this program a watchdog.
pub(super) const WORD: &str = "__watchdog";

/// What `ps` shows it as. `pkill leasehold` must not match it.
const PROCESS_NAME: &CStr = c"lh-watchdog";

const READY: &str = "ready";
const WATCH: &str = "watch";
const WATCHING: &str = "watching";
const ENDED: &str = "ended";

/// How long before the deadline a command is told to end, so that it can do so by itself.
pub(super) fn grace(ttl: Duration) -> Duration {
    (ttl / 4).min(Duration::from_secs(5))
}

/// A running watchdog, as `leasehold run` sees it.
pub(super) struct Watchdog {
    process: Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Watchdog {
    /// Starts it, and waits until nothing that happens to this process's terminal can reach it.
    pub(super) async fn start(ttl: Duration) -> io::Result<Self> {
        let mut process = Command::new(super::THIS_PROGRAM)
            .arg0(OsStr::from_bytes(PROCESS_NAME.to_bytes()))
            .arg(WORD)
            .arg(ttl.as_micros().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(io::Error::other("the watchdog has no pipes"));
        };
        let mut watchdog = Self {
            process,
            input,
            answers: BufReader::new(output).lines(),
        };
        watchdog.expect(READY).await?;
        Ok(watchdog)
    }

    /// Makes it watch a process group; returns once it does.
    pub(super) async fn watch(&mut self, group: Pid, deadline: BootTime) -> io::Result<()> {
        self.tell(group, deadline).await?;
        self.expect(WATCHING).await
    }

    /// Tells it a new deadline.
    pub(super) async fn tell(&mut self, group: Pid, deadline: BootTime) -> io::Result<()> {
        let line = format!("{WATCH} {group} {}\n", deadline.as_micros());
        self.input.write_all(line.as_bytes()).await
    }

    /// Returns when it had to end the group (true), or is gone (false). Can be dropped and called again.
    pub(super) async fn fired(&mut self) -> bool {
        loop {
            match self.answers.next_line().await {
                Ok(Some(line)) if line == ENDED => return true,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return false,
            }
        }
    }

    /// Ends it, so that it cannot end a group by a number that is somebody else's by then. Whether it had to end its
    /// own before.
    pub(super) async fn disarm(mut self) -> bool {
        // It fails only if the watchdog is gone, which is as good.
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
            "the watchdog is gone",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grace_is_a_quarter_of_the_ttl_and_never_long() {
        assert_eq!(grace(Duration::from_secs(4)), Duration::from_secs(1));
        assert_eq!(grace(Duration::from_secs(3600)), Duration::from_secs(5));
    }
}
