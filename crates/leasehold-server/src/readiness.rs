//! Health checks: whether the process is alive, and whether it can serve requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::core::BootTime;
use leasehold::wire::ProblemType;
use leasehold::{Error, Result};
use serde::Serialize;
use tokio::sync::watch;

use crate::answer::{self, Answer};
use crate::rejection::Rejection;
use crate::service::{Call, Service};

/// How long the result of a check is valid, and how often a failing store is checked.
const MAX_CHECK_AGE: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Status {
    status: &'static str,
}

/// The result of the last store check. Concurrent callers share one check.
pub(crate) struct Readiness {
    last: watch::Sender<Option<StoreCheck>>,
    is_checking: AtomicBool,
}

#[derive(Clone)]
struct StoreCheck {
    started: BootTime,
    result: Result<()>,
}

impl Default for Readiness {
    fn default() -> Self {
        Self {
            last: watch::Sender::new(None),
            is_checking: AtomicBool::new(false),
        }
    }
}

impl Service {
    /// Handles `/healthz`: the process is alive.
    pub(crate) fn health(&self, call: &Call<'_>) -> Result<Answer, Rejection> {
        call.query.allow_only(&[])?;
        Ok(answer::ok(&Status { status: "alive" }))
    }

    /// Handles `/readyz`: a change can be made and audited in bounded time.
    pub(crate) async fn ready(&self, call: Call<'_>) -> Result<Answer, Rejection> {
        call.query.allow_only(&[])?;
        if let Some(audit) = &self.config.audit {
            audit.check()?;
        }
        let checked = tokio::time::timeout(self.config.ready_timeout, self.check_store()).await;
        let timed_out = |_| {
            let detail = "the store did not answer in time: check the store and the network";
            Rejection::new(ProblemType::StoreUnavailable, detail)
        };
        checked.map_err(timed_out)??;
        Ok(answer::ok(&Status { status: "ready" }))
    }

    /// Checks that the store takes writes, unless a recent result is usable.
    async fn check_store(&self) -> Result<()> {
        let arrival = self.engine.host().boot_time();
        let mut last = self.readiness.last.subscribe();
        loop {
            let check = last.borrow_and_update().clone();
            let is_usable = |check: &StoreCheck| check.started >= arrival || self.is_fresh(check);
            if let Some(check) = check.filter(is_usable) {
                return check.result;
            }
            if !self.readiness.is_checking.swap(true, Ordering::AcqRel) {
                // In a separate task, which completes for later callers even if this caller disconnects.
                tokio::spawn(self.clone().check_now());
            }
            let _ = last.changed().await;
        }
    }

    async fn check_now(self) {
        let started = self.engine.host().boot_time();
        let engine = self.engine.clone();
        let checking = tokio::spawn(async move { engine.probe().await }).await;
        let result = checking.unwrap_or_else(|error| {
            Err(Error::Unavailable(format!("store check failed: {error}")))
        });
        let check = StoreCheck { started, result };
        self.readiness.last.send_replace(Some(check));
        self.readiness.is_checking.store(false, Ordering::Release);
    }

    /// Returns whether a result is still valid: for [`MAX_CHECK_AGE`], and a success only until the store fails.
    fn is_fresh(&self, check: &StoreCheck) -> bool {
        let age = self.engine.host().boot_time().since(check.started);
        let store = &self.engine.metrics().store;
        age < MAX_CHECK_AGE && (check.result.is_err() || !store.has_failed_since(check.started))
    }

    /// Checks a failing store until it answers, so that metrics and the log show its recovery without requests.
    pub(crate) async fn keep_checking_store(self) {
        loop {
            tokio::time::sleep(MAX_CHECK_AGE).await;
            if self.engine.metrics().store.is_failing() {
                let _ = self.check_store().await;
            }
        }
    }
}
