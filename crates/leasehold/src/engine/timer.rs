//! Wakes names when their holder expires or when they are to be polled.

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::{BootTime, Kind, Name};
use tokio::sync::Notify;

use super::probe::is_probe;
use super::table::Table;
use super::{Inner, jittered};
use crate::host::{Host, sleep_until};
use crate::store::Changes;

/// The maximum number of hints to process in one batch.
const MAX_HINTS: usize = 1_024;

/// Starts the tasks that run timers and follow the store's hints. Both end with the engine.
pub(super) fn start(inner: &Arc<Inner>, changes: Option<Changes>) {
    let (timer, host) = (Arc::clone(&inner.timer), Arc::clone(&inner.host));
    inner
        .runtime
        .spawn(run_timers(Arc::downgrade(inner), timer, host));
    if let Some(changes) = changes {
        inner
            .runtime
            .spawn(follow_changes(Arc::downgrade(inner), changes));
    }
}

async fn run_timers(inner: Weak<Inner>, timer: Arc<Notify>, host: Arc<dyn Host>) {
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

async fn follow_changes(inner: Weak<Inner>, mut changes: Changes) {
    let mut names = Vec::new();
    while changes.recv_many(&mut names, MAX_HINTS).await > 0 {
        let Some(inner) = inner.upgrade() else { return };
        // Neither subscribers nor waiters need changes of probe records.
        names.retain(|name| !is_probe(name));
        if names.iter().any(|name| name.kind() == Kind::Lock) {
            inner.item_freed.notify_waiters();
        }
        inner.table().handle_hints(&names);
        inner.drive();
        names.clear();
    }
}

impl Inner {
    /// Wakes all names that are due. Returns when the next one is due.
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
    /// Loads names that others may have changed: all of them if there are subscribers, otherwise those with waiters.
    fn handle_hints(&mut self, names: &[Name]) {
        if self.watch.is_some() {
            return self.request_loads(names);
        }
        for name in names {
            let entry = self.entries.get_mut(name);
            if let Some(entry) = entry.filter(|entry| !entry.wait_queue.is_empty()) {
                entry.recheck = true;
                self.make_ready(name, false);
            }
        }
    }

    fn wake(&mut self, name: &Name, boot: BootTime) {
        self.set_timer(name, None);
        self.send_delayed_renewals(boot);
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

    /// Sets the timer of a name with no ready operations: the expiry of its holder, a reservation, or the next poll.
    pub(super) fn schedule_wake(
        &mut self,
        name: &Name,
        boot: BootTime,
        host: &dyn Host,
        poll: Duration,
    ) {
        // With many timers, each name is polled more rarely, which limits the cost.
        let slowdown = u32::try_from(self.timers.len() / 1_000).unwrap_or(u32::MAX);
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        let Some((_, first)) = entry.wait_queue.first_key_value() else {
            entry.poll_at = None;
            self.set_timer(name, None);
            self.remove_if_unused(name);
            return;
        };
        let retry_at = entry.held.as_ref().map(|held| boot + held.retry_after);
        // A refresh that is in the past was not needed: the grant that overtook the waiter has not landed.
        let refresh = first.head.as_ref().and_then(|head| head.refresh_at);
        let refresh = refresh.filter(|at| *at > boot);
        let poll_at = *entry
            .poll_at
            .get_or_insert_with(|| jittered(host, poll.saturating_mul(1 + slowdown)));
        let at = [retry_at, refresh, Some(poll_at)]
            .into_iter()
            .flatten()
            .min();
        self.set_timer(name, at);
    }
}
