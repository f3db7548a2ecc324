//! The command and everything it starts: one process group, which holds the lease as a whole.

use std::io::{self, PipeReader, PipeWriter, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::job::Job;
use super::process::{self, Process};
use super::terminal::Terminal;
use super::{THIS_PROGRAM, shim};
use crate::output;

/// How often to look whether a group that was told to end has ended: there is no event for that.
const LOOK: Duration = Duration::from_millis(10);
/// The time after which a group that has not ended is looked at less often.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// How often then.
const SLOW_LOOK: Duration = Duration::from_millis(250);

/// What the command is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Running,
    /// By Ctrl-Z, for instance.
    Stopped,
    /// It is not reaped yet, so its number still means this group and no other.
    Ended,
}

/// The process group of a command.
pub(super) struct Group {
    leader: Child,
    id: Pid,
    gate: PipeWriter,
}

impl Group {
    /// Starts a command that does not run before [`go`](Self::go), and never does if this process dies before that.
    /// Returns the terminal that is to be handed to it, too.
    pub(super) fn start(job: Job<'_>) -> io::Result<(Self, Terminal)> {
        let (waiting, gate) = io::pipe()?;
        let mut shim = Command::new(THIS_PROGRAM);
        shim.arg0(shim::PROCESS_NAME)
            .arg(shim::WORD)
            .arg(waiting.as_raw_fd().to_string())
            .args(job.command)
            .stdin(job.input)
            .stdout(job.output)
            .process_group(0);
        for (name, value) in job.environment {
            match value {
                Some(value) => shim.env(name, value),
                None => shim.env_remove(name),
            };
        }
        let leader = spawn(&mut shim, &waiting)?;
        let id = i32::try_from(leader.id()).map_err(io::Error::other)?;
        let group = Self {
            leader,
            id: Pid::from_raw(id),
            gate,
        };
        Ok((group, job.terminal))
    }

    pub(super) fn id(&self) -> Pid {
        self.id
    }

    /// Lets the command run.
    pub(super) fn go(&mut self) {
        // It fails when the watchdog has ended the group already, which shows soon enough.
        let _ = self.gate.write_all(b"!");
    }

    /// Sends a signal to every process of the group.
    pub(super) fn signal(&self, signal: Signal) {
        // It fails when there is nobody left to get it.
        let _ = killpg(self.id, signal);
    }

    /// Forwards a signal to the group, and reports the processes that cannot be sent it.
    pub(super) fn forward(&self, signal: Signal) {
        self.signal(signal);
        let missed = self.out_of_reach();
        // A change of the terminal's size is not worth a message.
        if signal != Signal::SIGWINCH && !missed.is_empty() {
            output::note(&format!(
                "{signal} cannot be sent to processes of another user: {}",
                process::list(&missed)
            ));
        }
    }

    /// What the command is doing. Tells once about each stop.
    pub(super) fn doing(&self) -> Doing {
        let look = |what| waitid(Id::Pid(self.id), what | WaitPidFlag::WNOHANG);
        match look(WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {}
            // Also an end by a real-time signal, which has no name.
            _ => return Doing::Ended,
        }
        match look(WaitPidFlag::WSTOPPED) {
            Ok(WaitStatus::Stopped(..)) => Doing::Stopped,
            _ => Doing::Running,
        }
    }

    /// Ends every process of the group that still runs: TERM, and KILL after the grace.
    pub(super) async fn end(&self, grace: Duration) {
        if self.runs() {
            self.signal(Signal::SIGTERM);
            // What is stopped cannot end by itself.
            self.signal(Signal::SIGCONT);
        }
        let _ = tokio::time::timeout(grace, self.gone()).await;
        // Also if nobody was seen: a fork may have escaped the look, but none escapes this.
        self.signal(Signal::SIGKILL);
    }

    /// Returns when no process of the group runs any more.
    pub(super) async fn gone(&self) {
        let since = Instant::now();
        while self.runs() {
            let is_slow = since.elapsed() > SLOW_AFTER;
            tokio::time::sleep(if is_slow { SLOW_LOOK } else { LOOK }).await;
        }
    }

    /// Whether any process of the group still runs.
    fn runs(&self) -> bool {
        match Process::of_group(self.id) {
            Ok(processes) => !processes.is_empty(),
            Err(_) => self.doing() != Doing::Ended,
        }
    }

    /// Returns the processes of the group that still run.
    pub(super) fn processes(&self) -> Vec<Process> {
        Process::of_group(self.id).unwrap_or_default()
    }

    /// Returns those among them that cannot be sent signals.
    pub(super) fn out_of_reach(&self) -> Vec<Process> {
        let mut processes = self.processes();
        processes.retain(Process::is_out_of_reach);
        processes
    }

    /// Returns how the command ended; `None` if it could not be ended. Unless some of the group still runs, the group's
    /// number is free from here on.
    pub(super) fn reap(mut self) -> io::Result<Option<ExitStatus>> {
        match self.doing() {
            Doing::Ended => self.leader.wait().map(Some),
            Doing::Running | Doing::Stopped => Ok(None),
        }
    }
}

/// Starts the shim, which alone inherits this end of its pipe.
fn spawn(shim: &mut Command, waiting: &PipeReader) -> io::Result<Child> {
    // One at a time: a command that is started meanwhile would inherit it too. The shim closes it before it becomes
    // the command.
    static START: Mutex<()> = Mutex::new(());
    let _alone = START.lock().unwrap_or_else(PoisonError::into_inner);
    fcntl(waiting, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let started = shim.spawn();
    fcntl(waiting, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    started
}
