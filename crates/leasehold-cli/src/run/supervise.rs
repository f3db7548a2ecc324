//! Keeps a command and its lease together: neither outlives the other.

use std::ffi::OsString;
use std::io;
use std::pin::pin;

use leasehold::Lease;
use tokio::signal::unix::{SignalKind, signal};

use super::group::{Doing, Group};
use super::signals::Signals;
use super::terminal::Terminal;
use super::watchdog::{self, Watchdog};

/// How a supervised command ended.
pub(super) enum Outcome {
    /// By itself, with this exit code.
    Ended(u8),
    /// It was ended, because the lease was about to be lost.
    Lost(String),
}

/// Runs a command under a lease. When this returns, nothing of its process group runs any more.
pub(super) async fn supervise(
    lease: &Lease,
    command: &[OsString],
    environment: Vec<(&'static str, String)>,
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
    terminal.hand_to(group.id());
    group.go()?;

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

    group.end(watchdog::grace(lease.ttl())).await;
    // As long as the lease is held, it is held for whatever the kernel cannot end at once.
    tokio::select! {
        () = group.gone() => {}
        _ = lease.lost() => {}
    }
    terminal.take_from(group.id());
    // Before the group's number is free for others.
    let ended = watchdog.disarm().await;
    let code = group.reap()?;
    Ok(match reason.or_else(|| ended.then(|| LATE.to_owned())) {
        Some(reason) => Outcome::Lost(reason),
        None => Outcome::Ended(code),
    })
}

const LATE: &str = "it was not renewed in time";
const UNWATCHED: &str = "its watchdog was killed";
