//! Hostile clients and other protocols: their connections are closed, and other clients are served meanwhile.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::engine::Engine;
use leasehold::store;
use leasehold_server::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::common::{Answer, Server, TIMEOUT};
use crate::subscriber::Subscriber;

/// The most bytes that a flood may send before its connection is closed, including the buffers of the system.
const FLOOD_BYTES: usize = 32 * 1024 * 1024;

/// Starts a service with timeouts of a second.
async fn start(max_connections: usize) -> Server {
    let mut config = Config::default();
    config.head_timeout = Duration::from_secs(1);
    config.body_timeout = Duration::from_secs(1);
    config.write_timeout = Duration::from_secs(1);
    config.max_connections = max_connections;
    let store = store::open("memory:").await.unwrap();
    Server::start_with(Engine::start(store).await.unwrap(), config).await
}

/// Acquires and releases a lock, each on a new connection, and checks every answer.
async fn use_a_lock(server: &Server, turn: usize) {
    let lock = format!("/locks/honest-{turn}");
    let fence = server.acquire(&format!("{lock}?nonce=n")).await;
    let other = server.post(&format!("{lock}?nonce=other")).await;
    other.problem(409, "held");
    let released = server.delete(&format!("{lock}/{fence}")).await.ok();
    assert_eq!(released.json["released"], true);
}

/// Waits until all hostile clients have ended, and checks that another client is served meanwhile.
async fn serve_others_meanwhile<T: 'static>(server: &Server, mut hostile: JoinSet<T>) -> Vec<T> {
    let mut ends = Vec::new();
    let mut turns = 0;
    let ending = async {
        while let Some(end) = hostile.join_next().await {
            ends.push(end.unwrap());
        }
    };
    let serving = async {
        loop {
            use_a_lock(server, turns).await;
            turns += 1;
        }
    };
    tokio::select! {
        ended = tokio::time::timeout(TIMEOUT, ending) => ended.expect("all of them are disconnected"),
        () = serving => unreachable!("the loop does not end"),
    }
    assert!(turns > 0, "another client was served meanwhile");
    use_a_lock(server, turns + 1).await;
    ends
}

/// Reads everything until the connection is closed.
async fn read_all(reading: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    // A reset closes the connection as well.
    let _ = reading.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).expect("answers are UTF-8")
}

/// Sends bytes, and reads everything until the connection is closed.
async fn send(address: SocketAddr, bytes: Vec<u8>) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The service may close the connection before all is sent.
    let _ = stream.write_all(&bytes).await;
    read_all(&mut stream).await
}

/// Sends `start`, and then `more` until the connection is closed. Returns what was received, and the number of bytes that
/// were sent.
async fn keep_sending(
    address: SocketAddr,
    start: String,
    more: Vec<u8>,
    pause: Duration,
) -> (String, usize) {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let mut answer = tokio::spawn(async move { read_all(&mut reading).await });
    let total = AtomicUsize::new(0);
    let writing = async {
        let mut next = start.as_bytes();
        while total.load(Ordering::Relaxed) < 2 * FLOOD_BYTES {
            if writing.write_all(next).await.is_err() {
                break;
            }
            total.fetch_add(next.len(), Ordering::Relaxed);
            next = &more;
            tokio::time::sleep(pause).await;
        }
    };
    let answer = tokio::select! {
        answer = &mut answer => answer,
        () = writing => (&mut answer).await,
    };
    (answer.unwrap(), total.load(Ordering::Relaxed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_senders_are_disconnected() {
    let server = start(10_000).await;
    let fence = server.acquire("/locks/job?nonce=n&ttl=1h").await;
    let update = format!("POST /locks/job/{fence} HTTP/1.1\r\nHost: localhost\r\n");
    let drips = [
        (
            "GET /locks HTTP/1.1\r\nHost: localhost\r\nX-Slow: ".to_owned(),
            "x",
            "",
        ),
        ("GET /lo".to_owned(), "x", ""),
        (format!("{update}Content-Length: 9999\r\n\r\n"), "x", "408"),
        (
            format!("{update}Transfer-Encoding: chunked\r\n\r\n"),
            "1\r\nx\r\n",
            "408",
        ),
        (
            format!("{update}Transfer-Encoding: chunked\r\n\r\n1"),
            "0",
            "4",
        ),
        (
            format!("{update}Transfer-Encoding: chunked\r\n\r\n1;"),
            "x",
            "408",
        ),
    ];
    for (start, more, status) in drips {
        let mut hostile = JoinSet::new();
        for _ in 0..100 {
            let (start, more) = (start.clone(), more.as_bytes().to_vec());
            hostile.spawn(keep_sending(
                server.address,
                start,
                more,
                Duration::from_millis(50),
            ));
        }
        for (answer, _) in serve_others_meanwhile(&server, hostile).await {
            match status {
                "" => assert_eq!(answer, "", "{start}"),
                status => {
                    let expected = format!("HTTP/1.1 {status}");
                    assert!(answer.starts_with(&expected), "{start}: {answer}");
                }
            }
        }
    }
    let shown = server.get("/locks/job").await.ok();
    assert_eq!(shown.text("body"), "", "no part of a body was written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_are_disconnected() {
    let server = start(10_000).await;
    let fence = server.acquire("/locks/job?nonce=n&ttl=1h").await;
    let update = format!("POST /locks/job/{fence} HTTP/1.1\r\nHost: localhost\r\n");
    let kilobyte = "x".repeat(1_024);
    let chunk = format!("400\r\n{kilobyte}\r\n").repeat(64);
    let many_chunks = "1\r\nx\r\n".repeat(10_000);
    let header = "X-Header: x\r\n".repeat(1_000);
    let floods = [
        // Bodies without an end, or larger than allowed.
        (
            format!("{update}Transfer-Encoding: chunked\r\n\r\n"),
            &chunk,
            "4",
        ),
        (
            format!("{update}Transfer-Encoding: chunked\r\n\r\n"),
            &many_chunks,
            "4",
        ),
        (
            format!("{update}Content-Length: 99999999999\r\n\r\n"),
            &kilobyte,
            "4",
        ),
        (
            format!("{update}Transfer-Encoding: chunked\r\n\r\n1;"),
            &kilobyte,
            "4",
        ),
        (
            format!("{update}Transfer-Encoding: chunked\r\n\r\n0\r\n"),
            &header,
            "4",
        ),
        // Heads without an end.
        ("GET /".to_owned(), &kilobyte, "4"),
        ("GET /locks HTTP/1.1\r\n".to_owned(), &header, "431"),
        (
            "GET /locks HTTP/1.1\r\nX-Long: ".to_owned(),
            &kilobyte,
            "431",
        ),
        (String::new(), &kilobyte, "4"),
    ];
    let mut hostile = JoinSet::new();
    for (start, more, status) in floods {
        for _ in 0..3 {
            let (start, more) = (start.clone(), more.clone().into_bytes());
            let flood = keep_sending(server.address, start.clone(), more, Duration::ZERO);
            hostile.spawn(async move { (start, status, flood.await) });
        }
    }
    for (start, status, (answer, total)) in serve_others_meanwhile(&server, hostile).await {
        assert!(total < FLOOD_BYTES, "{start}: {total} bytes were taken");
        // A client that keeps sending may be reset before it reads the answer.
        let expected = format!("HTTP/1.1 {status}");
        assert!(
            answer.is_empty() || answer.starts_with(&expected),
            "{start}: {answer}"
        );
    }
    assert_eq!(server.get("/locks/job").await.ok().text("body"), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_http_is_refused_and_changes_nothing() {
    let server = start(10_000).await;
    let line = "POST /locks/bad?nonce=n HTTP/1.1\r\n";
    let head = format!("{line}Host: localhost\r\n");
    let long = "x".repeat(100_000);
    let nothing_more = "0\r\n\r\n";
    let bad = [
        "\0\0\0\0\r\n\r\n".to_owned(),
        "\r\n\r\n\r\n\r\n".to_owned(),
        "hello\r\n\r\n".to_owned(),
        // HTTP/2, HTTP/0.9, TLS, SMTP, Redis.
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\u{12}\u{4}\0\0\0\0\0".to_owned(),
        "POST /locks/bad?nonce=n\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}\u{3}\u{3}".to_owned(),
        "EHLO mail.example\r\n".to_owned(),
        "*1\r\n$4\r\nPING\r\n".to_owned(),
        line.replace("1.1", "3.7") + "Host: localhost\r\n\r\n",
        line.replace("1.1", "1.1.1") + "Host: localhost\r\n\r\n",
        format!("POST /locks/{long}?nonce=n HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        "POST /locks/bad\0?nonce=n HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
        "POST  /locks/bad?nonce=n HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
        "PO\u{1}ST /locks/bad?nonce=n HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
        // Invalid headers.
        format!("{line}Host\r\n\r\n"),
        format!("{line}: x\r\n\r\n"),
        format!("{line}Ho st: x\r\n\r\n"),
        format!("{line}Host : x\r\n\r\n"),
        format!("{line}Host: localhost\r\n folded\r\n\r\n"),
        format!("{line}Host: local\0host\r\n\r\n"),
        format!("{line}Host: local\rhost\r\n\r\n"),
        // Not one valid host.
        format!("{line}\r\n"),
        format!("{line}Host:\r\n\r\n"),
        format!("{line}Host: local host\r\n\r\n"),
        format!("{line}Host: me@localhost\r\n\r\n"),
        format!("{line}Host: [::1\r\n\r\n"),
        format!("{head}Host: localhost\r\n\r\n"),
        format!(
            "{line}Host: localhost\r\n{}\r\n",
            "X-Header: x\r\n".repeat(200)
        ),
        format!("{line}Host: localhost\r\nX-Long: {long}\r\n\r\n"),
        // Invalid or contradictory lengths.
        format!("{head}Content-Length: -1\r\n\r\n"),
        format!("{head}Content-Length: +1\r\n\r\nx"),
        format!("{head}Content-Length: 0x1\r\n\r\nx"),
        format!("{head}Content-Length: 99999999999999999999\r\n\r\n"),
        format!("{head}Content-Length: 1, 2\r\n\r\nxy"),
        format!("{head}Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy"),
        format!("{head}Transfer-Encoding: gzip\r\n\r\n{nothing_more}"),
        format!("{head}Transfer-Encoding: chunked, gzip\r\n\r\n{nothing_more}"),
        format!("{head}Transfer-Encoding: xchunked\r\n\r\n{nothing_more}"),
        head.replace("1.1", "1.0") + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        format!("{head}Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nx"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n1\r\nxyz\r\n{nothing_more}"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n"),
    ];
    let mut hostile = JoinSet::new();
    for text in bad {
        let sending = send(server.address, text.clone().into_bytes());
        hostile.spawn(async move { (text, sending.await) });
    }
    for (text, answer) in serve_others_meanwhile(&server, hostile).await {
        let text: String = text.chars().take(200).collect();
        let refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
        assert!(refused, "{text:?}: {answer}");
        let answers = answer.matches("HTTP/1.1").count();
        assert!(answers <= 1, "{text:?}: nothing is read after it: {answer}");
    }
    server.get("/locks/bad").await.problem(404, "not-found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_hides_in_the_body_of_another() {
    let server = start(10_000).await;
    let hidden =
        "POST /locks/hidden?nonce=n HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    let put = "PUT /items/i?state=NEW HTTP/1.1\r\nHost: localhost\r\n";
    for (head, body) in [
        (
            format!("Content-Length: {}\r\n", hidden.len()),
            hidden.to_owned(),
        ),
        (
            format!(
                "Content-Length: {}\r\nTransfer-Encoding: chunked\r\n",
                5 + hidden.len()
            ),
            format!("0\r\n\r\n{hidden}"),
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n".to_owned(),
            format!("0\r\n\r\n{hidden}"),
        ),
    ] {
        let request = format!("{put}{head}\r\n{body}");
        let answer = send(server.address, request.clone().into_bytes()).await;
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{request}: {answer}");
        server.get("/locks/hidden").await.problem(404, "not-found");
    }
    // Bytes beyond the announced length are the next request, which is invalid.
    let answer = send(
        server.address,
        format!("{put}Content-Length: 4\r\n\r\nbodyand more\r\n\r\n").into_bytes(),
    );
    let answer = answer.await;
    let (first, second) = answer[8..].split_once("HTTP/1.1 ").unwrap();
    assert!(
        first.starts_with(" 200") && second.starts_with("400"),
        "{answer}"
    );
    assert_eq!(server.get("/locks/i").await.ok().text("body"), "body");
}

/// A pseudorandom generator with the same sequence in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_bytes_are_answered_or_disconnected() {
    let server = start(10_000).await;
    let mut random = Random(1);
    let good = "PUT /items/x?state=NEW&nonce=n HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nX-Header: y\r\n\r\n\
                4\r\nbody\r\n0\r\n\r\nGET /locks/x HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut hostile = JoinSet::new();
    for turn in 0..600 {
        let mut bytes = good.as_bytes().to_vec();
        if turn % 3 == 0 {
            bytes = (0..random.below(4_096))
                .map(|_| random.below(256) as u8)
                .collect();
        }
        for _ in 0..1 + random.below(4) {
            let (at, byte) = (random.below(bytes.len().max(1)), random.below(256) as u8);
            match random.below(3) {
                0 => bytes.insert(at.min(bytes.len()), byte),
                1 => drop(bytes.drain(at.min(bytes.len())..(at + 8).min(bytes.len()))),
                _ => bytes
                    .iter_mut()
                    .skip(at)
                    .take(1)
                    .for_each(|old| *old = byte),
            }
        }
        let sending = send(server.address, bytes.clone());
        hostile.spawn(async move { (bytes, sending.await) });
    }
    for (bytes, answer) in serve_others_meanwhile(&server, hostile).await {
        let text = String::from_utf8_lossy(&bytes);
        assert!(!answer.contains("HTTP/1.1 5"), "{text:?}: {answer}");
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 "),
            "{text:?}: {answer}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_do_not_read_answers_are_disconnected() {
    let server = start(10_000).await;
    let mut hostile = JoinSet::new();
    for _ in 0..10 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        hostile.spawn(async move {
            let ask = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
            let mut total = 0;
            while total < FLOOD_BYTES && stream.write_all(ask.as_bytes()).await.is_ok() {
                total += ask.len();
            }
            total
        });
    }
    for total in serve_others_meanwhile(&server, hostile).await {
        assert!(total < FLOOD_BYTES, "{total}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_are_displaced_and_waiting_ones_are_not() {
    let server = start(20).await;
    let fence = server.acquire("/locks/job?nonce=n&ttl=1h").await;
    let mut waiting = server
        .begin("POST", "/locks/job?nonce=next&wait=1m", "", b"")
        .await;
    server.wait_for_waiters("job", 1).await;
    let mut subscriber = Subscriber::new(&server, "?prefix=job", None).await;
    // Each of these stays for a second, and is replaced as soon as it is closed.
    let address = server.address;
    let crowding = tokio::spawn(async move {
        let mut crowd = JoinSet::new();
        loop {
            while crowd.len() < 30 {
                crowd.spawn(send(address, b"GET /locks HT".to_vec()));
            }
            crowd.join_next().await;
        }
    });
    for turn in 0..3 {
        tokio::time::timeout(TIMEOUT, use_a_lock(&server, turn))
            .await
            .unwrap();
    }
    server.delete(&format!("/locks/job/{fence}")).await.ok();
    let mut bytes = Vec::new();
    waiting.read_to_end(&mut bytes).await.unwrap();
    Answer::parse(&bytes).ok();
    subscriber.expect("released", "job").await;
    crowding.abort();
}
