//! Clients that keep connections without using them, each attack from one address, over both request paths and over TLS.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::engine::Engine;
use leasehold::store;
use leasehold_server::{Config, Tls, TlsFiles};
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

use crate::common::{Answer, Server, TIMEOUT};

/// Connections at once.
const MAX: usize = 20;
/// The last byte of the loopback addresses of attackers and of honest clients.
const ATTACKER: u8 = 1;
const HONEST: u8 = 2;
/// Attempts of an honest client, which may be late on a busy machine.
const TRIES: usize = 5;

/// A header that makes a request not plain, so that hyper answers it.
const BY_HYPER: &str = "Upgrade: nothing\r\n";

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A service whose connections can all be taken by one address, with long timeouts.
struct Target {
    server: Server,
    tls: Option<(TlsConnector, TempDir)>,
}

impl Target {
    async fn start(with_tls: bool) -> Self {
        Self::start_with(with_tls, |config| {
            config.max_connections_per_address = Some(MAX);
        })
        .await
    }

    async fn start_with(with_tls: bool, configure: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        config.max_connections = MAX;
        configure(&mut config);
        let tls = with_tls.then(|| {
            let (server, connector, folder) = tls();
            config.tls = Some(server);
            (connector, folder)
        });
        let store = store::open("memory:").await.unwrap();
        let engine = Engine::start(store).await.unwrap();
        let server = Server::start_with(engine, config).await;
        Self { server, tls }
    }

    async fn connect(&self, from: u8) -> Box<dyn Stream> {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, from], 0).into()).unwrap();
        let stream = socket.connect(self.server.address).await.unwrap();
        match &self.tls {
            None => Box::new(stream),
            Some((connector, _)) => {
                let name = ServerName::try_from("localhost").unwrap();
                Box::new(connector.connect(name, stream).await.unwrap())
            }
        }
    }

    /// Sends a request on a new connection.
    async fn send(&self, from: u8, request: &str) -> Box<dyn Stream> {
        let mut stream = self.connect(from).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        stream
    }

    async fn ask(&self, from: u8, method: &str, target: &str) -> Answer {
        let head =
            format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        let mut stream = self.send(from, &format!("{head}\r\n")).await;
        Answer::parse(&read_all(&mut stream).await)
    }

    /// Takes all slots, and sends a request on each connection. Returns once all connections are accepted.
    async fn attack(&self, request: impl Fn(usize) -> String) -> Vec<Box<dyn Stream>> {
        let mut connections = Vec::new();
        for number in 0..MAX {
            connections.push(self.send(ATTACKER, &request(number)).await);
        }
        let taken = async {
            while self.metric("leasehold_connections").await < MAX as u64 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let taken = tokio::time::timeout(TIMEOUT, taken).await;
        taken.expect("all connections are accepted");
        connections
    }

    /// Returns a metric. `/metrics` is answered even if all slots are taken.
    async fn metric(&self, name: &str) -> u64 {
        let page = self.ask(HONEST, "GET", "/metrics").await.body;
        let mut lines = page.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(metric, _)| *metric == name);
        found.expect("a metric").1.parse().expect("a number")
    }

    /// Checks that an honest client on another address is served within a second.
    async fn serves_others(&self, attack: &str) {
        let mut times = Vec::new();
        for turn in 0..TRIES {
            let lock = format!("/locks/honest-{turn}");
            let started = Instant::now();
            let granted = self
                .ask(HONEST, "POST", &format!("{lock}?nonce=n"))
                .await
                .ok();
            times.push(started.elapsed());
            let held = self
                .ask(HONEST, "POST", &format!("{lock}?nonce=other"))
                .await;
            held.problem(409, "held");
            let lease = format!("{lock}/{}", granted.fence());
            let released = self.ask(HONEST, "DELETE", &lease).await.ok();
            assert_eq!(released.json["released"], true);
            if times[turn] < Duration::from_secs(1) {
                return;
            }
        }
        panic!("{attack}: served after {times:?}");
    }
}

/// Creates a certificate of a service, and a client that trusts it.
fn tls() -> (Tls, TlsConnector, TempDir) {
    let folder = TempDir::new().unwrap();
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let [certificate, key] = ["server.pem", "server.key"].map(|name| folder.path().join(name));
    std::fs::write(&certificate, certified.cert.pem()).unwrap();
    std::fs::write(&key, certified.signing_key.serialize_pem()).unwrap();
    let server = Tls::open(TlsFiles {
        certificate,
        key,
        client_authorities: None,
    });
    let mut roots = RootCertStore::empty();
    roots.add(certified.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (server.unwrap(), Arc::new(client).into(), folder)
}

/// Reads everything until the connection is closed.
async fn read_all(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let reading = stream.read_to_end(&mut bytes);
    // A reset closes the connection as well.
    let _ = tokio::time::timeout(TIMEOUT, reading)
        .await
        .expect("in bounded time");
    bytes
}

/// Returns each combination of a header that selects the request path, and of TLS or plain TCP.
fn paths_and_transports() -> impl Iterator<Item = (&'static str, bool)> {
    ["", BY_HYPER]
        .into_iter()
        .flat_map(|path| [(path, false), (path, true)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_answers_do_not_block_other_clients() {
    for (path, with_tls) in paths_and_transports() {
        let target = Target::start(with_tls).await;
        let page = format!("GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n{path}\r\n");
        // More than the buffers of the system for a client that does not read.
        let mut connections = target.attack(|_| page.repeat(300)).await;
        for stream in &mut connections {
            // An answer has begun.
            stream.read_exact(&mut [0]).await.unwrap();
        }
        target.serves_others(&page).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_bodies_do_not_block_other_clients() {
    let head = "POST /locks/job/1 HTTP/1.1\r\nHost: localhost\r\n";
    for (body, with_tls) in [
        ("Content-Length: 1000\r\n\r\nhalf", false),
        ("Content-Length: 1000\r\n\r\nhalf", true),
        ("Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", false),
        ("Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", true),
    ] {
        let target = Target::start(with_tls).await;
        let _connections = target.attack(|_| format!("{head}{body}")).await;
        target.serves_others(body).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_streams_do_not_block_other_clients() {
    for with_tls in [false, true] {
        let target = Target::start(with_tls).await;
        let subscribe = "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut connections = target.attack(|_| subscribe.to_owned()).await;
        for stream in &mut connections {
            stream.read_exact(&mut [0]).await.unwrap();
        }
        assert_eq!(
            target.metric("leasehold_event_subscribers").await,
            MAX as u64 / 2
        );
        target.serves_others(subscribe).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disconnected_waiters_do_not_block_other_clients_and_are_granted_nothing() {
    for (path, with_tls) in paths_and_transports() {
        // One byte, more than is read ahead, and more than the receive buffer holds, so that the end of the stream is not in it.
        for queued in [1, 40 * 1024, 1024 * 1024] {
            let target = Target::start(with_tls).await;
            let fence = target.server.engine_acquire("job").await;
            let queued = "x".repeat(queued);
            let waiting = |number| {
                let wait = format!("POST /locks/job?nonce=n{number}&wait=1h HTTP/1.1\r\n");
                format!("{wait}Host: localhost\r\n{path}\r\n")
            };
            let mut connections = Vec::new();
            for number in 0..MAX {
                connections.push(target.send(ATTACKER, &waiting(number)).await);
            }
            target.server.wait_for_waiters("job", MAX).await;
            for mut stream in connections {
                // As much as the system accepts.
                let writing = stream.write_all(queued.as_bytes());
                let _ = tokio::time::timeout(Duration::from_millis(50), writing).await;
            }
            target.serves_others(path).await;
            target.server.wait_for_waiters("job", 0).await;
            let lease = format!("/locks/job/{fence}");
            target.ask(HONEST, "DELETE", &lease).await.ok();
            let next = target
                .ask(HONEST, "POST", "/locks/job?nonce=next")
                .await
                .ok();
            assert_eq!(next.fence(), fence + 1, "no grant in between");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_with_pipelined_requests_is_granted_and_then_answered() {
    for (path, with_tls) in paths_and_transports() {
        let target = Target::start(with_tls).await;
        let fence = target.server.engine_acquire("job").await;
        let wait = "POST /locks/job?nonce=next&wait=1h HTTP/1.1\r\nHost: localhost\r\n";
        let show = "GET /locks/job HTTP/1.1\r\nHost: localhost\r\n";
        let close = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut stream = target.send(HONEST, &format!("{wait}{path}\r\n")).await;
        target.server.wait_for_waiters("job", 1).await;
        let behind = format!("{show}\r\n").repeat(100) + close;
        stream.write_all(behind.as_bytes()).await.unwrap();
        let lease = format!("/locks/job/{fence}");
        target.ask(HONEST, "DELETE", &lease).await.ok();
        let answers = String::from_utf8(read_all(&mut stream).await).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200").count(), 102, "{answers}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_has_a_share_of_the_connections() {
    let target = Target::start_with(false, |_| ()).await;
    target.server.engine_acquire("job").await;
    let wait = |number| {
        format!("POST /locks/job?nonce=n{number}&wait=1h HTTP/1.1\r\nHost: localhost\r\n\r\n")
    };
    let mut waiting = Vec::new();
    for number in 0..MAX / 2 {
        waiting.push(target.send(ATTACKER, &wait(number)).await);
    }
    target.server.wait_for_waiters("job", MAX / 2).await;
    for head in ["", BY_HYPER] {
        let request = format!("GET /locks HTTP/1.1\r\nHost: localhost\r\n{head}\r\n");
        let mut one_more = target.send(ATTACKER, &request).await;
        let refused = Answer::parse(&read_all(&mut one_more).await);
        let refused = refused.problem(429, "too-many-requests");
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(refused.header("connection"), Some("close"));
    }
    assert_eq!(
        target.metric("leasehold_refused_connections_total").await,
        2
    );
    target.ask(HONEST, "GET", "/locks").await.ok();
    // A connection that ends makes room for another one.
    waiting.pop();
    target.ask(ATTACKER, "GET", "/locks").await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_answered_while_every_slot_is_busy() {
    let target = Target::start(false).await;
    target.server.engine_acquire("job").await;
    let wait = |number| {
        format!("POST /locks/job?nonce=n{number}&wait=1h HTTP/1.1\r\nHost: localhost\r\n\r\n")
    };
    let waiting = target.attack(wait).await;
    target.server.wait_for_waiters("job", MAX).await;
    // More silent connections than slots.
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(target.connect(ATTACKER).await);
    }
    for path in ["/healthz", "/readyz"] {
        target.ask(HONEST, "GET", path).await.ok();
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{BY_HYPER}\r\n");
        let mut stream = target.send(HONEST, &head).await;
        // The service closes the connection after the answer.
        Answer::parse(&read_all(&mut stream).await).ok();
    }
    let refused = target.ask(HONEST, "GET", "/locks").await;
    refused.problem(429, "too-many-requests");
    drop(waiting);
    target.serves_others("disconnected waiters").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_are_limited_by_address_and_in_total() {
    let target = Target::start_with(false, |config| config.max_subscribers = 4).await;
    let subscribe = async |from| {
        let head = "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut stream = target.send(from, head).await;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        (stream, String::from_utf8(status[9..].into()).unwrap())
    };
    let mut streams = Vec::new();
    for (from, expected) in [
        (1, "200"),
        (1, "200"),
        (1, "429"),
        (2, "200"),
        (3, "200"),
        (4, "429"),
    ] {
        let (stream, status) = subscribe(from).await;
        assert_eq!(status, expected, "{from}");
        streams.push(stream);
    }
    drop(streams);
    let again = async {
        while subscribe(1).await.1 != "200" {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, again)
        .await
        .expect("room again");
}
