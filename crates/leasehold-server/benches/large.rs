//! The effect of hostile clients: the memory of a service under lists, batches, claims and slow readers of the longest bodies,
//! and the latency of `/healthz` meanwhile.
//!
//! `cargo bench -p leasehold-server --bench large [-- CLIENTS_OF_EACH_KIND SECONDS [PROGRAM]]`
//!
//! The service runs in a separate process: this program with one thread, or `PROGRAM serve`. Fails if the goals are missed.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::engine::Engine;
use leasehold::store;
use leasehold_server::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// The allocator of the `leasehold` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The maximum memory of the service, in megabytes.
const MEMORY_GOAL: u64 = 256;
/// The maximum of the 99th percentile of `/healthz`.
const LATENCY_GOAL: Duration = Duration::from_millis(100);
/// The number of items, each with the longest body.
const ITEMS: usize = 1_000;
/// Makes this program the service, on the store at this URL.
const SERVE: &str = "LEASEHOLD_BENCH_SERVE";

fn main() -> ExitCode {
    if let Ok(url) = std::env::var(SERVE) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().expect("a runtime");
        runtime.block_on(serve(&url));
        return ExitCode::SUCCESS;
    }
    let mut arguments = std::env::args().skip(1).filter(|word| word != "--bench");
    let mut number = |default: usize| match arguments.next() {
        Some(word) => word.parse().expect("a number"),
        None => default,
    };
    let (clients, seconds) = (number(10), number(10));
    let folder = tempfile::TempDir::new().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("leases.db").display());
    let program = arguments.next();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    // A separate process fills the store, so that the measured one starts with an empty cache.
    let service = Service::start(program.as_deref(), &url);
    runtime.block_on(fill(service.address));
    println!(
        "{ITEMS} items of 64 KiB were put; the service took {} MB",
        service.memory().0
    );
    drop(service);
    let service = Service::start(program.as_deref(), &url);
    let span = Duration::from_secs(seconds as u64);
    let passed = runtime.block_on(measure(&service, clients, span));
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

async fn serve(url: &str) {
    let engine = Engine::start(store::open(url).await.expect("a store"));
    let engine = engine.await.expect("an engine");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    eprintln!("listening on http://{address}");
    leasehold_server::serve(listener, engine, Config::default(), std::future::pending()).await;
}

/// The service under test.
struct Service {
    process: Child,
    address: SocketAddr,
}

impl Service {
    fn start(program: Option<&str>, url: &str) -> Self {
        let mut command = match program {
            Some(program) => {
                let mut command = Command::new(program);
                command.args(["serve", "--listen", "127.0.0.1:0", "--store", url]);
                command
            }
            None => {
                let mut command = Command::new(std::env::current_exe().expect("this program"));
                command.env(SERVE, url);
                command
            }
        };
        let mut process = { command.stderr(Stdio::piped()).spawn() }.expect("a process");
        let mut lines = BufReader::new(process.stderr.take().expect("a log")).lines();
        let address = loop {
            let line = lines.next().expect("a line").expect("a line");
            if let Some((_, address)) = line.split_once("http://") {
                break address.trim().parse().expect("an address");
            }
        };
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address }
    }

    /// Returns its current and its maximum memory, in megabytes.
    fn memory(&self) -> (u64, u64) {
        let path = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(path).expect("a process of Linux");
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kilobytes = line.and_then(|line| line.split_whitespace().next());
            kilobytes
                .and_then(|word| word.parse().ok())
                .expect("a number")
        };
        (field("VmRSS:") / 1024, field("VmHWM:") / 1024)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("an exit status");
    }
}

/// Returns whether the goals are reached with `clients` clients of each kind.
async fn measure(service: &Service, clients: usize, span: Duration) -> bool {
    let address = service.address;
    let idle = probe(address, Duration::from_secs(2)).await;
    println!("without load: /healthz {idle}; {} MB", service.memory().0);
    let shows = batch(|number| format!("GET /locks/{number}"));
    let acquires = batch(|number| format!("POST /locks/{number}?nonce=n&ttl=1s"));
    let kinds = [
        ("lists", get("/locks?limit=1000&bodies=full")),
        ("cut lists", get("/locks?limit=1000")),
        ("claims", post("/claims?state=NEW&limit=1000&ttl=1s", "")),
        ("batches of shows", shows),
        ("batches of acquires", acquires),
    ];
    let mut hostile = JoinSet::new();
    let mut counts = Vec::new();
    for (kind, request) in kinds {
        let count: Arc<Counts> = Arc::default();
        for _ in 0..clients {
            hostile.spawn(repeat(address, request.clone(), count.clone()));
        }
        counts.push((kind, count));
    }
    for _ in 0..clients {
        hostile.spawn(read_nothing(address));
    }
    let began = Instant::now();
    let under_attack = probe(address, span).await;
    for (kind, count) in counts {
        println!(
            "{clients} clients with {kind}: {count} in {:?}",
            began.elapsed()
        );
    }
    let (now, max) = service.memory();
    hostile.shutdown().await;
    println!("and {clients} slow readers: /healthz {under_attack}; {now} MB, {max} MB at most");
    let passed = max < MEMORY_GOAL && under_attack.p99 < LATENCY_GOAL;
    println!(
        "goals: {MEMORY_GOAL} MB and {LATENCY_GOAL:?}: {}",
        if passed { "reached" } else { "missed" }
    );
    passed
}

/// Puts items with the longest bodies. Every fifth body is six times as long in JSON.
async fn fill(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    for number in 0..ITEMS {
        let text = if number % 5 == 0 { "\u{1}" } else { "x" };
        let request = post(
            &format!("/items/{number}?state=NEW"),
            &text.repeat(64 * 1024),
        );
        let status = exchange(&mut stream, request.as_bytes()).await;
        assert_eq!(status.expect("an answer"), 200);
    }
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

fn post(target: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// Returns a batch of the maximum number of requests.
fn batch(line: impl Fn(usize) -> String) -> String {
    let requests = (0..256).map(|number| {
        let line = line(number);
        let (method, target) = line.split_once(' ').expect("a method");
        serde_json::json!({"method": method, "target": target})
    });
    let requests = serde_json::json!({ "requests": requests.collect::<Vec<_>>() });
    post("/requests", &requests.to_string())
}

/// Sends a request, reads the answer, and returns its status.
async fn exchange(stream: &mut TcpStream, request: &[u8]) -> std::io::Result<u16> {
    stream.write_all(request).await?;
    let mut bytes = Vec::new();
    let head = loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let text = std::str::from_utf8(&bytes[..head]).expect("text");
    let length = { text.lines() }.find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |length| length.parse().expect("a number"));
    let status = text[9..12].parse().expect("a status");
    let mut left = (head + length).saturating_sub(bytes.len());
    let mut buffer = vec![0; 64 * 1024];
    while left > 0 {
        let max = left.min(buffer.len());
        match stream.read(&mut buffer[..max]).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => left -= read,
        }
    }
    Ok(status)
}

/// The results of requests.
#[derive(Default)]
struct Counts {
    done: AtomicU64,
    refused: AtomicU64,
    closed: AtomicU64,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [done, refused, closed] = [&self.done, &self.refused, &self.closed];
        let [done, refused, closed] =
            [done, refused, closed].map(|count| count.load(Ordering::Relaxed));
        write!(f, "{done} answered, {refused} refused, {closed} closed")
    }
}

/// Sends the same request repeatedly.
async fn repeat(address: SocketAddr, request: String, counts: Arc<Counts>) {
    loop {
        let Ok(mut stream) = TcpStream::connect(address).await else {
            continue;
        };
        loop {
            let count = match exchange(&mut stream, request.as_bytes()).await {
                Ok(200) => &counts.done,
                Ok(_) => &counts.refused,
                Err(_) => &counts.closed,
            };
            count.fetch_add(1, Ordering::Relaxed);
            if std::ptr::eq(count, &counts.closed) {
                break;
            }
        }
    }
}

/// Requests many pages repeatedly, and reads none of them.
async fn read_nothing(address: SocketAddr) {
    let pages = get("/locks?limit=1000&bodies=full").repeat(20);
    loop {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4_096).expect("set");
        let Ok(mut stream) = socket.connect(address).await else {
            continue;
        };
        let _ = stream.write_all(pages.as_bytes()).await;
        let closed = async {
            let mut byte = [0];
            while stream.peek(&mut byte).await.is_ok_and(|read| read > 0) {
                tokio::time::sleep(Duration::from_millis(100)).await;
                // Unread bytes hide that the connection is closed, so write to find out.
                if stream.write_all(b"\r\n").await.is_err() {
                    break;
                }
            }
        };
        closed.await;
    }
}

/// The latencies of `/healthz`.
struct Latencies {
    median: Duration,
    p99: Duration,
    max: Duration,
    count: usize,
}

impl std::fmt::Display for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            median,
            p99,
            max,
            count,
        } = self;
        write!(
            f,
            "median {median:?}, p99 {p99:?}, at most {max:?} ({count} probes)"
        )
    }
}

async fn probe(address: SocketAddr, span: Duration) -> Latencies {
    let (end, mut took) = (Instant::now() + span, Vec::new());
    let request = get("/healthz");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    while Instant::now() < end {
        let start = Instant::now();
        let status = exchange(&mut stream, request.as_bytes()).await;
        assert_eq!(status.expect("an answer"), 200);
        took.push(start.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    took.sort_unstable();
    Latencies {
        median: took[took.len() / 2],
        p99: took[took.len() * 99 / 100],
        max: took[took.len() - 1],
        count: took.len(),
    }
}
