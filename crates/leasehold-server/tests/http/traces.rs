//! What a collector of traces hears of the service.

use leasehold::engine::Engine;
use leasehold::store;
use leasehold_server::{Config, Traces};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use tokio::net::TcpListener;

use crate::collector::{Collector, Told, attribute};
use crate::common::Server;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// A service that tells a collector, and the engine's own.
async fn traced_to(url: &str) -> Server {
    let engine = Engine::start(store::open("memory:").await.unwrap());
    let mut config = Config::default();
    config.store = "memory".into();
    config.traces = Some(Traces::open(url).unwrap());
    Server::start_with(engine.await.unwrap(), config).await
}

async fn traced() -> (Server, Collector) {
    let collector = Collector::start().await;
    (traced_to(&collector.url()).await, collector)
}

/// The header of a caller that traces, and whether it wants to hear of it.
fn traceparent(sampled: bool) -> String {
    format!(
        "traceparent: 00-{TRACE}-{CALLER}-0{}\r\n",
        u8::from(sampled)
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Stops the service, which sends what is left.
async fn all_told(mut server: Server, mut collector: Collector) -> Told {
    server.stop().await;
    collector.told()
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
    let (server, collector) = traced().await;
    let header = traceparent(true) + "tracestate: shop=17\r\n";
    server
        .send_with("POST", "/locks/a%2Fb?nonce=n", &header, b"")
        .await
        .ok();
    let told = all_told(server, collector).await;
    let span = told.span("acquire");
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
    let name = attribute(&told.resource, "service.name");
    assert_eq!(name.as_deref(), Some("leasehold"));
}

#[tokio::test]
async fn the_call_of_the_store_is_a_span_below_it() {
    let (server, collector) = traced().await;
    let fence = server.acquire("/locks/job?nonce=n").await;
    server.delete(&format!("/locks/job/{fence}")).await.ok();
    let told = all_told(server, collector).await;
    assert_eq!(told.spans.len(), 4, "{:?}", told.spans);
    for name in ["acquire", "release"] {
        let span = told.span(name);
        let call = told.child(span);
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
    let (acquire, release) = (told.span("acquire"), told.span("release"));
    assert!(acquire.parent_span_id.is_empty(), "{acquire:?}");
    assert_ne!(acquire.trace_id, release.trace_id);
}

#[tokio::test]
async fn what_became_of_it_is_told() {
    let (server, collector) = traced().await;
    server.acquire("/locks/job?nonce=n").await;
    server.post("/gates/g?every=1h").await.ok();
    server
        .post("/gates/g?every=1h")
        .await
        .problem(429, "throttled");
    server.post("/locks/job?nonce=m&ttl=x").await;
    server.post("/locks/job?nonce=m").await.problem(409, "held");
    // Its engine has stopped, as if its store were away.
    server.engine.close().await;
    server
        .send("PUT", "/items/i?state=NEW", b"")
        .await
        .problem(503, "store-unavailable");
    let told = all_told(server, collector).await;
    let mut seen: Vec<_> = told
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
async fn one_who_leaves_the_line_is_told_of() {
    let (server, collector) = traced().await;
    server.acquire("/locks/job?nonce=n").await;
    let waiting = "/locks/job?nonce=m&wait=1h";
    let waiter = server.begin("POST", waiting, &traceparent(true), b"").await;
    server.wait_for_waiters("job", 1).await;
    drop(waiter);
    server.wait_for_waiters("job", 0).await;
    let told = all_told(server, collector).await;
    let mut spans = told.spans.iter();
    let gone = spans.find(|span| hex(&span.trace_id) == TRACE).unwrap();
    has(gone, &[("leasehold.outcome", "gone")]);
    assert_eq!(
        attribute(&gone.attributes, "http.response.status_code"),
        None
    );
}

#[tokio::test]
async fn what_nobody_asked_to_hear_is_not_told() {
    let (server, collector) = traced().await;
    let header = traceparent(false);
    server
        .send_with("POST", "/locks/unsampled?nonce=n", &header, b"")
        .await
        .ok();
    for target in ["/healthz", "/readyz", "/metrics", "/nowhere"] {
        let header = traceparent(true);
        server.send_with("GET", target, &header, b"").await;
    }
    server.acquire("/locks/told?nonce=n").await;
    let told = all_told(server, collector).await;
    let [span, _call] = &*told.spans else {
        panic!("{:?}", told.spans);
    };
    let name = |span: &Span| attribute(&span.attributes, "leasehold.name");
    assert!(
        told.spans
            .iter()
            .any(|span| name(span) == Some("told".into())),
        "{span:?}"
    );
}

#[tokio::test]
async fn no_secret_is_in_a_trace() {
    let (server, collector) = traced().await;
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
    let told = all_told(server, collector).await;
    let text = String::from_utf8_lossy(&told.bytes);
    for shown in ["acquire", "update", "put", "break", "job", "other"] {
        assert!(text.contains(shown), "{shown} is not in {text}");
    }
    for secret in ["secret", "lh_", "Bearer"] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}

#[tokio::test]
async fn a_collector_that_is_away_or_silent_harms_nothing() {
    // One port that nobody listens on, and one where nobody ever answers.
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let away = nobody.local_addr().unwrap();
    drop(nobody);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for address in [away, silent.local_addr().unwrap()] {
        let mut server = traced_to(&format!("http://{address}")).await;
        for _ in 0..3 {
            let fence = server.acquire("/locks/job?nonce=n").await;
            server.delete(&format!("/locks/job/{fence}")).await.ok();
        }
        server.stop().await;
    }
}

#[tokio::test]
async fn what_is_no_url_of_a_collector_is_refused() {
    for (url, hint) in [
        ("collector:4318", "http://HOST:PORT"),
        ("grpc://collector:4317", "http://HOST:PORT"),
        ("http://user:secret@collector", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("http://collector/?key=secret", "parameters"),
        ("/v1/traces", "http://HOST:PORT"),
        ("http://", "collector's URL"),
    ] {
        let error = Traces::open(url).unwrap_err().to_string();
        assert!(error.contains(hint), "{url}: {error}");
        assert!(!error.contains("secret"), "{url}: {error}");
    }
}
