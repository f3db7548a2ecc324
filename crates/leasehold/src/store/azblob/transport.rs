//! How requests get to Azure, and what is seen of them on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use azure_core::error::ErrorKind;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{AsyncRawResponse, Context, Method, Request, Transport, Url};
use leasehold_core::Stamp;

use crate::Result;
use crate::store::azure::{self, Connections};

/// Goes with one request. Clones are the same witness.
#[derive(Clone, Debug, Default)]
pub(super) struct Witness(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    sent: AtomicBool,
    stamp: Mutex<Option<Stamp>>,
}

impl Witness {
    /// Whether anything of it may have left this machine.
    pub(super) fn was_sent(&self) -> bool {
        self.0.sent.load(Ordering::SeqCst)
    }

    /// The time in the answer's `Date`, be it an error or not.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        *self.0.stamp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self, stamp: Option<Stamp>) {
        *self.0.stamp.lock().unwrap_or_else(PoisonError::into_inner) = stamp;
    }
}

/// The library's own connections instead of the SDK's.
#[derive(Debug)]
struct Wire(Connections);

/// What sends requests, on connections that are kept for the next: writes once each.
pub(super) fn transport(endpoint: &Url) -> Result<Transport> {
    let wire = Wire(Connections::new(endpoint.scheme() == "http")?);
    Ok(Transport::with_policy(Arc::new(wire)))
}

impl Wire {
    /// Sends a request: a read once more, on a new connection, if the one that it went out on was lost. The server may have
    /// closed that just then, because it was idle.
    async fn carry(
        &self,
        request: &Request,
    ) -> azure_core::Result<(AsyncRawResponse, Option<Stamp>)> {
        let carried = azure::carry(&self.0.current(), request).await;
        let Err(error) = carried else { return carried };
        self.0.give_up();
        let was_lost = matches!(error.kind(), ErrorKind::Io);
        match request.method() {
            Method::Get | Method::Head if was_lost => {
                azure::carry(&self.0.current(), request).await
            }
            _ => Err(error),
        }
    }
}

#[async_trait]
#[expect(elided_lifetimes_in_paths, reason = "as the trait has it")]
impl Policy for Wire {
    async fn send(
        &self,
        context: &Context,
        request: &mut Request,
        _: &[Arc<dyn Policy>],
    ) -> PolicyResult {
        let witness = context.value::<Witness>();
        if let Some(witness) = witness {
            witness.0.sent.store(true, Ordering::SeqCst);
        }
        let (answer, stamp) = self.carry(request).await?;
        if let Some(witness) = witness {
            witness.see(stamp);
        }
        Ok(answer)
    }
}
