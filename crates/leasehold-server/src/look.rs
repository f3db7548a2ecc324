//! Looking: at one lease, at many, and at the service itself.

use leasehold::core::{Kind, Name};
use leasehold::wire::{Gates, LockView, Locks, MAX_PAGE, Problem, Trouble};
use leasehold::{ListRequest, Listing, Result};
use serde::Serialize;

use crate::answer::{self, Answer};
use crate::refused::Refused;
use crate::service::{Call, Service};

impl Service {
    pub(crate) async fn show(&self, call: Call<'_>, name: &Name) -> Result<Answer, Refused> {
        call.query.only(&["name"])?;
        match self.engine.show(name).await? {
            Some(view) => Ok(answer::ok(&LockView::new(name, &view))),
            None => Err(Problem::unknown(name).into()),
        }
    }

    pub(crate) async fn list(&self, call: Call<'_>, kind: Kind) -> Result<Answer, Refused> {
        let query = &call.query;
        query.only(&["prefix", "state", "held", "cursor", "limit"])?;
        let request = ListRequest {
            gates: kind == Kind::Gate,
            prefix: query.get("prefix").unwrap_or_default().to_owned(),
            state: query.get("state").map(Into::into),
            held: query.flag("held")?,
            cursor: query.get("cursor").map(Into::into),
            limit: query.limit(MAX_PAGE)?.unwrap_or_default(),
        };
        let Listing { leases, cursor } = self.engine.list(request).await?;
        let views = leases.iter().map(|(name, view)| LockView::new(name, view));
        let views = views.collect();
        Ok(match kind {
            Kind::Lock => answer::ok(&Locks {
                locks: views,
                cursor,
            }),
            Kind::Gate => answer::ok(&Gates {
                gates: views,
                cursor,
            }),
        })
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
