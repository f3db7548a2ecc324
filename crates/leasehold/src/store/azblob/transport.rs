//! Sends requests to Azure, and traces them.

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

/// The trace of one request. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestTrace(Arc<TraceState>);

#[derive(Debug, Default)]
struct TraceState {
    sent: AtomicBool,
    stamp: Mutex<Option<Stamp>>,
}

impl RequestTrace {
    /// Returns whether a part of the request may have been sent.
    pub(super) fn was_sent(&self) -> bool {
        self.0.sent.load(Ordering::SeqCst)
    }

    /// Returns the time in the answer's `Date` header, also for an error.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        *self.0.stamp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, stamp: Option<Stamp>) {
        *self.0.stamp.lock().unwrap_or_else(PoisonError::into_inner) = stamp;
    }
}

/// A transport with the library's own connections instead of the SDK's.
#[derive(Debug)]
struct HyperTransport(Connections);

/// Creates the transport, which reuses connections and sends each write once.
pub(super) fn transport(endpoint: &Url) -> Result<Transport> {
    let transport = HyperTransport(Connections::new(endpoint.scheme() == "http")?);
    Ok(Transport::with_policy(Arc::new(transport)))
}

impl HyperTransport {
    /// Sends a request. Retries a read on a new connection if the connection was lost, because the server may have
    /// just closed it for being idle.
    async fn send_with_retry(
        &self,
        request: &Request,
    ) -> azure_core::Result<(AsyncRawResponse, Option<Stamp>)> {
        let answer = azure::send(&self.0.current(), request).await;
        let Err(error) = answer else { return answer };
        self.0.reset();
        let was_lost = matches!(error.kind(), ErrorKind::Io);
        match request.method() {
            Method::Get | Method::Head if was_lost => azure::send(&self.0.current(), request).await,
            _ => Err(error),
        }
    }
}

#[async_trait]
#[expect(elided_lifetimes_in_paths, reason = "required by the trait")]
impl Policy for HyperTransport {
    async fn send(
        &self,
        context: &Context,
        request: &mut Request,
        _: &[Arc<dyn Policy>],
    ) -> PolicyResult {
        let trace = context.value::<RequestTrace>();
        if let Some(trace) = trace {
            trace.0.sent.store(true, Ordering::SeqCst);
        }
        let (answer, stamp) = self.send_with_retry(request).await?;
        if let Some(trace) = trace {
            trace.record(stamp);
        }
        Ok(answer)
    }
}
