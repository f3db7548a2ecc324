//! Keeps a command and its leases together: neither outlives the other.

use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use leasehold::Lease;
use leasehold::core::BootTime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::group::{Doing, Group};
use super::job::{Job, Outcome};
use super::watchdog::{self, Watchdog};
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
            }
            signal = signals.next() => group.signal(signal),
            _ = children.recv() => match group.doing() {
                Doing::Running => {}
                Doing::Stopped => terminal.stop_along_with(group.id()),
                Doing::Ended => break None,
            },
        }
    };

    let grace = watchdog::grace(ttl);
    group.end(grace).await;
    // As long as the leases are held, they are held for whatever the kernel cannot end at once.
    let is_lost = || leases.iter().any(Lease::is_lost);
    while timeout(grace, group.gone()).await.is_err() && !is_lost() {}
    terminal.take_from(group.id());
    // Before the group's number is free for others.
    let ended = watchdog.disarm().await;
    let status = group.reap()?;
    if let Some(reason) = reason.or_else(|| ended.then(|| LATE.to_owned())) {
        return Ok(Outcome::Lost(reason));
    }
    Ok(Outcome::of(status, foreground))
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

const LATE: &str = "it was not renewed in time";
const UNWATCHED: &str = "its watchdog was killed";
