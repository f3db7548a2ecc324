//! Traces a request: whether it was sent, and the time of its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::config::interceptors::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use leasehold_core::{Stamp, Time};

/// The resolution of the `Date` header.
const RESOLUTION: Duration = Duration::from_secs(1);

/// The trace of one request. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestTrace(Arc<TraceState>);

#[derive(Debug, Default)]
struct TraceState {
    sent: AtomicBool,
    /// Seconds since 1970; 0 before the answer.
    date: AtomicU64,
}

impl RequestTrace {
    /// Returns whether a part of the request may have been sent.
    pub(super) fn was_sent(&self) -> bool {
        self.0.sent.load(Ordering::SeqCst)
    }

    /// Returns the time in the answer's `Date` header, also for an error.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        let seconds = self.0.date.load(Ordering::SeqCst);
        (seconds > 0).then(|| Stamp {
            time: Time::from_micros(seconds.saturating_mul(1_000_000)),
            resolution: RESOLUTION,
        })
    }
}

impl Intercept for RequestTrace {
    fn name(&self) -> &'static str {
        "leasehold"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.0.sent.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn read_after_transmit(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        let date = date.and_then(|date| DateTime::from_str(date, DateTimeFormat::HttpDate).ok());
        if let Some(seconds) = date.and_then(|date| u64::try_from(date.secs()).ok()) {
            self.0.date.store(seconds, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// Returns the later of two stamps, with which a holder's deadline is earlier.
pub(super) fn later(one: Option<Stamp>, other: Option<Stamp>) -> Option<Stamp> {
    [one, other]
        .into_iter()
        .flatten()
        .max_by_key(|stamp| stamp.time)
}
