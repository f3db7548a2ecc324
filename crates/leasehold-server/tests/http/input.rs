//! Invalid input is answered with a problem document and a 4xx status, and changes nothing.

use crate::common::Server;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

/// Starts a service on SQLite where `job` is held. Returns its fence, and everything that is stored.
async fn server_with_a_job() -> (Server, u64, Value) {
    let server = Server::start_on_sqlite().await;
    let fence = server.acquire("/locks/job?nonce=mine&ttl=1h").await;
    let target = format!("/locks/job/{fence}?state=RUNNING");
    server.send("POST", &target, b"half way").await.ok();
    let before = server.everything().await;
    (server, fence, before)
}

#[tokio::test]
async fn bad_parameters_are_refused() {
    let (server, fence, before) = server_with_a_job().await;
    let long_nonce = "n".repeat(65);
    for query in [
        "",
        "nonce=",
        &format!("nonce={long_nonce}"),
        "nonce=%ff",
        "nonce=n&nonce=n",
        "nonce=n&ttl=0s",
        "nonce=n&ttl=-5s",
        "nonce=n&ttl=banana",
        "nonce=n&ttl=30",
        "nonce=n&ttl=",
        "nonce=n&ttl=25h",
        "nonce=n&ttl=99999999999999999999s",
        "nonce=n&wait=-1s",
        "nonce=n&wait=soon",
        "nonce=n&wait=25h",
        "nonce=n&mode=both",
        "nonce=n&mode=shared&limit=0",
        "nonce=n&mode=shared&limit=257",
        "nonce=n&mode=shared&limit=many",
        "nonce=n&limit=4",
        "nonce=n&fence=x",
        "nonce=n&banana=1",
        "nonce=n&Ttl=30s",
        &format!("nonce=n&owner={}", "o".repeat(129)),
        "nonce=n&owner=%zz",
    ] {
        for name in ["job", "new"] {
            let refused = server.post(&format!("/locks/{name}?{query}")).await;
            refused.problem(400, "bad-request");
        }
    }
    for query in ["ttl=0s", "ttl=banana", "ttl=25h", "wait=1s", "nonce=mine"] {
        let target = format!("/locks/job/{fence}/heartbeat?{query}");
        server.post(&target).await.problem(400, "bad-request");
    }
    let long_state = "s".repeat(65);
    for query in [
        "release=yes",
        "body=new",
        "ttl=1s",
        "state=%00",
        &format!("state={long_state}"),
    ] {
        let target = format!("/locks/job/{fence}?{query}");
        server.post(&target).await.problem(400, "bad-request");
    }
    for query in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "held=maybe",
        "banana",
        "prefix=a&prefix=b",
    ] {
        server
            .get(&format!("/locks?{query}"))
            .await
            .problem(400, "bad-request");
    }
    assert_eq!(server.everything().await, before);
}

#[tokio::test]
async fn bad_names_are_refused() {
    let (server, fence, before) = server_with_a_job().await;
    let long = "n".repeat(600);
    for name in [
        "", &long, "%00", "a%00b", "%ff", "%c3", "%0a", "100%", "%zz",
    ] {
        for (method, target) in [
            ("POST", format!("/locks/{name}?nonce=n")),
            ("POST", format!("/locks/{name}/{fence}/heartbeat")),
            ("PUT", format!("/locks/{name}/{fence}")),
            ("DELETE", format!("/locks/{name}/{fence}")),
            ("POST", format!("/locks/{name}/break?fence={fence}")),
            ("GET", format!("/locks/{name}")),
            ("POST", format!("/locks?name={name}&nonce=n")),
            ("GET", format!("/locks?name={name}")),
        ] {
            server
                .send(method, &target, b"")
                .await
                .problem(400, "bad-request");
        }
    }
    server
        .post("/locks?nonce=n")
        .await
        .problem(400, "bad-request");
    assert_eq!(server.everything().await, before);
}

#[tokio::test]
async fn a_fence_is_a_number() {
    let (server, fence, before) = server_with_a_job().await;
    for bad in [
        "x",
        "-1",
        "+1",
        "1.5",
        "1e3",
        "0x1",
        "%31x",
        "9007199254740992",
        "99999999999999999999",
    ] {
        for (method, target) in [
            ("POST", format!("/locks/job/{bad}/heartbeat")),
            ("PUT", format!("/locks/job/{bad}")),
            ("DELETE", format!("/locks/job/{bad}")),
            ("POST", format!("/locks/job/break?fence={bad}")),
            ("POST", format!("/locks/job?nonce=mine&fence={bad}")),
        ] {
            server
                .send(method, &target, b"body")
                .await
                .problem(400, "bad-request");
        }
    }
    server
        .post(&format!("/locks/job/{fence}/heart"))
        .await
        .problem(404, "not-found");
    assert_eq!(server.everything().await, before);
}

#[tokio::test]
async fn a_body_is_at_most_64_kib_of_utf_8() {
    let (server, fence, before) = server_with_a_job().await;
    let target = format!("/locks/job/{fence}");
    for size in [64 * 1024 + 1, 70 * 1024, 900 * 1024] {
        let body = vec![b'x'; size];
        server
            .send("POST", &target, &body)
            .await
            .problem(413, "too-large");
    }
    for bad in [&b"\xff"[..], b"half \xc3", b"\xed\xa0\x80"] {
        server
            .send("POST", &target, bad)
            .await
            .problem(400, "bad-request");
    }
    server
        .send("POST", &format!("{target}?body=keep"), b"x")
        .await
        .problem(400, "bad-request");
    assert_eq!(server.everything().await, before);
    let body = vec![b'x'; 64 * 1024];
    server.send("POST", &target, &body).await.ok();
}

#[tokio::test]
async fn body_that_is_longer_than_announced_or_incomplete_changes_nothing() {
    let (server, fence, before) = server_with_a_job().await;
    let head = format!("POST /locks/job/{fence} HTTP/1.1\r\nHost: localhost\r\n");
    for rest in [
        "Content-Length: 100\r\n\r\nshort",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
        "Transfer-Encoding: chunked\r\n\r\nzz\r\nshort\r\n0\r\n\r\n",
        "Content-Length: banana\r\n\r\nshort",
    ] {
        let mut stream = tokio::net::TcpStream::connect(server.address)
            .await
            .unwrap();
        stream
            .write_all(format!("{head}{rest}").as_bytes())
            .await
            .unwrap();
        drop(stream);
    }
    // Bytes beyond the announced length are the next request, which is invalid.
    let mut stream = tokio::net::TcpStream::connect(server.address)
        .await
        .unwrap();
    let too_long =
        "POST /locks/job/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nxyz\r\n\r\n";
    stream.write_all(too_long.as_bytes()).await.unwrap();
    drop(stream);
    assert_eq!(server.everything().await, before);
}

#[tokio::test]
async fn unknown_routes_and_methods_are_problems() {
    let (server, fence, before) = server_with_a_job().await;
    for target in [
        "/dashboard",
        "/lock",
        "/locks/a/1/b",
        "/locks/a/1/heartbeat/x",
        "/items/a/b",
        "/gates/a/1/heartbeat",
        "/Locks/a",
    ] {
        for method in ["GET", "POST", "DELETE"] {
            server
                .send(method, target, b"")
                .await
                .problem(404, "not-found");
        }
    }
    for (method, target, allow) in [
        ("GET", format!("/locks/job/{fence}"), "post, put, delete"),
        (
            "DELETE",
            format!("/locks/job/{fence}/heartbeat"),
            "post, put",
        ),
        ("GET", "/locks/job/break".to_owned(), "post, put"),
        (
            "PATCH",
            "/locks/job".to_owned(),
            "get, head, post, put, delete",
        ),
        ("DELETE", "/locks".to_owned(), "get, head, post, put"),
        ("GET", "/heartbeats".to_owned(), "post, put"),
        ("POST", "/healthz".to_owned(), "get, head"),
        ("OPTIONS", "/readyz".to_owned(), "get, head"),
    ] {
        let refused = server.send(method, &target, b"").await;
        let refused = refused.problem(405, "method-not-allowed");
        assert_eq!(refused.header("allow"), Some(allow), "{method} {target}");
    }
    assert_eq!(server.everything().await, before);
}

#[tokio::test]
async fn bad_json_is_refused() {
    let (server, fence, before) = server_with_a_job().await;
    for body in [
        String::new(),
        "banana".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        "{\"leases\": [{\"name\": \"job\"}]}".to_owned(),
        format!("{{\"leases\": [{{\"name\": \"\", \"fence\": {fence}}}]}}"),
        format!("{{\"leases\": [{{\"name\": \"job\", \"fence\": \"{fence}\"}}]}}"),
        "{\"leases\": [{\"name\": \"job\", \"fence\": 9007199254740992}]}".to_owned(),
        format!("{{\"leases\": [{{\"name\": \"job\", \"fence\": {fence}, \"ttl\": \"x\"}}]}}"),
        format!("{{\"leases\": [{{\"name\": \"job\", \"fence\": {fence}, \"tll\": \"1s\"}}]}}"),
    ] {
        let refused = server.send("POST", "/heartbeats", body.as_bytes()).await;
        refused.problem(400, "bad-request");
    }
    for body in [
        "",
        "banana",
        "{}",
        "{\"force\": true}",
        "{\"force\": true, \"reason\": \"\"}",
        "{\"force\": true, \"reason\": \"r\", \"nonce\": \"mine\"}",
        "{\"reason\": \"r\"}",
        "{\"now\": true}",
        "{\"fence\": 1, \"nonce\": \"mine\"}",
        "{\"nonce\": \"\"}",
        "{\"forced\": true}",
    ] {
        let refused = server
            .send("POST", "/locks/job/break", body.as_bytes())
            .await;
        refused.problem(400, "bad-request");
    }
    let both = server
        .send("POST", "/locks/job/break?nonce=mine", b"{\"force\":true}")
        .await;
    both.problem(400, "bad-request");
    assert_eq!(server.everything().await, before);
}

#[tokio::test]
async fn nonce_is_given_once() {
    let (server, _, before) = server_with_a_job().await;
    for (target, headers) in [
        ("/locks/new?nonce=n", "Leasehold-Nonce: n\r\n"),
        ("/locks/new", "Leasehold-Nonce: n\r\nLeasehold-Nonce: n\r\n"),
        ("/locks/new", "Leasehold-Nonce:\r\n"),
    ] {
        let refused = server.send_with("POST", target, headers, b"").await;
        refused.problem(400, "bad-request");
    }
    let header = format!("Leasehold-Nonce: {}\r\n", "n".repeat(65));
    server
        .send_with("POST", "/locks/new", &header, b"")
        .await
        .problem(400, "bad-request");
    assert_eq!(server.everything().await, before);
    server
        .send_with("POST", "/locks/job", "Leasehold-Nonce: mine\r\n", b"")
        .await
        .ok();
}

#[tokio::test]
async fn heads_are_bounded() {
    let (server, _, before) = server_with_a_job().await;
    let header = format!("X-Long: {}\r\n", "x".repeat(64 * 1024));
    let refused = server
        .send_with("POST", "/locks/new?nonce=n", &header, b"")
        .await;
    refused.problem(431, "too-large");
    assert_eq!(server.everything().await, before);
}
