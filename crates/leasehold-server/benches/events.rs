//! The cost of a thousand subscribers: the latency of acquire and release with and without them, in one run.
//!
//! `cargo bench -p leasehold-server --bench events [-- SUBSCRIBERS CHANGES_A_SECOND SECONDS]`

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::engine::Engine;
use leasehold::{Client, Remote, store};
use leasehold_server::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The number of callers that acquire and release locks.
const CALLERS: usize = 8;
/// The number of measurements, of which the median is reported.
const ROUNDS: usize = 5;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|word| word != "--bench");
    let mut number = |default: usize| match arguments.next() {
        Some(word) => word.parse().expect("a number"),
        None => default,
    };
    if let Ok(address) = std::env::var("LEASEHOLD_BENCH_SUBSCRIBE") {
        // On one thread, because it shares the processors with the service.
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().expect("a runtime");
        return runtime.block_on(subscribe(address.parse().expect("an address"), number(0)));
    }
    let (subscribers, rate, seconds) = (number(1_000), number(1_000), number(4));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let span = Duration::from_secs(seconds as u64);
    let mut ratios = [(); ROUNDS].map(|()| runtime.block_on(measure(subscribers, rate, span)));
    ratios.sort_unstable_by(f64::total_cmp);
    let [min, .., max] = ratios;
    let median = ratios[ROUNDS / 2];
    println!("p99 with subscribers / p99 without: {median:.2} ({min:.2}-{max:.2})");
}

/// Opens `count` subscriptions, and prints the received bytes after a line on its input. Runs in a separate process, so that
/// the readers' cost is not the service's.
async fn subscribe(address: SocketAddr, count: usize) {
    let bytes = Arc::new(AtomicU64::new(0));
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let head = b"GET /events HTTP/1.1\r\nHost: bench\r\n\r\n";
        stream.write_all(head).await.expect("sent");
        let bytes = bytes.clone();
        tokio::spawn(async move {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                bytes.fetch_add(read as u64, Ordering::Relaxed);
            }
        });
    }
    println!("ready");
    tokio::task::spawn_blocking(|| {
        let _ = std::io::stdin().read_line(&mut String::new());
    })
    .await
    .expect("no panic");
    println!("{}", bytes.load(Ordering::Relaxed));
}

/// Returns the p99 with subscribers, divided by the p99 without.
async fn measure(subscribers: usize, rate: usize, span: Duration) -> f64 {
    let engine = Engine::start(store::open("memory:").await.expect("a store"));
    let engine = engine.await.expect("an engine");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let forever = std::future::pending();
    let service = tokio::spawn(leasehold_server::serve(
        listener,
        engine,
        Config::default(),
        forever,
    ));
    let url = format!("http://{address}");

    load(&url, rate, Duration::from_secs(2)).await;
    let without = load(&url, rate, span).await;
    println!("{rate} changes/s, no subscribers: {without}");
    let mut readers = Command::new(std::env::current_exe().expect("this program"))
        .arg(subscribers.to_string())
        .env("LEASEHOLD_BENCH_SUBSCRIBE", address.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut lines = BufReader::new(readers.stdout.take().expect("an output")).lines();
    assert_eq!(lines.next().expect("a line").expect("a line"), "ready");
    let with = load(&url, rate, span).await;
    println!("{rate} changes/s, {subscribers} subscribers: {with}");
    let mut input = readers.stdin.take().expect("an input");
    input.write_all(b"stop\n").expect("sent");
    let bytes: u64 = lines
        .next()
        .expect("a line")
        .expect("a line")
        .parse()
        .expect("bytes");
    readers.wait().expect("an exit status");
    service.abort();
    println!("subscribers received {} MB", bytes / 1_000_000);
    with.p99.as_secs_f64() / without.p99.as_secs_f64()
}

/// The latencies of acquire and release.
struct Latencies {
    median: Duration,
    p99: Duration,
    changes: usize,
}

impl std::fmt::Display for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            median,
            p99,
            changes,
        } = self;
        write!(f, "median {median:?}, p99 {p99:?} ({changes} changes)")
    }
}

/// Makes `rate` changes per second, half of them grants and half releases, and returns their latencies.
async fn load(url: &str, rate: usize, span: Duration) -> Latencies {
    let callers = (0..CALLERS).map(|caller| {
        let client = Client::new(Arc::new(Remote::connect(url).expect("a URL")));
        tokio::spawn(async move {
            let pause = Duration::from_secs(1) * (2 * CALLERS) as u32 / rate as u32;
            let mut due = Instant::now() + pause * caller as u32 / CALLERS as u32;
            let (end, mut took) = (due + span, Vec::new());
            while due < end {
                tokio::time::sleep_until(due.into()).await;
                let start = Instant::now();
                let lease = client.lease(format!("bench-{caller}")).acquire();
                let lease = lease.await.expect("granted");
                took.push(start.elapsed());
                let start = Instant::now();
                lease.release().await.expect("released");
                took.push(start.elapsed());
                due += pause;
            }
            took
        })
    });
    let mut took = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        took.extend(caller.await.expect("no panic"));
    }
    took.sort_unstable();
    Latencies {
        median: took[took.len() / 2],
        p99: took[took.len() * 99 / 100],
        changes: took.len(),
    }
}
