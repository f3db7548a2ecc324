//! A collector of OpenTelemetry spans: OTLP over HTTP.

use std::convert::Infallible;
use std::net::SocketAddr;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    batches: UnboundedReceiver<Bytes>,
}

/// The spans that a collector has received.
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    pub(crate) spans: Vec<Span>,
    /// Attributes of the service that sent the spans.
    pub(crate) resource: Vec<KeyValue>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, batches) = unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(collect(stream, sender.clone()));
            }
        });
        Self { address, batches }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Takes the spans that have been received so far.
    pub(crate) fn take(&mut self) -> Received {
        let mut received = Received {
            bytes: Vec::new(),
            spans: Vec::new(),
            resource: Vec::new(),
        };
        while let Ok(batch) = self.batches.try_recv() {
            received.bytes.extend_from_slice(&batch);
            let batch = ExportTraceServiceRequest::decode(batch).unwrap();
            for by_resource in batch.resource_spans {
                received.resource = by_resource.resource.unwrap_or_default().attributes;
                for by_scope in by_resource.scope_spans {
                    received.spans.extend(by_scope.spans);
                }
            }
        }
        received
    }
}

impl Received {
    /// Returns the only span of this name.
    #[track_caller]
    pub(crate) fn span(&self, name: &str) -> &Span {
        let spans: Vec<_> = self.spans.iter().filter(|span| span.name == name).collect();
        match &*spans {
            [only] => only,
            _ => panic!("expected one span {name}: {:?}", self.spans),
        }
    }

    /// Returns the only child of a span.
    #[track_caller]
    pub(crate) fn child(&self, parent: &Span) -> &Span {
        let is_child = |span: &&Span| span.parent_span_id == parent.span_id;
        let children: Vec<_> = self.spans.iter().filter(is_child).collect();
        match &*children {
            [only] => only,
            _ => panic!("expected one child of {}: {:?}", parent.name, self.spans),
        }
    }
}

/// Returns an attribute as text.
pub(crate) fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let mut attributes = attributes.iter();
    let attribute = attributes.find(|attribute| attribute.key == key)?;
    match attribute.value.clone() {
        Some(AnyValue {
            value: Some(Value::StringValue(text)),
        }) => Some(text),
        Some(AnyValue {
            value: Some(Value::IntValue(number)),
        }) => Some(number.to_string()),
        other => panic!("{key} is {other:?}"),
    }
}

async fn collect(stream: TcpStream, batches: UnboundedSender<Bytes>) {
    let receive = service_fn(move |request: Request<Incoming>| {
        let batches = batches.clone();
        async move {
            assert_eq!(request.method(), Method::POST);
            assert_eq!(request.uri(), "/v1/traces");
            assert_eq!(request.headers()[CONTENT_TYPE], "application/x-protobuf");
            let batch = request.into_body().collect().await.unwrap().to_bytes();
            batches.send(batch).unwrap();
            let response = ExportTraceServiceResponse::default().encode_to_vec();
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(response))))
        }
    });
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), receive)
        .await;
}
