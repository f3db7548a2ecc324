//! Looking: at one lease, at many, and at the service itself.

use leasehold::core::Name;
use leasehold::wire::{LockView, Locks, MAX_PAGE, Problem, Trouble};
use leasehold::{Error, ListRequest, Result};
use serde::Serialize;

use crate::answer::{self, Answer};
use crate::route::Refused;
use crate::service::{Call, Service};

impl Service {
    pub(crate) async fn show(&self, call: Call<'_>, name: &Name) -> Result<Answer, Refused> {
        call.query.only(&["name"])?;
        match self.engine.show(name).await? {
            Some(view) => Ok(answer::ok(&LockView::new(name, &view))),
            None => Err(Refused::Problem(Box::new(Problem::unknown(name)))),
        }
    }

    pub(crate) async fn list(&self, call: Call<'_>) -> Result<Answer, Refused> {
        let query = &call.query;
        query.only(&["prefix", "state", "held", "cursor", "limit"])?;
        let limit = query.read("limit", |text| match text.parse() {
            Ok(limit @ 1..=MAX_PAGE) => Ok(limit),
            _ => Err(Error::invalid(format!(
                "the limit is not a whole number from 1 to {MAX_PAGE}"
            ))),
        })?;
        let request = ListRequest {
            gates: false,
            prefix: query.get("prefix").unwrap_or_default().to_owned(),
            state: query.get("state").map(Into::into),
            held: query.flag("held")?,
            cursor: query.get("cursor").map(Into::into),
            limit: limit.unwrap_or_default(),
        };
        let listing = self.engine.list(request).await?;
        let locks = listing.leases.iter();
        let locks = locks.map(|(name, view)| LockView::new(name, view));
        Ok(answer::ok(&Locks {
            locks: locks.collect(),
            cursor: listing.cursor,
        }))
    }

    /// Whether the process lives.
    pub(crate) fn health(&self, call: &Call<'_>) -> Result<Answer, Refused> {
        call.query.only(&[])?;
        Ok(answer::ok(&Status { status: "alive" }))
    }

    /// Whether the store answers, in bounded time.
    pub(crate) async fn ready(&self, call: Call<'_>) -> Result<Answer, Refused> {
        call.query.only(&[])?;
        let probe = Name::lock("leasehold/readyz")?;
        let probing = self.engine.show(&probe);
        let answered = tokio::time::timeout(self.config.ready_timeout, probing).await;
        answered.map_err(|_| {
            Refused::new(
                Trouble::StoreUnavailable,
                "the store did not answer in time",
            )
        })??;
        Ok(answer::ok(&Status { status: "ready" }))
    }
}

#[derive(Serialize)]
struct Status {
    status: &'static str,
}
