//! Keeps a command and its leases together: neither outlives the other.

use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use leasehold::Lease;
use leasehold::core::BootTime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::group::{Doing, Group};
use super::job::{Job, Outcome};
use super::process::{self, Process};
use super::watchdog::{self, Watchdog};
use crate::output;
use crate::signals::Signals;

/// Runs a command under leases of one ttl, all of which it needs. When this returns, nothing of its process group runs
/// any more.
pub(crate) async fn supervise(
    leases: &[Lease],
    job: Job<'_>,
    signals: &mut Signals,
) -> io::Result<Outcome> {
    let Some(ttl) = leases.iter().map(Lease::ttl).min() else {
        return Err(io::Error::other("there is no lease"));
    };
    let mut deadlines: Vec<_> = leases.iter().map(Lease::watch_deadline).collect();
    let mut children = signal(SignalKind::child())?;
    // The watchdog comes first and knows the group before the command runs in it: whenever this process dies,
    // either there is no command, or somebody ends it.
    let mut watchdog = Watchdog::start(ttl).await?;
    let (mut group, terminal) = Group::start(job)?;
    watchdog.watch(group.id(), earliest(leases)).await?;
    let foreground = terminal.hand_to(group.id());
    group.go();

    let mut warned = false;
    let mut lost = pin!(any(leases.iter().map(Lease::lost)));
    let reason = loop {
        let moved = any(deadlines.iter_mut().map(|deadline| deadline.changed()));
        tokio::select! {
            ended = watchdog.fired() => break Some(if ended { LATE } else { UNWATCHED }.to_owned()),
            reason = &mut lost => break Some(reason.to_string()),
            Ok(()) = moved => {
                if watchdog.tell(group.id(), earliest(leases)).await.is_err() {
                    break Some(UNWATCHED.to_owned());
                }
                warned = warned || warn_of_other_users(&group);
            }
            signal = signals.next() => group.forward(signal),
            _ = children.recv() => match group.doing() {
                Doing::Running => {}
                Doing::Stopped => terminal.stop_along_with(group.id()),
                Doing::Ended => break None,
            },
        }
    };

    let grace = watchdog::grace(ttl);
    group.end(grace).await;
    // Before the group's number is free for other processes. All of the group that can be killed has been killed.
    let ended = watchdog.disarm().await;
    let survivors = survivors(&group, leases, signals).await;
    terminal.take_from(group.id());
    let status = group.reap()?;
    let reason = reason.or_else(|| ended.then(|| LATE.to_owned()));
    let outcome = match (reason, status) {
        (Some(reason), _) => Outcome::Lost(reason),
        (None, Some(status)) => Outcome::of(status, foreground),
        (None, None) => return Err(io::Error::other("the command has not ended")),
    };
    Ok(match &*survivors {
        [] => outcome,
        survivors => Outcome::Outlived {
            by: process::list(survivors),
            outcome: Box::new(outcome),
        },
    })
}

/// Waits until no process of a killed group runs any more. The leases are held for processes that the kernel cannot end at
/// once, and for those of other users, which cannot be killed. Returns the processes that still run when a lease is lost
/// or a signal ends the wait.
async fn survivors(group: &Group, leases: &[Lease], signals: &mut Signals) -> Vec<Process> {
    if timeout(NOTICEABLE, group.gone()).await.is_ok() {
        return Vec::new();
    }
    if !leases.iter().any(Lease::is_lost) {
        output::note(&format!(
            "waiting for processes that cannot be ended: {}",
            process::list(&group.processes())
        ));
    }
    tokio::select! {
        () = group.gone() => Vec::new(),
        _ = any(leases.iter().map(Lease::lost)) => group.processes(),
        _ = signals.end() => group.processes(),
    }
}

/// Warns of processes of the group that could not be ended. Whether there are any.
fn warn_of_other_users(group: &Group) -> bool {
    let processes = group.out_of_reach();
    if !processes.is_empty() {
        output::note(&format!(
            "processes of another user cannot be ended if the lease is lost: {}; run `leasehold` as that user instead, as \
             in `sudo leasehold run …`",
            process::list(&processes)
        ));
    }
    !processes.is_empty()
}

/// Until when all of them may be believed in.
fn earliest(leases: &[Lease]) -> BootTime {
    let deadlines = leases.iter().map(Lease::deadline);
    deadlines.min().unwrap_or_default()
}

/// The output of whichever future is ready first.
fn any<F: Future>(futures: impl Iterator<Item = F>) -> impl Future<Output = F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    std::future::poll_fn(move |context| {
        let ready = futures
            .iter_mut()
            .find_map(|future| match future.as_mut().poll(context) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            });
        ready.map_or(Poll::Pending, Poll::Ready)
    })
}

/// How long a killed process may take to end before a message says so.
const NOTICEABLE: Duration = Duration::from_secs(1);

const LATE: &str = "it was not renewed in time";
const UNWATCHED: &str = "its watchdog was killed";
