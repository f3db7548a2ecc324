//! Cosmos DB: Microsoft's in-memory emulator, with which their driver is tested, behind an HTTP server.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;

use azure_core::http::headers::{HeaderName, HeaderValue};
use azure_core::http::{Method, Request};
use azure_data_cosmos_driver::in_memory_emulator::{
    ConsistencyLevel, InMemoryEmulatorHttpClient, VirtualAccountConfig, VirtualRegion, WriteMode,
};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use url::Url;

use crate::ports::Port;

/// The well-known key of every emulator, percent-encoded. This one does not check it.
const KEY: &str = "C2y6yDjf5%2FR%2Bob0N8A7Cgv30VRDJIWEHLM%2B4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw%2FJw%3D%3D";

/// An account of one region, with strong consistency and the empty database `leasehold`. It runs in this process, on
/// loopback, and ends when it is dropped, with all data.
///
/// It ignores patch filters, and supports neither stored procedures nor item expiry.
pub struct Cosmos {
    port: Port,
    /// The emulator's thread ends when this is dropped.
    _alive: oneshot::Sender<Infallible>,
}

impl Cosmos {
    /// Starts the emulator.
    pub async fn start() -> Self {
        Self::start_as(WriteMode::Single, ConsistencyLevel::Strong).await
    }

    /// Starts an emulator whose account has several write regions, which is unsafe for leases.
    pub async fn start_writing_everywhere() -> Self {
        Self::start_as(WriteMode::Multi, ConsistencyLevel::Session).await
    }

    async fn start_as(mode: WriteMode, consistency: ConsistencyLevel) -> Self {
        let port = Port::free();
        let at = (Ipv4Addr::LOCALHOST, port.number());
        let base = Url::parse(&format!("http://127.0.0.1:{}", port.number())).expect("a URL");
        let (alive, ended) = oneshot::channel::<Infallible>();
        let (is_open, opened) = oneshot::channel();
        // A separate thread, because a test's runtime may have ended while others use the emulator.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime for the emulator");
            runtime.block_on(async {
                let listener = TcpListener::bind(at).await.expect("the port is free");
                let _ = is_open.send(());
                tokio::select! {
                    () = serve(listener, base, mode, consistency) => {}
                    _ = ended => {}
                }
            });
        });
        opened.await.expect("the emulator has started");
        Self {
            port,
            _alive: alive,
        }
    }

    /// Returns the store URL.
    pub fn url(&self) -> String {
        self.url_at(self.port.number())
    }

    /// Returns the store URL with another port, such as a proxy's.
    pub fn url_at(&self, port: u16) -> String {
        format!("cosmos://emulator/leasehold/leases?endpoint=http://127.0.0.1:{port}&key={KEY}")
    }

    /// Returns the port on loopback.
    pub fn port(&self) -> u16 {
        self.port.number()
    }
}

async fn serve(listener: TcpListener, base: Url, mode: WriteMode, consistency: ConsistencyLevel) {
    let region = VirtualRegion::new("East US", base.clone());
    let account = VirtualAccountConfig::new(vec![region])
        .expect("one region suffices")
        .with_write_mode(mode)
        .with_consistency(consistency);
    let emulator = Arc::new(InMemoryEmulatorHttpClient::new(account));
    emulator.store().create_database("leasehold");
    while let Ok((stream, _)) = listener.accept().await {
        let (emulator, base) = (emulator.clone(), base.clone());
        let answer = service_fn(move |request| answer(emulator.clone(), base.clone(), request));
        // Connection errors concern only the client.
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}

type AnswerResult = Result<hyper::Response<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>>;

/// Passes a request to the emulator, with the emulator's own host, because a proxy has another port.
async fn answer(
    emulator: Arc<InMemoryEmulatorHttpClient>,
    base: Url,
    request: hyper::Request<Incoming>,
) -> AnswerResult {
    let (head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let method: Method = head.method.as_str().parse()?;
    let mut forwarded = Request::new(base.join(path)?, method);
    for (name, value) in &head.headers {
        forwarded.insert_header(
            HeaderName::from(name.as_str().to_owned()),
            HeaderValue::from(value.to_str()?.to_owned()),
        );
    }
    forwarded.set_body(body.collect().await?.to_bytes());

    let answer = emulator.execute_request(&forwarded).await?;
    let (status, headers, body) = answer.deconstruct();
    let mut response = hyper::Response::builder().status(u16::from(status));
    for (name, value) in headers.iter() {
        response = response.header(name.as_str(), value.as_str());
    }
    Ok(response.body(Full::new(body.collect().await?))?)
}
