//! Supervises a command and its leases: the command ends if a lease is lost, and the leases are held until it has ended.

use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use leasehold::Lease;
use leasehold::core::BootTime;
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::group::{CommandState, Group};
use super::job::{Job, Outcome};
use super::process::{self, Process};
use super::watchdog::{self, Watchdog};
use crate::output;
use crate::signals::Signals;

/// Runs a command while all of its leases, which have the same ttl, are held. When this returns, no process of the group
/// runs any more, unless the outcome says so.
pub(crate) async fn supervise(
    leases: &[Lease],
    job: Job<'_>,
    signals: &mut Signals,
) -> io::Result<Outcome> {
    let Some(ttl) = leases.iter().map(Lease::ttl).min() else {
        return Err(io::Error::other("no lease is given"));
    };
    let mut deadlines: Vec<_> = leases.iter().map(Lease::watch_deadline).collect();
    let mut children = signal(SignalKind::child())?;
    // The watchdog starts first and watches the group before the command runs: whenever this process dies, either the
    // command has not started, or the watchdog ends it.
    let mut watchdog = Watchdog::start(ttl, job.loss_signal).await?;
    let (loss_signal, max_hold) = (job.loss_signal, job.max_hold);
    let (mut group, terminal) = Group::start(job)?;
    watchdog
        .watch(group.id(), earliest_deadline(leases))
        .await?;
    let foreground = terminal.give_to(group.id());
    group.run();

    let mut is_warned = false;
    let mut lost = pin!(any(leases.iter().map(Lease::lost)));
    let mut timed_out = pin!(async {
        match max_hold {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    });
    let end = loop {
        let renewed = any(deadlines.iter_mut().map(|deadline| deadline.changed()));
        tokio::select! {
            ended = watchdog.wait_for_end() => {
                let reason = if ended { NOT_RENEWED } else { WATCHDOG_KILLED };
                break End::Lost(reason.to_owned());
            }
            reason = &mut lost => break End::Lost(reason.to_string()),
            () = &mut timed_out => break End::TimedOut,
            Ok(()) = renewed => {
                if watchdog.set_deadline(group.id(), earliest_deadline(leases)).await.is_err() {
                    break End::Lost(WATCHDOG_KILLED.to_owned());
                }
                is_warned = is_warned || warn_of_other_users(&group);
            }
            signal = signals.next() => group.forward(signal),
            _ = children.recv() => match group.state() {
                CommandState::Running => process::reap_orphans(),
                CommandState::Stopped => terminal.stop_with(group.id()),
                CommandState::Ended => break End::Command,
            },
        }
    };

    let grace = watchdog::grace(ttl);
    let signal = match end {
        End::Lost(_) => loss_signal,
        End::Command | End::TimedOut => Signal::SIGTERM,
    };
    group.end(signal, grace).await;
    // Disarmed before the group id can be reused. Every process of the group that can be killed has been killed.
    let ended = watchdog.disarm().await;
    let survivors = survivors(&group, leases, signals).await;
    terminal.take_from(group.id());
    let status = group.reap()?;
    let outcome = match (end, status) {
        (End::Lost(reason), _) => Outcome::Lost(reason),
        _ if ended => Outcome::Lost(NOT_RENEWED.to_owned()),
        (End::TimedOut, _) => Outcome::TimedOut(max_hold.unwrap_or_default()),
        (End::Command, Some(status)) => Outcome::of(status, foreground),
        (End::Command, None) => return Err(io::Error::other("the command did not end")),
    };
    Ok(match &*survivors {
        [] => outcome,
        survivors => Outcome::Survivors {
            processes: process::list(survivors),
            outcome: Box::new(outcome),
        },
    })
}

/// Why supervision of a running command ends.
enum End {
    /// The command has ended.
    Command,
    /// A lease was lost, for this reason.
    Lost(String),
    /// The command ran for longer than it may.
    TimedOut,
}

/// Waits until no process of a killed group runs any more, and holds the leases meanwhile: some processes end late, and
/// those of other users cannot be killed. Returns the processes that still run if a lease is lost or a signal ends the wait.
async fn survivors(group: &Group, leases: &[Lease], signals: &mut Signals) -> Vec<Process> {
    if timeout(SILENT_WAIT, group.wait_until_gone()).await.is_ok() {
        return Vec::new();
    }
    if !leases.iter().any(Lease::is_lost) {
        output::note(&format!(
            "waiting for processes that cannot be killed: {}",
            process::list(&group.processes())
        ));
    }
    tokio::select! {
        () = group.wait_until_gone() => Vec::new(),
        _ = any(leases.iter().map(Lease::lost)) => group.processes(),
        _ = signals.end() => group.processes(),
    }
}

/// Warns of processes of the group that cannot be killed. Returns whether there are any.
fn warn_of_other_users(group: &Group) -> bool {
    let processes = group.out_of_reach();
    if !processes.is_empty() {
        output::note(&format!(
            "cannot kill processes of another user if the lease is lost: {}; run `leasehold` as that user instead, as in \
             `sudo leasehold run …`",
            process::list(&processes)
        ));
    }
    !processes.is_empty()
}

/// Returns the time until which all leases are held.
fn earliest_deadline(leases: &[Lease]) -> BootTime {
    let deadlines = leases.iter().map(Lease::deadline);
    deadlines.min().unwrap_or_default()
}

/// Returns the output of the first future that is ready.
pub(super) fn any<F: Future>(futures: impl Iterator<Item = F>) -> impl Future<Output = F::Output> {
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

/// How long to wait for killed processes before a message reports them.
const SILENT_WAIT: Duration = Duration::from_secs(1);

const NOT_RENEWED: &str = "it was not renewed in time";
const WATCHDOG_KILLED: &str = "its watchdog was killed";
