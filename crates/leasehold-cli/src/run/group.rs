//! The command and its children: one process group, which holds the lease as a whole.

use std::io::{self, PipeReader, PipeWriter, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::job::Job;
use super::process::{self, Process};
use super::terminal::Terminal;
use super::{THIS_PROGRAM, huge_pages, shim};
use crate::output;

/// How often to poll for the end of a group, in case that a signal was missed.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The state of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandState {
    Running,
    /// Stopped by a signal, such as that of Ctrl-Z.
    Stopped,
    /// Not reaped yet, so its process id still belongs to this group.
    Ended,
}

/// The process group of a command.
pub(super) struct Group {
    leader: Child,
    id: Pid,
    start_pipe: PipeWriter,
}

impl Group {
    /// Starts the shim of a command, which runs the command after [`run`](Self::run), and never if this process dies before.
    /// Also returns the terminal to give to the command.
    pub(super) fn start(job: Job<'_>) -> io::Result<(Self, Terminal)> {
        process::adopt_orphans()?;
        let (waiting, start_pipe) = io::pipe()?;
        let mut shim = Command::new(THIS_PROGRAM);
        shim.arg0(shim::PROCESS_NAME)
            .arg(shim::WORD)
            .arg(waiting.as_raw_fd().to_string())
            .arg(huge_pages::argument())
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
            start_pipe,
        };
        Ok((group, job.terminal))
    }

    pub(super) fn id(&self) -> Pid {
        self.id
    }

    /// Lets the command run.
    pub(super) fn run(&mut self) {
        // Fails only if the watchdog has ended the group already, which the caller notices by itself.
        let _ = self.start_pipe.write_all(b"!");
    }

    /// Sends a signal to every process of the group.
    pub(super) fn signal(&self, signal: Signal) {
        // Fails if no process of the group is left.
        let _ = killpg(self.id, signal);
    }

    /// Forwards a signal to the group, and reports the processes that it cannot be sent to.
    pub(super) fn forward(&self, signal: Signal) {
        self.signal(signal);
        let unreached = self.out_of_reach();
        // A change of the terminal size is not worth a message.
        if signal != Signal::SIGWINCH && !unreached.is_empty() {
            output::note(&format!(
                "cannot send {signal} to processes of another user: {}",
                process::list(&unreached)
            ));
        }
    }

    /// Returns the state of the command. Each stop is reported once.
    pub(super) fn state(&self) -> CommandState {
        let wait = |flags| waitid(Id::Pid(self.id), flags | WaitPidFlag::WNOHANG);
        match wait(WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {}
            // Including the end by a real-time signal, which `nix` cannot represent.
            _ => return CommandState::Ended,
        }
        match wait(WaitPidFlag::WSTOPPED) {
            Ok(WaitStatus::Stopped(..)) => CommandState::Stopped,
            _ => CommandState::Running,
        }
    }

    /// Ends every process of the group: this signal, and KILL after the grace period.
    pub(super) async fn end(&self, signal: Signal, grace: Duration) {
        if self.is_running() {
            self.signal(signal);
            // A stopped process does not handle a signal until it continues.
            self.signal(Signal::SIGCONT);
        }
        let _ = timeout(grace, self.wait_until_gone()).await;
        // Sent even if no process was found: a fork may have escaped the poll, but it does not escape `killpg`.
        self.signal(Signal::SIGKILL);
    }

    /// Returns when no process of the group runs any more.
    pub(super) async fn wait_until_gone(&self) {
        // The last process of the group is a child of this process, or becomes one before it ends.
        let mut children = signal(SignalKind::child()).ok();
        while self.is_running() {
            let ended = async {
                match &mut children {
                    Some(children) => children.recv().await,
                    None => std::future::pending().await,
                }
            };
            let _ = timeout(POLL_INTERVAL, ended).await;
            process::reap_orphans();
        }
    }

    /// Returns whether any process of the group still runs.
    fn is_running(&self) -> bool {
        match Process::of_group(self.id) {
            Ok(processes) => !processes.is_empty(),
            Err(_) => self.state() != CommandState::Ended,
        }
    }

    /// Returns the processes of the group that still run.
    pub(super) fn processes(&self) -> Vec<Process> {
        Process::of_group(self.id).unwrap_or_default()
    }

    /// Returns the processes of the group that this process may not signal.
    pub(super) fn out_of_reach(&self) -> Vec<Process> {
        let mut processes = self.processes();
        processes.retain(Process::is_out_of_reach);
        processes
    }

    /// Reaps the command, and returns how it ended; `None` if it still runs. Unless other processes of the group still run,
    /// the kernel may reuse the group id afterwards.
    pub(super) fn reap(mut self) -> io::Result<Option<ExitStatus>> {
        match self.state() {
            CommandState::Ended => self.leader.wait().map(Some),
            CommandState::Running | CommandState::Stopped => Ok(None),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        process::forget_handled(self.id);
    }
}

/// Starts the shim, which inherits the reading end of its pipe.
fn spawn(shim: &mut Command, waiting: &PipeReader) -> io::Result<Child> {
    // One at a time: another shim that is started meanwhile would inherit the pipe too.
    static SPAWNING: Mutex<()> = Mutex::new(());
    let _guard = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
    fcntl(waiting, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let started = process::spawn_handled(|| shim.spawn(), |shim| Some(shim.id()));
    fcntl(waiting, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    started
}
