//! OpenTelemetry traces: a span for each request, exported to a collector.
//!
//! A span is built when its request has ended, from what was recorded until then. So a request costs one branch if
//! tracing is off, and a waiting one keeps little memory if it is on.

mod send;

use std::env;
use std::fmt;
use std::time::{Duration, SystemTime};

use hyper::StatusCode;
use hyper::http::Uri;
use leasehold::core::{BootTime, Name};
use leasehold::engine::CallTimes;
use leasehold::wire::ProblemType;
use leasehold::{Error, Result};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _,
    TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use crate::answer::Answer;
use crate::metrics::RequestKind;
use crate::route::Route;
use crate::service::{Head, Service};

/// How long sending the last spans may take when the service ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Exports spans of requests to a collector by OTLP over HTTP, in the background and in batches. Spans that cannot be sent
/// are dropped, and requests never wait for it. A span never contains a nonce, a token or a body. Cheap to clone.
///
/// Everything else is configured by OpenTelemetry's own environment variables: `OTEL_TRACES_SAMPLER`,
/// `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_BSP_…`.
#[derive(Clone)]
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Traces {
    /// Exports to the collector at this URL, to which `/v1/traces` is appended. It does not connect yet. Must be called
    /// within a Tokio runtime, which then sends the spans.
    pub fn open(endpoint: &str) -> Result<Self> {
        // The URL may contain a secret, so the message does not.
        let invalid =
            |why: &dyn fmt::Display| Error::invalid(format!("invalid collector URL: {why}"));
        let uri: Uri = endpoint.parse().map_err(|error| invalid(&error))?;
        let sender = send::Sender::new(&uri).map_err(|why| invalid(&why))?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(sender)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .build()
            .map_err(|error| Error::invalid(format!("cannot set up traces: {error}")))?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource())
            .build();
        let tracer = provider.tracer("leasehold");
        Ok(Self { provider, tracer })
    }

    /// Sends the remaining spans, for at most [`FLUSH_TIMEOUT`]. Later spans are dropped.
    pub(crate) async fn close(&self) {
        let provider = self.provider.clone();
        let closing = move || provider.shutdown_with_timeout(FLUSH_TIMEOUT);
        if let Ok(Err(error)) = tokio::task::spawn_blocking(closing).await {
            tracing::warn!(%error, "cannot send the last traces");
        }
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traces")
    }
}

/// Returns the resource of all spans: this service, unless the environment sets another name.
fn resource() -> Resource {
    let resource = Resource::builder_empty()
        .with_service_name("leasehold")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()));
    match env::var("OTEL_SERVICE_NAME") {
        Ok(name) if !name.is_empty() => resource.with_service_name(name).build(),
        _ => resource.build(),
    }
}

/// The span of a request, which is only exported if the request is about leases. If it is dropped before
/// [`answered`](Self::answered), the outcome is `gone`: the caller has left.
pub(crate) struct RequestSpan<'s> {
    traces: &'s Traces,
    service: &'s Service,
    /// The caller's span.
    parent: Context,
    method: &'s str,
    arrival: BootTime,
    /// The arrival by the wall clock: spans have no other time.
    started: SystemTime,
    kind: RequestKind,
    name: Option<Name>,
}

impl<'s> RequestSpan<'s> {
    pub(crate) fn new(
        traces: &'s Traces,
        service: &'s Service,
        head: Head<'s>,
        arrival: BootTime,
    ) -> Self {
        let headers = HeaderExtractor(head.headers);
        Self {
            traces,
            service,
            parent: TraceContextPropagator::new().extract_with_context(&Context::new(), &headers),
            method: head.method.as_str(),
            arrival,
            started: SystemTime::now(),
            kind: RequestKind::Other,
            name: None,
        }
    }

    /// Sets the kind and the name of the request.
    pub(crate) fn set_request(&mut self, kind: RequestKind, route: &Route) {
        self.kind = kind;
        self.name = route.name().cloned();
    }

    /// Exports the span of an answered request.
    pub(crate) fn answered(mut self, answer: &Answer, problem: Option<ProblemType>) {
        let outcome = problem.map_or("ok", ProblemType::as_str);
        self.export(outcome, Some(answer.status), answer.body.call_times());
    }

    /// Exports the span, once.
    fn export(
        &mut self,
        outcome: &'static str,
        status: Option<StatusCode>,
        store_call: Option<CallTimes>,
    ) {
        let kind = std::mem::replace(&mut self.kind, RequestKind::Other);
        if kind == RequestKind::Other {
            return;
        }
        let store = KeyValue::new("leasehold.store", self.service.config.store.clone());
        let mut attributes = vec![
            KeyValue::new("leasehold.operation", kind.as_str()),
            KeyValue::new("leasehold.outcome", outcome),
            store.clone(),
            KeyValue::new("http.request.method", self.method.to_owned()),
        ];
        if let Some(status) = status {
            let number = i64::from(status.as_u16());
            attributes.push(KeyValue::new("http.response.status_code", number));
        }
        if let Some(name) = &self.name {
            attributes.push(KeyValue::new("leasehold.kind", name.kind().as_str()));
            attributes.push(KeyValue::new("leasehold.name", name.as_str().to_owned()));
        }
        let tracer = &self.traces.tracer;
        let request = SpanBuilder::from_name(kind.as_str())
            .with_kind(SpanKind::Server)
            .with_start_time(self.started)
            .with_attributes(attributes);
        let mut request = tracer.build_with_context(request, &self.parent);
        if status.is_some_and(|status| status.is_server_error()) {
            request.set_status(Status::error(outcome));
        }
        if let Some(CallTimes { sent, received }) = store_call {
            let parent = Context::new().with_remote_span_context(request.span_context().clone());
            let call = SpanBuilder::from_name("store")
                .with_kind(SpanKind::Client)
                .with_start_time(self.wall_time(sent))
                .with_attributes([store]);
            let mut call = tracer.build_with_context(call, &parent);
            call.end_with_timestamp(self.wall_time(received));
        }
        let now = self.service.engine.host().boot_time();
        request.end_with_timestamp(self.wall_time(now));
    }

    /// Converts a boot time to wall time by the offset at the arrival. So a span's length is exact even if the wall clock
    /// was set meanwhile.
    fn wall_time(&self, time: BootTime) -> SystemTime {
        self.started + time.since(self.arrival)
    }
}

impl Drop for RequestSpan<'_> {
    fn drop(&mut self) {
        self.export("gone", None, None);
    }
}
