//! The log of requests, which contains no secrets.

use std::io::Write;
use std::sync::{Arc, Mutex};

use crate::common::Server;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn requests_are_logged_without_nonces_tokens_queries_or_bodies() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    // For the whole process: the lines of other tests must not contain secrets either.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let server = Server::start_on_sqlite().await;
    let fence = server
        .acquire("/locks/my-job?nonce=top-secret&owner=quiet-owner")
        .await;
    let header = "Leasehold-Nonce: top-secret\r\nAuthorization: Bearer lh_secret-token\r\n";
    server
        .send_with("POST", "/locks/my-job", header, b"")
        .await
        .ok();
    let target = format!("/locks/my-job/{}", fence + 1);
    server.send("POST", &target, b"private body").await.ok();
    server
        .post("/locks/my-job?nonce=top-secret-2")
        .await
        .problem(409, "held");
    server
        .post("/locks/my-job?nonce=top-secret&unknown=x")
        .await
        .problem(400, "bad-request");
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for expected in [
        "/locks/my-job",
        "POST",
        "status=200",
        "status=409",
        "status=400",
    ] {
        assert!(log.contains(expected), "{expected} is not in:\n{log}");
    }
    for secret in ["top-secret", "lh_", "private body", "quiet-owner", "nonce="] {
        assert!(!log.contains(secret), "{secret} is in:\n{log}");
    }
}
