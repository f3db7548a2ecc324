//! A service with very many connections. A separate test target, because it uses most of the machine.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What each connection sends before it becomes idle: nothing, half a head, half a body, or a complete request.
const SENT: [&str; 4] = [
    "",
    "POST /locks/crowd?nonce=n HTTP/1.1\r\nHost: ",
    "POST /locks/job/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf",
    "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
];

/// The maximum memory per connection, in KiB.
const MAX_KIB: usize = 64;

/// A service in memory that starts with the usual soft limit of file descriptors; killed when this is dropped.
struct Service {
    process: Child,
    address: String,
}

impl Service {
    fn start() -> Self {
        // All connections come from one address.
        let script = r#"ulimit -Sn 1024; exec "$0" serve --listen 127.0.0.1:0 --store memory: --max-connections-per-address 10000"#;
        let mut process = Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_leasehold")])
            .env("NO_COLOR", "1")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the service starts");
        let log = BufReader::new(process.stderr.take().expect("piped"));
        let mut lines = log.lines().map_while(Result::ok);
        let address = lines.find_map(|line| Some(line.split_once("http://")?.1.trim().to_owned()));
        // Keeps reading the log, so that the service does not block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            process,
            address: address.expect("the service logs its address"),
        }
    }

    fn send(&self, method: &str, target: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = "Host: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        let request = format!("{method} {target} HTTP/1.1\r\n{head}");
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    fn metric(&self, name: &str) -> u64 {
        let page = self.send("GET", "/metrics");
        let mut lines = page.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(metric, _)| *metric == name);
        found.expect("a metric").1.parse().expect("a number")
    }

    /// Returns the resident memory of the service, in KiB.
    fn memory(&self) -> usize {
        let status = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(status).unwrap();
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim_end_matches("kB").trim().parse().unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.process.kill().expect("the service was running");
        self.process.wait().expect("the service ends");
    }
}

#[test]
fn subscribers_that_do_not_read_use_bounded_memory() {
    const SUBSCRIBERS: usize = 100;
    const CHANGES: usize = 12_000;
    /// The maximum memory per subscriber, in KiB: events that were sent and not read.
    const EACH_KIB: usize = 160;
    /// The maximum memory for the rest, in KiB: the locks, and the events kept for subscribers that reconnect.
    const REST_KIB: usize = 40 * 1024;
    let service = Service::start();
    let mut streams = Vec::new();
    for _ in 0..SUBSCRIBERS {
        let mut stream = TcpStream::connect(&service.address).unwrap();
        let subscribe = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(subscribe).unwrap();
        // The subscriber reads a single byte.
        stream.read_exact(&mut [0]).unwrap();
        streams.push(stream);
    }
    let before = service.memory();
    // On one connection, with names of 400 bytes.
    let mut caller = TcpStream::connect(&service.address).unwrap();
    let mut responses = BufReader::new(caller.try_clone().unwrap());
    for turn in 0..CHANGES {
        let target = format!("/locks/{turn:0400}?nonce=n");
        let head = "Host: localhost\r\nContent-Length: 0\r\n\r\n";
        let request = format!("POST {target} HTTP/1.1\r\n{head}");
        caller.write_all(request.as_bytes()).unwrap();
        assert_eq!(read_response(&mut responses), "HTTP/1.1 200 OK");
    }
    let grown = service.memory().saturating_sub(before);
    println!(
        "{grown} KiB, with {SUBSCRIBERS} subscribers that have not read any of {CHANGES} events"
    );
    assert!(grown < REST_KIB + SUBSCRIBERS * EACH_KIB, "{grown} KiB");
    // The subscribers are still connected, or were disconnected because they do not read.
    let accounted = service.metric("leasehold_event_subscribers")
        + service.metric("leasehold_stalled_connections_total");
    assert_eq!(accounted, SUBSCRIBERS as u64);
}

/// Reads a whole response, and returns its first line.
fn read_response(from: &mut impl BufRead) -> String {
    let mut line = || {
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let first = line();
    let mut length = 0;
    loop {
        match line().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", bytes)) => length = bytes.parse().unwrap(),
            Some(_) => {}
            None => break,
        }
    }
    from.read_exact(&mut vec![0; length]).unwrap();
    first
}

#[test]
fn service_answers_with_ten_thousand_open_connections() {
    let (_, descriptors) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors).unwrap();
    // Fewer if the limit of file descriptors does not allow ten thousand.
    let many = descriptors.saturating_sub(500).min(10_000);
    let service = Service::start();
    let before = service.memory();
    let mut streams = Vec::new();
    for (sent, _) in SENT.iter().cycle().zip(0..many) {
        let mut stream = TcpStream::connect(&service.address).unwrap();
        stream.write_all(sent.as_bytes()).unwrap();
        if sent.starts_with("GET") {
            // Connects no faster than the service accepts: with a full backlog, the kernel retries after a second.
            stream.read_exact(&mut [0]).unwrap();
        }
        streams.push(stream);
    }
    let each = service.memory().saturating_sub(before) / streams.len();
    println!("{each} KiB per connection");
    assert!(each < MAX_KIB, "{each} KiB per connection");
    for turn in 0..50 {
        let granted = service.send("POST", &format!("/locks/{turn}?nonce=n"));
        assert!(granted.starts_with("HTTP/1.1 200"), "{granted}");
        let held = service.send("POST", &format!("/locks/{turn}?nonce=other"));
        assert!(held.starts_with("HTTP/1.1 409"), "{held}");
    }
    let open = service.metric("leasehold_connections");
    // The service waits ten seconds for the rest of a body; other idle connections may stay for a minute.
    assert!(open > many / 2, "{open} of {many} are connected");
}
