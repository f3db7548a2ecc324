//! A service that very many connect to, in a test of its own: it leaves little of a machine to others.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What each of them sends before it falls silent: nothing, half a head, half a body, or a whole request.
const SAID: [&str; 4] = [
    "",
    "POST /locks/crowd?nonce=n HTTP/1.1\r\nHost: ",
    "POST /locks/job/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf",
    "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
];

/// The most memory that each may cost, in KiB.
const MOST_KIB: usize = 64;

/// A service in memory, with no more file descriptors at first than a service is usually given; killed when dropped.
struct Service {
    process: Child,
    address: String,
}

impl Service {
    fn start() -> Self {
        // All of the crowd has one address.
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
        // Nobody reads what it says from here on, and nobody may stop it from saying it.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            process,
            address: address.expect("it says where it listens"),
        }
    }

    fn ask(&self, method: &str, target: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = "Host: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        let request = format!("{method} {target} HTTP/1.1\r\n{head}");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn metric(&self, name: &str) -> u64 {
        let page = self.ask("GET", "/metrics");
        let mut lines = page.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(metric, _)| *metric == name);
        found.expect("a metric").1.parse().expect("a number")
    }

    /// The memory that it takes up, in KiB.
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
        self.process.kill().expect("it was running");
        self.process.wait().expect("it ends");
    }
}

#[test]
fn whoever_does_not_read_its_events_costs_little() {
    const READERS: usize = 100;
    const CHANGES: usize = 12_000;
    /// The most memory that each may cost, in KiB: what was handed to it and is on its way.
    const EACH_KIB: usize = 160;
    /// The most that all of it may cost, in KiB: the locks, and what is kept for those who come back.
    const ALL_KIB: usize = 40 * 1024;
    let service = Service::start();
    let mut crowd = Vec::new();
    for _ in 0..READERS {
        let mut stream = TcpStream::connect(&service.address).unwrap();
        let subscribe = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(subscribe).unwrap();
        // One byte of it, and no more.
        stream.read_exact(&mut [0]).unwrap();
        crowd.push(stream);
    }
    let before = service.memory();
    // On one connection, with names of 400 bytes.
    let mut caller = TcpStream::connect(&service.address).unwrap();
    let mut answers = BufReader::new(caller.try_clone().unwrap());
    for turn in 0..CHANGES {
        let target = format!("/locks/{turn:0400}?nonce=n");
        let head = "Host: localhost\r\nContent-Length: 0\r\n\r\n";
        let request = format!("POST {target} HTTP/1.1\r\n{head}");
        caller.write_all(request.as_bytes()).unwrap();
        assert_eq!(answer(&mut answers), "HTTP/1.1 200 OK");
    }
    let grown = service.memory().saturating_sub(before);
    println!("{grown} KiB, with {READERS} that have not read any of {CHANGES} events");
    assert!(grown < ALL_KIB + READERS * EACH_KIB, "{grown} KiB");
    // They are still there, or were disconnected for not reading.
    let there = service.metric("leasehold_event_subscribers")
        + service.metric("leasehold_stalled_connections_total");
    assert_eq!(there, READERS as u64);
}

/// The first line of an answer, which is read to its end.
fn answer(from: &mut impl BufRead) -> String {
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
fn ten_thousand_connections_keep_nobody_out() {
    let (_, descriptors) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors).unwrap();
    // As many as there can be, where there cannot be so many.
    let many = descriptors.saturating_sub(500).min(10_000);
    let service = Service::start();
    let before = service.memory();
    let mut crowd = Vec::new();
    for (said, _) in SAID.iter().cycle().zip(0..many) {
        let mut stream = TcpStream::connect(&service.address).unwrap();
        stream.write_all(said.as_bytes()).unwrap();
        if said.starts_with("GET") {
            // No faster than the service accepts: whoever finds its queue full tries again a second later.
            stream.read_exact(&mut [0]).unwrap();
        }
        crowd.push(stream);
    }
    let each = service.memory().saturating_sub(before) / crowd.len();
    println!("{each} KiB for each connection");
    assert!(each < MOST_KIB, "{each} KiB for each connection");
    for turn in 0..50 {
        let granted = service.ask("POST", &format!("/locks/{turn}?nonce=n"));
        assert!(granted.starts_with("HTTP/1.1 200"), "{granted}");
        let held = service.ask("POST", &format!("/locks/{turn}?nonce=other"));
        assert!(held.starts_with("HTTP/1.1 409"), "{held}");
    }
    let open = service.metric("leasehold_connections");
    // Half a body is waited for ten seconds, the others may stay for a minute.
    assert!(open > many / 2, "{open} of {many} are connected");
}
