//! Health: whether the process lives, and whether it can do what it is asked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::core::BootTime;
use leasehold::wire::Trouble;
use leasehold::{Error, Result};
use serde::Serialize;
use tokio::sync::watch;

use crate::answer::{self, Answer};
use crate::refused::Refused;
use crate::service::{Call, Service};

/// How long the result of a check is good for, and how often a store that fails is checked.
const FRESH: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Status {
    status: &'static str,
}

/// What the last check of the store has shown. However many ask, one check is under way at a time.
pub(crate) struct Readiness {
    last: watch::Sender<Option<Checked>>,
    is_checking: AtomicBool,
}

#[derive(Clone)]
struct Checked {
    began: BootTime,
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
    /// Whether the process lives.
    pub(crate) fn health(&self, call: &Call<'_>) -> Result<Answer, Refused> {
        call.query.only(&[])?;
        Ok(answer::ok(&Status { status: "alive" }))
    }

    /// Whether a change can be made and recorded, in bounded time.
    pub(crate) async fn ready(&self, call: Call<'_>) -> Result<Answer, Refused> {
        call.query.only(&[])?;
        if let Some(audit) = &self.config.audit {
            audit.check()?;
        }
        let checked = tokio::time::timeout(self.config.ready_timeout, self.check_store()).await;
        let unanswered = |_| {
            let detail = "the store did not answer in time";
            Refused::new(Trouble::StoreUnavailable, detail)
        };
        checked.map_err(unanswered)??;
        Ok(answer::ok(&Status { status: "ready" }))
    }

    /// Whether the store takes writes, as a check of the last second has shown.
    async fn check_store(&self) -> Result<()> {
        let asked = self.engine.host().boot_time();
        let mut last = self.readiness.last.subscribe();
        loop {
            let known = last.borrow_and_update().clone();
            let counts = |known: &Checked| known.began >= asked || self.is_fresh(known);
            if let Some(checked) = known.filter(counts) {
                return checked.result;
            }
            if !self.readiness.is_checking.swap(true, Ordering::AcqRel) {
                // In a task of its own: it ends although its caller leaves, and the next caller finds its result.
                tokio::spawn(self.clone().check_now());
            }
            let _ = last.changed().await;
        }
    }

    async fn check_now(self) {
        let began = self.engine.host().boot_time();
        let engine = self.engine.clone();
        let checking = tokio::spawn(async move { engine.probe().await }).await;
        let result = checking
            .unwrap_or_else(|died| Err(Error::Unavailable(format!("the check died: {died}"))));
        let checked = Checked { began, result };
        self.readiness.last.send_replace(Some(checked));
        self.readiness.is_checking.store(false, Ordering::Release);
    }

    /// Whether a result still counts: for a second, and a good one only until the store fails.
    fn is_fresh(&self, checked: &Checked) -> bool {
        let age = self.engine.host().boot_time().since(checked.began);
        let store = &self.engine.measures().store;
        age < FRESH && (checked.result.is_err() || !store.has_failed_since(checked.began))
    }

    /// Checks a store that fails until it answers again, so that metrics and the log say so although nobody asks.
    pub(crate) async fn keep_checking(self) {
        loop {
            tokio::time::sleep(FRESH).await;
            if self.engine.measures().store.is_failing() {
                let _ = self.check_store().await;
            }
        }
    }
}
