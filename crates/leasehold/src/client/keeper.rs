//! Renews the leases of a client in time, many in one call, and gives up leases that could not be renewed.
//!
//! One task serves all leases. It starts with the first lease and ends after the last. It never waits for a response:
//! renewals run in tasks of their own, so that a hanging one cannot delay the expiry of another lease.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::BootTime;
use tokio::sync::Notify;

use super::lease_state::{End, LeaseState};
use super::table::{Id, Table};
use crate::host::{Host, sleep_until};
use crate::{Error, HolderKey, Leases, RenewRequest, RenewedHold, Result};

/// The timeout of one attempt to renew, however long the ttl: connections can die silently.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The delay after the first failed attempt. It doubles with each further failure.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
const MIN_RETRY_DELAY: Duration = Duration::from_millis(5);
/// The longest time between two checks of the boot clock. The task also lives this long without a lease, so that a program
/// that takes leases one after the other does not start a task for each.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a release waits for a pending renewal. A renewal that arrives after the release is harmless: the store
/// refuses its fence.
const JOIN_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct Keeper {
    leases: Arc<dyn Leases>,
    host: Arc<dyn Host>,
    table: Mutex<Table>,
    wake: Notify,
}

type Batch = Vec<(Id, Arc<LeaseState>)>;

impl Keeper {
    pub(super) fn new(leases: Arc<dyn Leases>, host: Arc<dyn Host>) -> Self {
        Self {
            leases,
            host,
            table: Mutex::default(),
            wake: Notify::new(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to renew a lease.
    pub(super) fn add(self: &Arc<Self>, lease: Arc<LeaseState>) -> Id {
        let renews_at = self.next_renewal(&lease);
        let mut table = self.table();
        let id = table.insert(lease, renews_at);
        let had_task = std::mem::replace(&mut table.has_task, true);
        self.wake_if_late(&table);
        drop(table);
        if !had_task {
            // Outside the lock: a runtime that shuts down drops the task at once.
            tokio::spawn(KeeperTask::new(self.clone()).run());
        }
        id
    }

    /// Wakes the task if its next check would be too late.
    fn wake_if_late(&self, table: &Table) {
        if table.next_due().is_some_and(|due| due < table.next_check) {
            self.wake.notify_one();
        }
    }

    /// Gives up expired leases and starts due renewals. Returns the time of the next check, or `None` if there was no lease
    /// during the last interval.
    fn check(self: &Arc<Self>, is_idle: &mut bool) -> Option<BootTime> {
        let now = self.host.boot_time();
        let mut table = self.table();
        while let Some(lease) = table.take_expired(now) {
            lease.set_end(End::Lost(Error::Expired));
        }
        loop {
            let batch = table.take_due(now);
            if batch.is_empty() {
                break;
            }
            let keeper = self.clone();
            tokio::spawn(async move { keeper.renew(batch).await });
        }
        if std::mem::replace(is_idle, table.is_empty()) && *is_idle {
            // Under the lock that `add` takes: a lease that is added later starts a new task.
            table.has_task = false;
            return None;
        }
        let latest = now + CHECK_INTERVAL;
        table.next_check = table.next_due().map_or(latest, |due| due.min(latest));
        Some(table.next_check)
    }

    /// Renews leases that are marked as being renewed.
    async fn renew(&self, batch: Batch) -> Vec<Result<()>> {
        let now = self.host.boot_time();
        let left = batch
            .iter()
            .map(|(_, lease)| lease.gives_up_at().since(now));
        // Half of the remaining time leaves enough for further attempts.
        let timeout = (left.min().unwrap_or_default() / 2).min(ATTEMPT_TIMEOUT);
        let requests = batch
            .iter()
            .map(|(_, lease)| RenewRequest {
                name: lease.name.clone(),
                fence: lease.fence,
                ttl: None,
            })
            .collect();
        let renewal = self.leases.renew(requests, timeout);
        // Some extra time for implementations that respond exactly at the timeout.
        let responses = tokio::time::timeout(timeout + timeout / 4, renewal)
            .await
            .unwrap_or_default();
        let missing = || {
            let unanswered = "cannot renew the lease: the store did not respond in time";
            Err(Error::Unavailable(unanswered.into()))
        };
        let responses = responses.into_iter().chain(std::iter::repeat_with(missing));
        let results = batch
            .into_iter()
            .zip(responses)
            .map(|((id, lease), response)| self.complete_renewal(id, &lease, response));
        results.collect()
    }

    /// Applies the response to a renewal, and schedules the next one.
    fn complete_renewal(
        &self,
        id: Id,
        lease: &LeaseState,
        response: Result<RenewedHold>,
    ) -> Result<()> {
        let mut table = self.table();
        // A lease that was given up meanwhile stays lost.
        let ended = || lease.end().map_or(Error::Expired, End::into_error);
        let entry = table.get_mut(id).ok_or_else(ended)?;
        entry.is_renewing = false;
        lease.notify();
        if entry.is_closing {
            return response.map(drop);
        }
        entry.failures = if response.is_ok() {
            0
        } else {
            entry.failures + 1
        };
        let failures = entry.failures;
        let result = self.apply(&mut table, id, lease, response);
        let renews_at = match &result {
            Ok(()) => self.next_renewal(lease),
            Err(error) => {
                tracing::debug!(name = %lease.name, %error, failures, "cannot renew the lease");
                self.next_retry(lease, failures)
            }
        };
        table.schedule(id, renews_at);
        self.wake_if_late(&table);
        result
    }

    /// Applies a response that extends or ends a lease.
    fn apply(
        &self,
        table: &mut Table,
        id: Id,
        lease: &LeaseState,
        response: Result<RenewedHold>,
    ) -> Result<()> {
        let result = match response {
            // The lease is lost once its old deadline has passed, even if the renewal succeeded.
            Ok(_) if self.host.boot_time() >= lease.gives_up_at() => Err(Error::Expired),
            Ok(renewed) => {
                lease.extend(renewed.deadline, renewed.renewal.expires_at);
                table.update_expiry(id);
                Ok(())
            }
            Err(error) => Err(error),
        };
        if let Err(reason @ (Error::Fenced | Error::Expired)) = &result {
            table.remove(id);
            lease.set_end(End::Lost(reason.clone()));
        }
        result
    }

    /// Applies the response to an update, which also renews the lease.
    pub(super) fn apply_update(&self, id: Id, lease: &LeaseState, response: Result<RenewedHold>) {
        let mut table = self.table();
        if table.get_mut(id).is_some() {
            let is_renewed = self.apply(&mut table, id, lease, response).is_ok();
            let entry = table.get_mut(id);
            if entry.is_some_and(|entry| is_renewed && !entry.is_renewing && !entry.is_closing) {
                table.schedule(id, self.next_renewal(lease));
            }
        }
    }

    /// Renews a lease now, or after a pending renewal.
    pub(super) async fn renew_now(self: &Arc<Self>, id: Id, lease: &LeaseState) -> Result<()> {
        let start = || match (lease.end(), self.table().start_renewal(id)) {
            (Some(end), _) => Some(Err(end.into_error())),
            (None, started) => started.map(Ok),
        };
        let batch = vec![lease.wait_for(start).await?];
        let keeper = self.clone();
        // In a separate task, so that the renewal is completed even if the caller is cancelled.
        let renewal = tokio::spawn(async move { keeper.renew(batch).await });
        let results = renewal.await.unwrap_or_default();
        results.into_iter().next().unwrap_or_else(|| {
            let cancelled = "cannot renew the lease: the runtime is shutting down";
            Err(Error::Unavailable(cancelled.into()))
        })
    }

    /// Stops the renewals of a lease. The result of a pending one is ignored.
    pub(super) fn stop(&self, id: Id) {
        let mut table = self.table();
        table.unschedule(id);
        if let Some(entry) = table.get_mut(id) {
            entry.is_closing = true;
        }
    }

    /// Waits for a pending renewal, up to a timeout.
    pub(super) async fn join(&self, id: Id, lease: &LeaseState) {
        let is_done = lease.wait_for(|| {
            let entry_is_renewing = self
                .table()
                .get_mut(id)
                .is_some_and(|entry| entry.is_renewing);
            (!entry_is_renewing).then_some(())
        });
        let _ = tokio::time::timeout(JOIN_TIMEOUT, is_done).await;
    }

    /// Releases a lease after a pending renewal. Returns whether it was still held.
    pub(super) async fn release(&self, id: Id, lease: &LeaseState) -> Result<bool> {
        self.stop(id);
        lease.set_end(End::Released);
        self.join(id, lease).await;
        self.remove(id, lease, End::Released);
        let holder = HolderKey::Fence(lease.fence);
        self.leases.release(&lease.name, holder).await
    }

    /// Resumes the renewals of a lease after [`stop`](Self::stop).
    pub(super) fn resume(&self, id: Id, lease: &LeaseState) {
        let mut table = self.table();
        if let Some(entry) = table.get_mut(id) {
            entry.is_closing = false;
            if !entry.is_renewing {
                table.schedule(id, self.next_renewal(lease));
            }
        }
        lease.notify();
    }

    /// Removes a lease that has ended.
    pub(super) fn remove(&self, id: Id, lease: &LeaseState, end: End) {
        self.table().remove(id);
        lease.set_end(end);
    }

    /// Returns the time of the next renewal: after a third of the remaining time, with some jitter so that the processes
    /// of a fleet do not renew at the same moment.
    fn next_renewal(&self, lease: &LeaseState) -> BootTime {
        let now = self.host.boot_time();
        let third = lease.gives_up_at().since(now).min(lease.ttl) / 3;
        now + self.jitter(third, 90)
    }

    /// Returns the time of the next retry: exponential backoff with jitter, at most a quarter of the remaining time.
    fn next_retry(&self, lease: &LeaseState, failures: u32) -> BootTime {
        let now = self.host.boot_time();
        let delay = FIRST_RETRY_DELAY
            .saturating_mul(1 << failures.saturating_sub(1).min(10))
            .min(MAX_RETRY_DELAY)
            .min(lease.gives_up_at().since(now) / 4);
        now + self.jitter(delay, 50).max(MIN_RETRY_DELAY)
    }

    /// Returns a random duration from `min_percent` of `span` to all of it.
    fn jitter(&self, span: Duration, min_percent: u32) -> Duration {
        let random = (self.host.random() % u128::from(101 - min_percent)) as u32;
        span * (min_percent + random) / 100
    }
}

/// The task that checks a keeper's table.
struct KeeperTask {
    keeper: Arc<Keeper>,
    has_ended: bool,
}

impl KeeperTask {
    fn new(keeper: Arc<Keeper>) -> Self {
        Self {
            keeper,
            has_ended: false,
        }
    }

    async fn run(mut self) {
        let (keeper, mut is_idle) = (&self.keeper, false);
        while let Some(next_check) = keeper.check(&mut is_idle) {
            tokio::select! {
                () = sleep_until(&*keeper.host, next_check) => {}
                () = keeper.wake.notified() => {}
            }
        }
        self.has_ended = true;
    }
}

impl Drop for KeeperTask {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        // The runtime was dropped: the remaining leases can neither be renewed nor expire in time.
        let mut table = self.keeper.table();
        table.has_task = false;
        for lease in table.drain() {
            lease.set_end(End::Lost(Error::Expired));
        }
    }
}
