//! The error texts of the API, in one file for review: `errors.txt`.
//!
//! After an intended change of a text, write the file again and review its diff:
//!
//! ```sh
//! LEASEHOLD_UPDATE_SNAPSHOTS=1 cargo test -p leasehold-server --test http errors
//! ```

mod requests;
mod situations;

use std::fmt::Write as _;

use leasehold::wire::ProblemType;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{Answer, Server, TIMEOUT};
use crate::glock;
use crate::guarded::Guarded;

const UPDATE: &str = "LEASEHOLD_UPDATE_SNAPSHOTS";
const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http/errors.txt");

/// Values that requests name as `$NAME`.
#[derive(Default)]
struct Values(Vec<(&'static str, Vec<u8>)>);

impl Values {
    /// The values that every server has.
    fn new() -> Self {
        let lease = json!({"name": "job", "fence": 1});
        let request = json!({"method": "GET", "target": "/locks/job"});
        let names: Vec<_> = (0..65).map(|number| number.to_string()).collect();
        let mut values = Self::default();
        values.set("LONG", "x".repeat(600));
        values.set("BODY", "x".repeat(70_000));
        values.set("LATIN", b"caf\xe9");
        values.set("LEASES", json!(vec![lease; 1_001]).to_string());
        values.set("REQUESTS", json!(vec![request; 257]).to_string());
        values.set("NAMES", json!(names).to_string());
        values
    }

    fn set(&mut self, name: &'static str, value: impl Into<Vec<u8>>) {
        self.0.push((name, value.into()));
    }

    fn fill(&self, text: &str) -> Vec<u8> {
        let mut parts = text.split('$');
        let mut filled = parts.next().unwrap_or_default().as_bytes().to_vec();
        for part in parts {
            let end = part.find(|letter: char| !letter.is_ascii_uppercase());
            let (name, rest) = part.split_at(end.unwrap_or(part.len()));
            let value = self.0.iter().find(|(known, _)| *known == name);
            let (_, value) = value.unwrap_or_else(|| panic!("no value for ${name}"));
            filled.extend_from_slice(value);
            filled.extend_from_slice(rest.as_bytes());
        }
        filled
    }

    /// Writes `METHOD TARGET | HEADER: VALUE < BODY` as HTTP. `no Host` in place of a header leaves out the `Host` header.
    fn to_http(&self, request: &str) -> Vec<u8> {
        let (head, body) = request.split_once(" < ").unwrap_or((request, ""));
        let mut parts = head.split(" | ");
        let mut http = self.fill(parts.next().unwrap_or_default());
        http.extend_from_slice(b" HTTP/1.1\r\nConnection: close\r\n");
        let headers: Vec<_> = parts.collect();
        let has = |name: &str| headers.iter().any(|header| header.starts_with(name));
        for header in headers.iter().filter(|header| **header != "no Host") {
            http.extend_from_slice(&self.fill(header));
            http.extend_from_slice(b"\r\n");
        }
        if !has("Host") && !has("no Host") {
            http.extend_from_slice(b"Host: localhost\r\n");
        }
        let body = self.fill(body);
        if !has("Content-Length") && !has("Transfer-Encoding") {
            http.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
        }
        http.extend_from_slice(b"\r\n");
        http.extend_from_slice(&body);
        http
    }
}

/// Sends bytes, and returns the answer after which the service closes the connection.
async fn send(server: &Server, bytes: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // The service may refuse a large request before it has read all of it.
    let _ = stream.write_all(bytes).await;
    read_answer_or_reset(stream).await
}

/// Reads an answer, after which the connection is closed or reset.
async fn read_answer_or_reset(mut stream: TcpStream) -> Answer {
    let mut answer = Vec::new();
    let reading = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut answer));
    let _ = reading.await.expect("an answer in bounded time");
    Answer::parse(&answer)
}

/// Collects transcripts of refused requests.
#[derive(Default)]
struct Snapshot(String);

impl Snapshot {
    fn begin_section(&mut self, subject: &str) {
        write!(self.0, "## {subject}\n\n").unwrap();
    }

    /// Adds a request and the problem documents of its answer.
    #[track_caller]
    fn add(&mut self, request: &str, answer: &Answer) {
        writeln!(self.0, "$ {request}").unwrap();
        let problems = problems_in(answer);
        assert!(!problems.is_empty(), "{request}: not refused: {answer:?}");
        for (place, problem) in problems {
            let text = |member: &str| problem[member].as_str().expect("a problem document");
            let (kind, title, status) = (text("type"), text("title"), &problem["status"]);
            let detail = without_durations(text("detail"));
            writeln!(self.0, "{place}{status} {kind}: {title}\n{detail}").unwrap();
        }
        self.0.push('\n');
    }

    /// Sends requests to a server, and adds each with its answer.
    async fn add_all(&mut self, server: &Server, values: &Values, requests: &[&str]) {
        for request in requests {
            let answer = send(server, &values.to_http(request)).await;
            self.add(request, &answer);
        }
    }
}

/// Returns the problem documents of an answer, each with its place in an answer to several requests.
fn problems_in(answer: &Answer) -> Vec<(String, &Value)> {
    if answer.json["type"].is_string() {
        assert_eq!(answer.json["status"], answer.status, "{answer:?}");
        return vec![(String::new(), &answer.json)];
    }
    let mut problems = Vec::new();
    for (list, member) in [("leases", "problem"), ("answers", "body")] {
        let parts = answer.json[list].as_array().into_iter().flatten();
        let parts = parts
            .enumerate()
            .map(|(index, part)| (index, &part[member]));
        let refused = parts.filter(|(_, part)| part["type"].is_string());
        problems.extend(refused.map(|(index, part)| (format!("{list}[{index}]: "), part)));
    }
    problems
}

/// Replaces measured durations, such as `59.9s`, by `DURATION`. Durations in examples are in backticks and stay.
fn without_durations(detail: &str) -> String {
    let is_duration = |word: &str| {
        let unit = word.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        unit.len() < word.len() && ["ns", "µs", "ms", "s"].contains(&unit)
    };
    let words = detail.split(' ').map(|word| {
        let bare = word.trim_end_matches([',', ';', ':']);
        match is_duration(bare) {
            true => word.replacen(bare, "DURATION", 1),
            false => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Starts a service without access control, on which names are held and expired.
async fn open_service() -> (Server, Values) {
    let server = Server::start().await;
    let mut values = Values::new();
    let fence = async |target: &str| server.acquire(target).await.to_string();
    let held = "/locks/nightly?nonce=mine&owner=web-1&ttl=1h";
    values.set("FENCE", fence(held).await);
    values.set(
        "EXPIRED",
        glock::acquire_expired(&server, "brief").await.to_string(),
    );
    fence("/gates/shut?every=1h&owner=web-1").await;
    fence("/locks/limited?nonce=n&owner=web-1&ttl=1h&mode=shared&limit=2").await;
    fence("/locks/shared?nonce=n&owner=web-1&ttl=1h&mode=shared").await;
    server.send("PUT", "/items/item?state=NEW", b"").await.ok();
    let claim = "/claims?state=NEW&owner=worker-1&ttl=1h";
    server.post(claim).await.ok();
    (server, values)
}

/// Starts a service with access control, and creates tokens.
async fn guarded_service() -> (Guarded, Values) {
    let guarded = Guarded::start().await;
    let mut values = Values::new();
    for (name, principal, scopes) in [
        ("CI", "ci", &["acquire:ci/", "read:ci/"][..]),
        (
            "TWO",
            "two",
            &["acquire:a/", "acquire:b/", "read:a/", "read:b/"],
        ),
        ("READER", "reader", &["read:"]),
        ("OTHER", "other", &["acquire:"]),
    ] {
        let token = guarded.token(principal, scopes).await;
        if name == "OTHER" {
            let held = "/locks/ci%2Fheld?nonce=n&owner=web-1&ttl=1h";
            let fence = guarded.post(held, &token).await.ok().fence();
            values.set("FENCE", fence.to_string());
        }
        values.set(name, token);
    }
    (guarded, values)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_texts_of_every_problem_type_match_the_snapshot() {
    let mut snapshot = Snapshot::default();
    let (open, values) = open_service().await;
    for (subject, requests) in requests::OPEN {
        snapshot.begin_section(subject);
        snapshot.add_all(&open, &values, requests).await;
    }
    snapshot.begin_section("Requests that are not HTTP");
    for request in requests::NOT_HTTP {
        let answer = send(&open, request.as_bytes()).await;
        snapshot.add(&request.escape_debug().to_string(), &answer);
    }
    let (guarded, values) = guarded_service().await;
    for (subject, requests) in requests::GUARDED {
        snapshot.begin_section(subject);
        snapshot.add_all(&guarded.server, &values, requests).await;
    }
    situations::add_to(&mut snapshot).await;

    let texts = "# The error texts of the API. Written by tests/http/errors.rs, which says how to update it.\n\n";
    let texts = texts.to_owned() + &snapshot.0;
    check_problem_types(&texts);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(SNAPSHOT, &texts).unwrap();
    }
    let expected = std::fs::read_to_string(SNAPSHOT).unwrap_or_default();
    assert!(
        texts == expected,
        "the error texts differ from tests/http/errors.txt:\n{}\nIf this is intended, write the file again with {UPDATE}=1 \
         and review its diff.",
        difference(&expected, &texts)
    );
}

/// Returns the first lines in which two texts differ.
fn difference(old: &str, new: &str) -> String {
    let mut last_request = "";
    let mut old = old.lines();
    for line in new.lines() {
        if line.starts_with("$ ") {
            last_request = line;
        }
        match old.next() {
            Some(expected) if expected == line => {}
            expected => {
                let expected = expected.unwrap_or("(end of file)");
                return format!("{last_request}\n  expected: {expected}\n  found:    {line}");
            }
        }
    }
    format!("missing: {:?}", old.next())
}

/// Checks that a snapshot has every problem type.
fn check_problem_types(texts: &str) {
    for kind in ProblemType::ALL {
        let (status, word, title) = (kind.status(), kind.as_str(), kind.title());
        let document = format!("{status} {word}: {title}");
        let is_there = texts.lines().any(|line| line.ends_with(&document));
        assert!(is_there, "add a request that is answered with {document:?}");
    }
}
