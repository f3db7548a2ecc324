//! `serve --otlp-endpoint`: the traces that a collector receives.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;

use nix::sys::signal::Signal;

use crate::service::Service;
use crate::support::{Home, TIMEOUT};

/// Receives one batch, and returns its head and body as text.
fn receive_batch(collector: &TcpListener) -> String {
    let (stream, _) = collector.accept().unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let start = head.len();
        stream.read_line(&mut head).unwrap();
        if let Some(value) = head[start..].strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    stream.get_mut().write_all(response.as_bytes()).unwrap();
    head + &String::from_utf8_lossy(&body)
}

#[test]
fn remaining_traces_are_sent_when_the_service_stops() {
    let home = Home::new();
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", collector.local_addr().unwrap());
    std::fs::write(
        home.file("leasehold.toml"),
        format!("otlp-endpoint = \"{url}\"\n"),
    )
    .unwrap();
    let mut service = Service::start_with(&home, &["--config", "leasehold.toml"]);
    let answer = service.post("/locks/my-job?nonce=s3cret");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    service.process.signal(Signal::SIGTERM);
    let batch = receive_batch(&collector);
    assert!(batch.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{batch}");
    assert!(batch.contains("my-job"), "{batch}");
    assert!(!batch.contains("s3cret"), "{batch}");
    service.process.ends_with(0);
}

#[test]
fn unreachable_collector_is_logged_and_does_not_delay_the_end() {
    let home = Home::new();
    let unused = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", unused.local_addr().unwrap());
    drop(unused);
    let mut service = Service::start_with(&home, &["--otlp-endpoint", &url]);
    service.post("/locks/job?nonce=n");
    service.process.signal(Signal::SIGTERM);
    service.process.expect("cannot send traces");
    service.process.expect("stopped");
    service.process.ends_with(0);
}

#[test]
fn invalid_collector_url_is_refused() {
    let home = Home::new();
    home.run(["serve", "--otlp-endpoint", "collector:4318"])
        .failed(2, "invalid collector URL");
}
