//! Wakes names whose holder is over, or that should be looked at again.

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::{BootTime, Kind, Name};
use tokio::sync::Notify;

use super::probe::is_probe;
use super::table::Table;
use super::{Inner, jittered};
use crate::host::{Host, sleep_until};
use crate::store::Changes;

/// How many hints are looked at together.
const HINTS: usize = 1_024;

/// Starts what keeps time for an engine, and what follows the store's own hints. Both end with the engine.
pub(super) fn start(inner: &Arc<Inner>, changes: Option<Changes>) {
    let (timer, host) = (Arc::clone(&inner.timer), Arc::clone(&inner.host));
    inner
        .runtime
        .spawn(keep_time(Arc::downgrade(inner), timer, host));
    if let Some(changes) = changes {
        inner.runtime.spawn(follow(Arc::downgrade(inner), changes));
    }
}

async fn keep_time(inner: Weak<Inner>, timer: Arc<Notify>, host: Arc<dyn Host>) {
    loop {
        let next = match inner.upgrade() {
            None => return,
            Some(inner) => inner.wake_due(),
        };
        let woken = timer.notified();
        match next {
            None => woken.await,
            Some(at) => tokio::select! {
                biased;
                () = woken => {}
                () = sleep_until(&*host, at) => {}
            },
        }
    }
}

async fn follow(inner: Weak<Inner>, mut changes: Changes) {
    let mut names = Vec::new();
    while changes.recv_many(&mut names, HINTS).await > 0 {
        let Some(inner) = inner.upgrade() else { return };
        // Nothing happens under them that a subscriber or a waiter could want to know.
        names.retain(|name| !is_probe(name));
        if names.iter().any(|name| name.kind() == Kind::Lock) {
            inner.items.notify_waiters();
        }
        inner.table().hinted(&names);
        inner.drive();
        names.clear();
    }
}

impl Inner {
    /// Has everything looked at that is due, and says when the next is.
    fn wake_due(self: &Arc<Self>) -> Option<BootTime> {
        let boot = self.host.boot_time();
        let mut woken = false;
        let mut table = self.table();
        while let Some((at, name)) = table.timers.first().cloned()
            && at <= boot
        {
            table.wake(&name, boot);
            woken = true;
        }
        drop(table);
        if woken {
            self.drive();
        }
        self.table().timers.first().map(|(at, _)| *at)
    }
}

impl Table {
    /// Has names looked at that others may have changed: all if somebody watches, else those that somebody waits for.
    fn hinted(&mut self, names: &[Name]) {
        if self.watch.is_some() {
            return self.look_at(names);
        }
        for name in names {
            let entry = self.entries.get_mut(name);
            if let Some(entry) = entry.filter(|entry| !entry.line.is_empty()) {
                entry.recheck = true;
                self.make_ready(name, false);
            }
        }
    }

    fn wake(&mut self, name: &Name, boot: BootTime) {
        self.set_timer(name, None);
        self.end_patience(boot);
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        entry.backing_off = false;
        if entry.poll_at.is_some_and(|at| at <= boot) {
            entry.poll_at = None;
            entry.recheck = true;
        }
        self.make_ready(name, false);
    }

    /// Everything that could be done for a name is done: sets when to look at it again.
    pub(super) fn settle(&mut self, name: &Name, boot: BootTime, host: &dyn Host, poll: Duration) {
        // Polling many names costs more each time, so each is polled more rarely.
        let crowd = u32::try_from(self.timers.len() / 1_000).unwrap_or(u32::MAX);
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        let Some((_, first)) = entry.line.first_key_value() else {
            entry.poll_at = None;
            self.set_timer(name, None);
            self.tidy(name);
            return;
        };
        let over = entry.held.as_ref().map(|held| boot + held.retry_after);
        // One that is past and was not made again now is not called for: the grant that passed it over never landed.
        let refresh = first.head.as_ref().and_then(|head| head.refresh_at);
        let refresh = refresh.filter(|at| *at > boot);
        let poll_at = *entry
            .poll_at
            .get_or_insert_with(|| jittered(host, poll.saturating_mul(1 + crowd)));
        let at = [over, refresh, Some(poll_at)].into_iter().flatten().min();
        self.set_timer(name, at);
    }
}
