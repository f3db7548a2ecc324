//! Spans that the service sends to a collector.

use leasehold::engine::Engine;
use leasehold::store;
use leasehold_server::{Config, Traces};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use tokio::net::TcpListener;

use crate::collector::{Collector, Received, attribute};
use crate::common::Server;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// Starts a service that sends spans to this URL.
async fn start_traced_to(url: &str) -> Server {
    let engine = Engine::start(store::open("memory:").await.unwrap());
    let mut config = Config::default();
    config.store = "memory".into();
    config.traces = Some(Traces::open(url).unwrap());
    Server::start_with(engine.await.unwrap(), config).await
}

async fn start_traced() -> (Server, Collector) {
    let collector = Collector::start().await;
    (start_traced_to(&collector.url()).await, collector)
}

/// Returns the header of a caller whose trace is sampled or not.
fn traceparent(sampled: bool) -> String {
    format!(
        "traceparent: 00-{TRACE}-{CALLER}-0{}\r\n",
        u8::from(sampled)
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Stops the service, which sends the remaining spans, and returns all of them.
async fn stop_and_collect(mut server: Server, mut collector: Collector) -> Received {
    server.stop().await;
    collector.take()
}

#[track_caller]
fn has(span: &Span, expected: &[(&str, &str)]) {
    for (key, value) in expected {
        let got = attribute(&span.attributes, key);
        assert_eq!(got.as_deref(), Some(*value), "{key}: {span:?}");
    }
}

#[tokio::test]
async fn a_request_is_a_span_of_its_callers_trace() {
    let (server, collector) = start_traced().await;
    let header = traceparent(true) + "tracestate: shop=17\r\n";
    server
        .send_with("POST", "/locks/a%2Fb?nonce=n", &header, b"")
        .await
        .ok();
    let received = stop_and_collect(server, collector).await;
    let span = received.span("acquire");
    assert_eq!(hex(&span.trace_id), TRACE);
    assert_eq!(hex(&span.parent_span_id), CALLER);
    assert_eq!(span.trace_state, "shop=17");
    assert_eq!(span.kind(), SpanKind::Server);
    assert!(span.status.as_ref().is_none_or(|status| status.code == 0));
    has(
        span,
        &[
            ("leasehold.operation", "acquire"),
            ("leasehold.outcome", "ok"),
            ("leasehold.store", "memory"),
            ("leasehold.kind", "lock"),
            ("leasehold.name", "a/b"),
            ("http.request.method", "POST"),
            ("http.response.status_code", "200"),
        ],
    );
    let name = attribute(&received.resource, "service.name");
    assert_eq!(name.as_deref(), Some("leasehold"));
}

#[tokio::test]
async fn store_call_is_a_child_span() {
    let (server, collector) = start_traced().await;
    let fence = server.acquire("/locks/job?nonce=n").await;
    server.delete(&format!("/locks/job/{fence}")).await.ok();
    let received = stop_and_collect(server, collector).await;
    assert_eq!(received.spans.len(), 4, "{:?}", received.spans);
    for name in ["acquire", "release"] {
        let span = received.span(name);
        let call = received.child(span);
        assert_eq!(call.name, "store");
        assert_eq!(call.kind(), SpanKind::Client);
        assert_eq!(call.trace_id, span.trace_id);
        has(call, &[("leasehold.store", "memory")]);
        let moments = [
            span.start_time_unix_nano,
            call.start_time_unix_nano,
            call.end_time_unix_nano,
            span.end_time_unix_nano,
        ];
        assert!(moments.is_sorted(), "{moments:?}");
    }
    let (acquire, release) = (received.span("acquire"), received.span("release"));
    assert!(acquire.parent_span_id.is_empty(), "{acquire:?}");
    assert_ne!(acquire.trace_id, release.trace_id);
}

#[tokio::test]
async fn spans_have_the_outcome() {
    let (server, collector) = start_traced().await;
    server.acquire("/locks/job?nonce=n").await;
    server.post("/gates/g?every=1h").await.ok();
    server
        .post("/gates/g?every=1h")
        .await
        .problem(429, "throttled");
    server.post("/locks/job?nonce=m&ttl=x").await;
    server.post("/locks/job?nonce=m").await.problem(409, "held");
    // The engine is closed, as if the store were unavailable.
    server.engine.close().await;
    server
        .send("PUT", "/items/i?state=NEW", b"")
        .await
        .problem(503, "store-unavailable");
    let received = stop_and_collect(server, collector).await;
    let mut seen: Vec<_> = received
        .spans
        .iter()
        .filter(|span| span.name != "store")
        .map(|span| {
            let failed = span.status.as_ref();
            let failed = failed.is_some_and(|status| status.code() == StatusCode::Error);
            let outcome = attribute(&span.attributes, "leasehold.outcome").unwrap();
            (span.name.as_str(), outcome, failed)
        })
        .collect();
    seen.sort();
    let expected = [
        ("acquire", "bad-request", false),
        ("acquire", "held", false),
        ("acquire", "ok", false),
        ("pass", "ok", false),
        ("pass", "throttled", false),
        ("put", "store-unavailable", true),
    ];
    let expected = expected.map(|(name, outcome, failed)| (name, outcome.to_owned(), failed));
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn disconnected_waiter_has_a_span() {
    let (server, collector) = start_traced().await;
    server.acquire("/locks/job?nonce=n").await;
    let waiting = "/locks/job?nonce=m&wait=1h";
    let waiter = server.begin("POST", waiting, &traceparent(true), b"").await;
    server.wait_for_waiters("job", 1).await;
    drop(waiter);
    server.wait_for_waiters("job", 0).await;
    let received = stop_and_collect(server, collector).await;
    let mut spans = received.spans.iter();
    let abandoned = spans.find(|span| hex(&span.trace_id) == TRACE).unwrap();
    has(abandoned, &[("leasehold.outcome", "gone")]);
    assert_eq!(
        attribute(&abandoned.attributes, "http.response.status_code"),
        None
    );
}

#[tokio::test]
async fn unsampled_requests_and_probes_have_no_spans() {
    let (server, collector) = start_traced().await;
    let header = traceparent(false);
    server
        .send_with("POST", "/locks/unsampled?nonce=n", &header, b"")
        .await
        .ok();
    for target in ["/healthz", "/readyz", "/metrics", "/nowhere"] {
        let header = traceparent(true);
        server.send_with("GET", target, &header, b"").await;
    }
    server.acquire("/locks/sampled?nonce=n").await;
    let received = stop_and_collect(server, collector).await;
    let [span, _call] = &*received.spans else {
        panic!("{:?}", received.spans);
    };
    let name = |span: &Span| attribute(&span.attributes, "leasehold.name");
    assert!(
        received
            .spans
            .iter()
            .any(|span| name(span) == Some("sampled".into())),
        "{span:?}"
    );
}

#[tokio::test]
async fn spans_contain_no_secrets() {
    let (server, collector) = start_traced().await;
    let fence = server
        .acquire("/locks/job?nonce=secret-1&owner=secret-2")
        .await;
    let header = "Leasehold-Nonce: secret-3\r\nAuthorization: Bearer lh_secret-4\r\n";
    server
        .send_with("POST", "/locks/other", header, b"")
        .await
        .ok();
    let target = format!("/locks/job/{fence}");
    server.send("POST", &target, b"secret-5").await.ok();
    server
        .post("/locks/job?nonce=secret-6&unknown=secret-7")
        .await
        .problem(400, "bad-request");
    server
        .send("PUT", "/items/i?state=NEW&nonce=secret-8", b"secret-9")
        .await
        .ok();
    server
        .post("/locks/job/break?force=true&reason=secret-10")
        .await
        .ok();
    let received = stop_and_collect(server, collector).await;
    let text = String::from_utf8_lossy(&received.bytes);
    for shown in ["acquire", "update", "put", "break", "job", "other"] {
        assert!(text.contains(shown), "{shown} is not in {text}");
    }
    for secret in ["secret", "lh_", "Bearer"] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}

#[tokio::test]
async fn unreachable_or_silent_collector_does_not_affect_the_service() {
    // One port without a listener, and one that never answers.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let unreachable = closed.local_addr().unwrap();
    drop(closed);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for address in [unreachable, silent.local_addr().unwrap()] {
        let mut server = start_traced_to(&format!("http://{address}")).await;
        for _ in 0..3 {
            let fence = server.acquire("/locks/job?nonce=n").await;
            server.delete(&format!("/locks/job/{fence}")).await.ok();
        }
        server.stop().await;
    }
}

#[tokio::test]
async fn invalid_collector_urls_are_refused() {
    for (url, hint) in [
        ("collector:4318", "http://HOST:PORT"),
        ("grpc://collector:4317", "http://HOST:PORT"),
        ("http://user:secret@collector", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("http://collector/?key=secret", "parameters"),
        ("/v1/traces", "http://HOST:PORT"),
        ("http://", "collector URL"),
    ] {
        let error = Traces::open(url).unwrap_err().to_string();
        assert!(error.contains(hint), "{url}: {error}");
        assert!(!error.contains("secret"), "{url}: {error}");
    }
}
