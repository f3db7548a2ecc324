//! OpenTelemetry traces: what became of each request, told to a collector.
//!
//! A span is made once its request is over, from what was noted meanwhile. So a request costs a branch where nobody
//! wants traces, and one that waits in line keeps little where somebody does.

mod send;

use std::env;
use std::fmt;
use std::time::{Duration, SystemTime};

use hyper::StatusCode;
use hyper::http::Uri;
use leasehold::core::{BootTime, Name};
use leasehold::engine::Called;
use leasehold::wire::Trouble;
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
use crate::metrics::Asked;
use crate::route::Route;
use crate::service::{Head, Service};

/// How long the last spans may take to be sent when the service ends.
const FLUSH: Duration = Duration::from_secs(3);

/// Spans of requests, sent to a collector by OTLP over HTTP, in the background and in batches. What cannot be sent is
/// dropped, and requests never wait for it. No nonce, token or body is ever in one. Cheap to clone.
///
/// OpenTelemetry's own variables say the rest: `OTEL_TRACES_SAMPLER`, `OTEL_EXPORTER_OTLP_HEADERS`,
/// `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_BSP_…`.
#[derive(Clone)]
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Traces {
    /// To the collector at this URL, to which `/v1/traces` is added. Nobody is asked whether it is there. To be called
    /// within a runtime, which then sends.
    pub fn open(endpoint: &str) -> Result<Self> {
        // It may hold a secret, and is not repeated.
        let wrong = |why: &dyn fmt::Display| {
            Error::invalid(format!("that is not a collector's URL: {why}"))
        };
        let uri: Uri = endpoint.parse().map_err(|error| wrong(&error))?;
        let sender = send::Sender::new(&uri).map_err(|why| wrong(&why))?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(sender)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .build()
            .map_err(|error| Error::invalid(format!("traces cannot be sent: {error}")))?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource())
            .build();
        let tracer = provider.tracer("leasehold");
        Ok(Self { provider, tracer })
    }

    /// Sends what is left, for some seconds at most. What happens afterwards is not traced.
    pub(crate) async fn close(&self) {
        let provider = self.provider.clone();
        let closing = move || provider.shutdown_with_timeout(FLUSH);
        if let Ok(Err(error)) = tokio::task::spawn_blocking(closing).await {
            tracing::warn!(%error, "the last traces are lost");
        }
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traces")
    }
}

/// Who tells: this service, unless the environment calls it otherwise.
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

/// A request that is traced, if it turns out to be about leases. Dropped before it is answered, its caller has gone.
pub(crate) struct Traced<'s> {
    traces: &'s Traces,
    service: &'s Service,
    /// The span of whoever sent it.
    parent: Context,
    method: &'s str,
    arrival: BootTime,
    /// The same moment by the wall clock, for people.
    began: SystemTime,
    asked: Asked,
    name: Option<Name>,
}

impl<'s> Traced<'s> {
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
            began: SystemTime::now(),
            asked: Asked::Other,
            name: None,
        }
    }

    /// What it asks for.
    pub(crate) fn asks(&mut self, asked: Asked, route: &Route) {
        self.asked = asked;
        self.name = route.name().cloned();
    }

    /// It is answered.
    pub(crate) fn answered(mut self, answer: &Answer, trouble: Option<Trouble>) {
        let outcome = trouble.map_or("ok", Trouble::as_str);
        self.tell(outcome, Some(answer.status), answer.body.called());
    }

    /// Tells it, once.
    fn tell(&mut self, outcome: &'static str, status: Option<StatusCode>, called: Option<Called>) {
        let asked = std::mem::replace(&mut self.asked, Asked::Other);
        if asked == Asked::Other {
            return;
        }
        let store = KeyValue::new("leasehold.store", self.service.config.store.clone());
        let mut attributes = vec![
            KeyValue::new("leasehold.operation", asked.as_str()),
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
        let request = SpanBuilder::from_name(asked.as_str())
            .with_kind(SpanKind::Server)
            .with_start_time(self.began)
            .with_attributes(attributes);
        let mut request = tracer.build_with_context(request, &self.parent);
        if status.is_some_and(|status| status.is_server_error()) {
            request.set_status(Status::error(outcome));
        }
        if let Some(Called { sent, received }) = called {
            let within = Context::new().with_remote_span_context(request.span_context().clone());
            let call = SpanBuilder::from_name("store")
                .with_kind(SpanKind::Client)
                .with_start_time(self.wall(sent))
                .with_attributes([store]);
            let mut call = tracer.build_with_context(call, &within);
            call.end_with_timestamp(self.wall(received));
        }
        let now = self.service.engine.host().boot_time();
        request.end_with_timestamp(self.wall(now));
    }

    /// When that was by the wall clock, had it not been set since.
    fn wall(&self, moment: BootTime) -> SystemTime {
        self.began + moment.since(self.arrival)
    }
}

impl Drop for Traced<'_> {
    fn drop(&mut self) {
        self.tell("gone", None, None);
    }
}
