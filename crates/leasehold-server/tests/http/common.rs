//! A running service and a raw client, which sends exactly the bytes of a test.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::core::{Acquire, Fence, Mode, Name, Nonce, Operation, Outcome};
use leasehold::engine::{Engine, WaitLimit};
use leasehold::{ListRequest, store};
use leasehold_server::Config;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longer than anything in these tests takes, unless it hangs.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A service on a free port.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Engine,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    folder: Option<PathBuf>,
}

impl Server {
    /// Starts a service on a store in memory.
    pub(crate) async fn start() -> Self {
        Self::start_on("memory:").await
    }

    /// Starts a service on a new SQLite file.
    pub(crate) async fn start_on_sqlite() -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("leasehold-server-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let url = format!("sqlite:{}", folder.join("leases.db").display());
        let mut server = Self::start_on(&url).await;
        server.folder = Some(folder);
        server
    }

    pub(crate) async fn start_on(url: &str) -> Self {
        let engine = Engine::start(store::open(url).await.unwrap())
            .await
            .unwrap();
        Self::start_with(engine, Config::default()).await
    }

    pub(crate) async fn start_with(engine: Engine, config: Config) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(leasehold_server::serve(
            listener,
            engine.clone(),
            config,
            shutdown,
        ));
        Self {
            address,
            engine,
            stop: Some(stop),
            task,
            folder: None,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops the service as an operator does, and returns when it has stopped.
    pub(crate) async fn stop(&mut self) {
        drop(self.stop.take());
        tokio::time::timeout(TIMEOUT, &mut self.task)
            .await
            .expect("the service stops in bounded time")
            .unwrap();
    }

    pub(crate) async fn post(&self, target: &str) -> Answer {
        self.send("POST", target, b"").await
    }

    pub(crate) async fn get(&self, target: &str) -> Answer {
        self.send("GET", target, b"").await
    }

    pub(crate) async fn delete(&self, target: &str) -> Answer {
        self.send("DELETE", target, b"").await
    }

    pub(crate) async fn send(&self, method: &str, target: &str, body: &[u8]) -> Answer {
        self.send_with(method, target, "", body).await
    }

    /// Sends a request with more header lines, each ended by `\r\n`.
    pub(crate) async fn send_with(
        &self,
        method: &str,
        target: &str,
        headers: &str,
        body: &[u8],
    ) -> Answer {
        read_answer(self.begin(method, target, headers, body).await).await
    }

    /// Sends exactly these bytes. They must ask the service to close the connection after its answer.
    pub(crate) async fn send_raw(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        read_answer(stream).await
    }

    /// Sends a request whose answer may be a stream, and returns the head of the answer, or all of it if it is refused.
    pub(crate) async fn head_of(&self, method: &str, target: &str, headers: &str) -> Answer {
        let mut stream = self.begin(method, target, headers, b"").await;
        let mut bytes = Vec::new();
        let reading = async {
            while !bytes.ends_with(b"\r\n\r\n") {
                bytes.push(stream.read_u8().await.unwrap());
            }
            if !bytes.starts_with(b"HTTP/1.1 200") {
                stream.read_to_end(&mut bytes).await.unwrap();
            }
        };
        tokio::time::timeout(TIMEOUT, reading)
            .await
            .expect("an answer in bounded time");
        Answer::parse(&bytes)
    }

    /// Sends these bytes on a connection with a small receive buffer, for a client that does not read.
    pub(crate) async fn send_narrow(&self, request: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let mut stream = socket.connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Sends a request and does not wait for its answer.
    pub(crate) async fn begin(
        &self,
        method: &str,
        target: &str,
        headers: &str,
        body: &[u8],
    ) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        stream
    }

    /// Acquires a lease, and returns its fence.
    pub(crate) async fn acquire(&self, target: &str) -> u64 {
        self.post(target).await.ok().fence()
    }

    /// Acquires a lease through the engine, without a connection, and returns its fence.
    pub(crate) async fn engine_acquire(&self, name: &str) -> u64 {
        let name = Name::lock(name).unwrap();
        let acquire = Operation::Acquire(Acquire {
            nonce: Nonce::new("engine").unwrap().hash(&name),
            owner: "engine".into(),
            principal: None,
            ttl: Duration::from_secs(3_600),
            mode: Mode::Exclusive,
            fence: None,
            floor: Fence::default(),
            in_state: None,
        });
        let reply = self.engine.perform(&name, acquire, WaitLimit::NONE).await;
        match reply.unwrap().take().0 {
            Outcome::Granted(grant) => grant.fence.get(),
            outcome => panic!("{name} is free: {outcome:?}"),
        }
    }

    /// Returns the names of the items in a state, oldest first.
    pub(crate) async fn engine_names(&self, state: &str) -> Vec<String> {
        let request = ListRequest {
            state: Some(state.into()),
            limit: 1_000,
            ..ListRequest::default()
        };
        let listing = self.engine.list(request).await.unwrap();
        let leases = listing.leases.into_iter();
        leases.map(|(name, _)| name.as_str().to_owned()).collect()
    }

    /// Returns everything that is stored, without the remaining times.
    pub(crate) async fn everything(&self) -> Value {
        let mut all = self.get("/locks?limit=1000").await.ok().json;
        for lock in all["locks"].as_array_mut().unwrap() {
            for holder in lock["holders"].as_array_mut().unwrap() {
                holder.as_object_mut().unwrap().remove("left");
            }
        }
        all
    }

    /// Waits until this many wait for a name.
    pub(crate) async fn wait_for_waiters(&self, name: &str, count: usize) {
        let name = leasehold::core::Name::lock(name).unwrap();
        let waiting = async {
            while self.engine.waiters(&name) != count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, waiting)
            .await
            .expect("this many wait");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(folder) = self.folder.take() {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

pub(crate) async fn read_answer(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut bytes))
        .await
        .expect("an answer in bounded time")
        .unwrap();
    Answer::parse(&bytes)
}

/// An answer of the service.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    set_cookie: Option<String>,
    pub(crate) body: String,
    pub(crate) json: Value,
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).expect("answers are UTF-8");
        let (head, body) = text
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("no answer: {text:?}"));
        Self {
            status: head[9..12].parse().unwrap(),
            head: head.to_ascii_lowercase(),
            set_cookie: head
                .lines()
                .find_map(|line| line.strip_prefix("set-cookie: "))
                .map(str::to_owned),
            body: body.to_owned(),
            json: serde_json::from_str(body).unwrap_or(Value::Null),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.status, 200, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"));
        self
    }

    /// Returns the cookie that it sets.
    #[track_caller]
    pub(crate) fn set_cookie(&self) -> String {
        self.set_cookie.clone().expect("a cookie")
    }

    /// Checks that it is a problem document of this status and type.
    #[track_caller]
    pub(crate) fn problem(self, status: u16, kind: &str) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        assert_eq!(self.json["type"], kind, "{self:?}");
        assert_eq!(self.json["status"], status, "{self:?}");
        for text in ["title", "detail"] {
            assert!(!self.json[text].as_str().unwrap().is_empty(), "{self:?}");
        }
        self
    }

    #[track_caller]
    pub(crate) fn fence(&self) -> u64 {
        self.json["fence"].as_u64().expect("a fence")
    }

    pub(crate) fn text(&self, member: &str) -> &str {
        self.json[member].as_str().unwrap_or_default()
    }
}
