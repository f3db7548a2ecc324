//! Several requests on one connection: on the fast path, and by hyper from the first request that is not plain.

use std::time::Duration;

use leasehold::engine::Engine;
use leasehold::store;
use leasehold_server::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{Answer, Server, TIMEOUT};

/// Reads everything until the connection is closed.
async fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut bytes))
        .await
        .expect("it is closed in bounded time")
        .unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Reads one answer with a `Content-Length`.
async fn read_one(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut left = usize::MAX;
    while left > 0 {
        text.push(stream.read_u8().await.unwrap().into());
        left -= 1;
        if text.ends_with("\r\n\r\n") {
            let head = text.to_ascii_lowercase();
            let (_, length) = head.split_once("content-length: ").unwrap();
            left = length.lines().next().unwrap().parse().unwrap();
        }
    }
    text
}

fn statuses(answers: &str) -> Vec<&str> {
    let lines = answers.lines().filter(|line| line.contains("HTTP/1.1 "));
    lines
        .map(|line| {
            let (_, status) = line.split_once("HTTP/1.1 ").unwrap();
            &status[..3]
        })
        .collect()
}

const ACQUIRE: &str =
    "POST /locks/a?nonce=n HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
const SHOW: &str = "GET /locks/a HTTP/1.1\r\nHost: localhost\r\n\r\n";
const NOTHING: &str = "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n";
const CLOSE: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
const CHUNKS: &str = "PUT /items/b?state=NEW HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n";

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let many = [SHOW, ACQUIRE, SHOW, NOTHING, CLOSE, ACQUIRE].concat();
    stream.write_all(many.as_bytes()).await.unwrap();
    let answers = read_all(&mut stream).await;
    assert_eq!(statuses(&answers), ["404", "200", "200", "404", "200"]);
    assert!(answers.contains("connection: close"), "{answers}");
}

#[tokio::test]
async fn request_may_arrive_byte_by_byte() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for byte in [ACQUIRE, SHOW].concat().bytes() {
        stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(statuses(&read_one(&mut stream).await), ["200"]);
    assert_eq!(statuses(&read_one(&mut stream).await), ["200"]);
}

#[tokio::test]
async fn fast_path_and_hyper_share_a_connection() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(ACQUIRE.as_bytes()).await.unwrap();
    assert_eq!(statuses(&read_one(&mut stream).await), ["200"]);
    let rest = [SHOW, CHUNKS, SHOW, NOTHING, CLOSE].concat();
    stream.write_all(rest.as_bytes()).await.unwrap();
    let answers = read_all(&mut stream).await;
    assert_eq!(statuses(&answers), ["200", "200", "200", "404", "200"]);
    assert_eq!(server.get("/locks/b").await.ok().text("body"), "body");
}

#[tokio::test]
async fn service_waits_for_a_delayed_body() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = "PUT /items/a?state=NEW HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n";
    for pause in [0, 10, 300] {
        stream.write_all(head.as_bytes()).await.unwrap();
        // The delay is the subject of this test.
        tokio::time::sleep(Duration::from_millis(pause)).await;
        stream.write_all(b"body").await.unwrap();
        assert_eq!(statuses(&read_one(&mut stream).await), ["200"]);
    }
    assert_eq!(server.get("/locks/a").await.ok().text("body"), "body");
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let mut config = Config::default();
    config.head_timeout = Duration::from_millis(800);
    let store = store::open("memory:").await.unwrap();
    let server = Server::start_with(Engine::start(store).await.unwrap(), config).await;
    for begun in ["", "GET /lo", ACQUIRE, CHUNKS] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(begun.as_bytes()).await.unwrap();
        let answers = read_all(&mut stream).await;
        assert_eq!(statuses(&answers).len(), usize::from(begun.len() > 10));
    }
    // A connection with regular requests stays open for longer than the timeout.
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    for _ in 0..6 {
        stream.write_all(SHOW.as_bytes()).await.unwrap();
        assert_eq!(statuses(&read_one(&mut stream).await), ["200"]);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn shutdown_closes_idle_connections() {
    let mut server = Server::start().await;
    let mut idle = Vec::new();
    for begun in ["", ACQUIRE, CHUNKS] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(begun.as_bytes()).await.unwrap();
        if !begun.is_empty() {
            assert_eq!(statuses(&read_one(&mut stream).await), ["200"]);
        }
        idle.push(stream);
    }
    server.stop().await;
    for mut stream in idle {
        assert_eq!(read_all(&mut stream).await, "");
    }
}

#[tokio::test]
async fn targets_with_a_fragment_are_refused() {
    let server = Server::start().await;
    for request in [
        ACQUIRE.replace("/locks/a?nonce=n", "/locks/a?nonce=n#x"),
        ACQUIRE.replace("/locks/a", "/locks/a#x"),
        CHUNKS.replace("state=NEW", "state=NEW#x"),
        SHOW.replace("/locks/a", "http://localhost/locks/a#"),
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // The next request might be taken for its body.
        stream
            .write_all([&request, SHOW].concat().as_bytes())
            .await
            .unwrap();
        let answers = read_all(&mut stream).await;
        assert_eq!(statuses(&answers), ["400"], "{request}: {answers}");
        assert!(answers.contains("fragment"), "{answers}");
    }
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(SHOW.as_bytes()).await.unwrap();
    assert_eq!(statuses(&read_one(&mut stream).await), ["404"]);
}

#[tokio::test]
async fn every_malformed_request_gets_a_problem_document() {
    let server = Server::start().await;
    let put = "PUT /items/a?state=NEW HTTP/1.1\r\nHost: localhost\r\n";
    let get = "GET /locks HTTP/1.1\r\nHost: localhost\r\n";
    let malformed = [
        "hello\r\n\r\n".to_owned(),
        "GET /\0 HTTP/1.1\r\n\r\n".to_owned(),
        "GET / HTTP/3.7\r\n\r\n".to_owned(),
        "GET http:// HTTP/1.1\r\n\r\n".to_owned(),
        format!("{get}Na me: x\r\n\r\n"),
        format!("{get}Name: \0\r\n\r\n"),
        format!("{put}Content-Length: -1\r\n\r\n"),
        format!("{put}Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy"),
        format!("{put}Transfer-Encoding: gzip\r\n\r\n"),
    ];
    let too_large = [
        format!("{get}{}\r\n", "Name: x\r\n".repeat(200)),
        format!("{get}Name: {}\r\n\r\n", "x".repeat(20_000)),
    ];
    let malformed = { malformed.into_iter() }.map(|request| (request, 400, "bad-request"));
    let too_large = { too_large.into_iter() }.map(|request| (request, 431, "too-large"));
    for (request, status, kind) in malformed.chain(too_large) {
        // By itself, behind a plain request, and behind one that hyper answers.
        for before in ["", ACQUIRE, CHUNKS] {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            if !before.is_empty() {
                stream.write_all(before.as_bytes()).await.unwrap();
                assert_eq!(statuses(&read_one(&mut stream).await), ["200"]);
            }
            // The service may close the connection before it has read all of a long request.
            let _ = stream.write_all(request.as_bytes()).await;
            println!("{request:.100?} after {before:?}");
            let answer = Answer::parse(read_all_or_reset(&mut stream).await.as_bytes());
            let answer = answer.problem(status, kind);
            assert_eq!(answer.header("connection"), Some("close"), "{answer:?}");
            assert!(answer.header("date").is_some(), "{answer:?}");
        }
        // Sent together, the first is still answered.
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let _ = stream
            .write_all([CHUNKS, &request].concat().as_bytes())
            .await;
        let answers = read_all_or_reset(&mut stream).await;
        assert_eq!(
            statuses(&answers),
            ["200".to_owned(), status.to_string()],
            "{request:?}"
        );
        assert!(
            answers.ends_with('}') && answers.contains(kind),
            "{answers}"
        );
    }
}

/// Reads everything until the connection is closed or reset.
async fn read_all_or_reset(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let reading = stream.read_to_end(&mut bytes);
    let _ = tokio::time::timeout(TIMEOUT, reading)
        .await
        .expect("it is closed in bounded time");
    String::from_utf8(bytes).unwrap()
}
