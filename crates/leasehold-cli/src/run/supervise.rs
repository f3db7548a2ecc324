//! Keeps a command and its lease together: neither outlives the other.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::ExitStatus;

use leasehold::Lease;
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::group::{Doing, Group};
use super::terminal::Terminal;
use super::watchdog::{self, Watchdog};
use crate::signals::Signals;

/// How a supervised command ended.
pub(super) enum Outcome {
    /// By itself, with this exit code.
    Ended(u8),
    /// By a key that ends programs, on the terminal that was handed to it.
    Interrupted(Signal),
    /// It was ended, because the lease was about to be lost.
    Lost(String),
}

/// Runs a command under a lease. When this returns, nothing of its process group runs any more.
pub(super) async fn supervise(
    lease: &Lease,
    command: &[OsString],
    environment: [(&'static str, Option<String>); 5],
    signals: &mut Signals,
) -> io::Result<Outcome> {
    let mut deadlines = lease.watch_deadline();
    let mut children = signal(SignalKind::child())?;
    let terminal = Terminal::open();
    // The watchdog comes first and knows the group before the command runs in it: whenever this process dies,
    // either there is no command, or somebody ends it.
    let mut watchdog = Watchdog::start(lease.ttl()).await?;
    let mut group = Group::start(command, environment)?;
    let deadline = *deadlines.borrow_and_update();
    watchdog.watch(group.id(), deadline).await?;
    let foreground = terminal.hand_to(group.id());
    group.go();

    let mut lost = pin!(lease.lost());
    let reason = loop {
        tokio::select! {
            ended = watchdog.fired() => break Some(if ended { LATE } else { UNWATCHED }.to_owned()),
            reason = &mut lost => break Some(reason.to_string()),
            Ok(()) = deadlines.changed() => {
                let deadline = *deadlines.borrow_and_update();
                if watchdog.tell(group.id(), deadline).await.is_err() {
                    break Some(UNWATCHED.to_owned());
                }
            }
            signal = signals.next() => group.signal(signal),
            _ = children.recv() => match group.doing() {
                Doing::Running => {}
                Doing::Stopped => terminal.stop_along_with(group.id()),
                Doing::Ended => break None,
            },
        }
    };

    let grace = watchdog::grace(lease.ttl());
    group.end(grace).await;
    // As long as the lease is held, it is held for whatever the kernel cannot end at once.
    while timeout(grace, group.gone()).await.is_err() && !lease.is_lost() {}
    terminal.take_from(group.id());
    // Before the group's number is free for others.
    let ended = watchdog.disarm().await;
    let status = group.reap()?;
    if let Some(reason) = reason.or_else(|| ended.then(|| LATE.to_owned())) {
        return Ok(Outcome::Lost(reason));
    }
    Ok(match status.signal().map(Signal::try_from) {
        Some(Ok(key @ (Signal::SIGINT | Signal::SIGQUIT))) if foreground => {
            Outcome::Interrupted(key)
        }
        _ => Outcome::Ended(exit_code(status)),
    })
}

/// The command's exit code, or 128 and the signal that ended it.
fn exit_code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

const LATE: &str = "it was not renewed in time";
const UNWATCHED: &str = "its watchdog was killed";
