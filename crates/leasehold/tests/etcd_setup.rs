//! etcd: readable form, and every configuration error.
#![cfg(feature = "etcd")]

mod records;
mod refusals;

use std::time::{Duration, SystemTime};

use leasehold::Error;
use leasehold::core::{Kind, Mode, Name, State, Time};
use leasehold::host::{Host as _, Machine};
use leasehold::store::{self, Level, Query, Swapped};
use leasehold_testbed::Server;
use records::*;
use refusals::{
    assert_denied, assert_unavailable, level, open_error, unreachable_hosts_are_reported,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Returns a URL with a unique prefix, on the server that the tests of this process share.
async fn url() -> String {
    let url = leasehold_testbed::url("etcd").await.unwrap();
    format!("{url}?prefix=t{:016x}/", Machine.random() as u64)
}

/// Sends a request like `curl`, and returns status line, headers and body.
async fn post(port: u16, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn item_has_exactly_one_index_key_after_state_changes() {
    let store = store::open(&url().await).await.unwrap();
    let name = Name::lock("one/🔒").unwrap();
    let mut item = record(1, "");
    let states = [Some("A/B"), Some("A"), Some("%"), None, Some("A/B")];
    swap_one(&*store, create(&name, item.clone())).await;
    for (at, state) in (1..).zip(states) {
        item.state = state.map(|label| State {
            label: label.into(),
            since: Time::from_micros(at),
        });
        let current = load_one(&*store, &name).await.unwrap();
        let written = swap_one(&*store, replace(&name, &current, item.clone())).await;
        assert!(matches!(written, Swapped::Written { .. }), "{written:?}");
        for label in ["A/B", "A", "%", "B"] {
            let query = Query {
                state: Some(label.into()),
                ..Query::all(Kind::Lock)
            };
            let found = store.find(&query).await.unwrap().value.records;
            assert_eq!(found.len(), usize::from(state == Some(label)), "{label}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_of_the_largest_bodies_is_written_and_read() {
    let store = store::open(&url().await).await.unwrap();
    let body = "b".repeat(64 * 1024);
    let names: Vec<_> = (0..store.facts().batch)
        .map(|n| Name::lock(format!("{n}")).unwrap())
        .collect();
    let writes = names.iter().map(|name| create(name, record(1, &body)));
    let swapped = store.swap(writes.collect()).await.unwrap().value;
    let is_written = |swapped: &Swapped| matches!(swapped, Swapped::Written { .. });
    assert!(swapped.iter().all(is_written), "{swapped:?}");
    let loaded = store.load(&names).await.unwrap().value;
    assert!(
        loaded
            .iter()
            .flatten()
            .all(|stored| *stored.record.body == *body)
    );
    assert_eq!(loaded.iter().flatten().count(), names.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_is_read_from_the_server() {
    let store = store::open(&url().await).await.unwrap();
    let name = Name::lock("one").unwrap();
    let wall = || {
        let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        Time::from_micros(u64::try_from(wall.as_micros()).unwrap())
    };
    for round in 0..20 {
        let before = wall();
        let stamp = match round % 2 {
            0 => store.load(std::slice::from_ref(&name)).await.unwrap().stamp,
            _ => {
                let write = create(&name, record(1, ""));
                store.swap(vec![write]).await.unwrap().stamp
            }
        };
        // The server runs on this machine, with the same clock.
        assert_eq!(stamp.resolution, Duration::from_secs(1));
        assert!(
            stamp.time + stamp.resolution >= before,
            "{stamp:?} {before}"
        );
        assert!(stamp.time <= wall(), "{stamp:?}");
    }
}

#[tokio::test]
async fn unreachable_server_is_an_error_in_time() {
    unreachable_hosts_are_reported(|address| format!("etcd://ada:s3cret@{address}")).await;
}

#[tokio::test]
async fn user_without_authentication_is_refused() {
    let server = leasehold_testbed::shared("etcd").await.unwrap();
    let needless = format!("etcd://ada:s3cret@127.0.0.1:{}", server.port());
    assert_denied(&open_error(&needless).await, "remove user");
}

#[tokio::test]
async fn users_require_a_password_and_a_role() {
    let server = Server::start("etcd").await.unwrap();
    let port = server.port();
    for (path, body) in [
        ("/v3/auth/user/add", r#"{"name":"root","password":"r"}"#),
        ("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#),
        ("/v3/auth/user/add", r#"{"name":"ada","password":"s3cret"}"#),
        ("/v3/auth/user/add", r#"{"name":"bob","password":"b"}"#),
        ("/v3/auth/role/add", r#"{"name":"leases"}"#),
        ("/v3/auth/user/grant", r#"{"user":"ada","role":"leases"}"#),
        // `leasehold/` to `leasehold0`, in base64.
        (
            "/v3/auth/role/grant",
            r#"{"name":"leases","perm":{"permType":"READWRITE","key":"bGVhc2Vob2xkLw==","range_end":"bGVhc2Vob2xkMA=="}}"#,
        ),
        ("/v3/auth/enable", "{}"),
    ] {
        let answer = post(port, path, body).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    let at = |user: &str| format!("etcd://{user}127.0.0.1:{port}");
    for (user, hint) in [
        ("", "requires a user"),
        ("ada:s3cret-not@", "password"),
        ("unknown:s3cret@", "password"),
        ("bob:b@", "grant-permission"),
    ] {
        assert_denied(&open_error(&at(user)).await, hint);
    }
    let store = store::open(&at("ada:s3%63ret@")).await.unwrap();
    let name = Name::lock("one").unwrap();
    let mut held = record(7, "");
    held.holders = vec![holder(7, "web-7:42", Mode::Exclusive, Time::from_micros(9))];
    let written = swap_one(&*store, create(&name, held)).await;
    assert!(matches!(written, Swapped::Written { .. }), "{written:?}");
    // Tokens do not survive a restart of the server: the next call requests a new one.
    server.restart().await;
    assert!(load_one(&*store, &name).await.is_some());
}

#[tokio::test]
async fn self_signed_certificate_is_trusted_if_named() {
    let server = Server::builder("etcd").self_signed().start().await.unwrap();
    let (port, folder) = (server.port(), server.folder().display());
    let at = |options: &str| format!("etcd://localhost:{port}?tls=on{options}");
    let client = leasehold::connect(&at(&format!("&ca={folder}/ca.pem"))).await;
    let lease = client.unwrap().lease("job").acquire().await.unwrap();
    assert!(lease.release().await.unwrap());
    assert_denied(&open_error(&at("")).await, "`ca`");
}

#[tokio::test]
async fn tls_requires_a_trusted_certificate() {
    let server = Server::builder("etcd").tls().start().await.unwrap();
    let (port, folder) = (server.port(), server.folder().display());
    let at = |options: &str| format!("etcd://localhost:{port}{options}");
    let trusted = format!("?tls=on&ca={folder}/ca.pem");
    let store = store::open(&at(&trusted)).await.unwrap();
    let name = Name::lock("one").unwrap();
    let written = swap_one(&*store, create(&name, record(7, ""))).await;
    assert!(matches!(written, Swapped::Written { .. }), "{written:?}");
    assert_denied(&open_error(&at("?tls=on")).await, "`ca`");
    assert_denied(&open_error(&at("?tls=on&ca=/nowhere")).await, "/nowhere");
    assert_unavailable(&open_error(&at("")).await, "`tls=on`");

    let plain = leasehold_testbed::shared("etcd").await.unwrap();
    let mismatch = format!("etcd://ada:s3cret@127.0.0.1:{}?tls=on", plain.port());
    // The server either closes the connection or answers in plain text; the order is not deterministic.
    let refusal = open_error(&mismatch).await;
    let is_expected = matches!(refusal, Error::Denied(_) | Error::Unavailable(_));
    assert!(
        is_expected && refusal.to_string().contains("`tls`"),
        "{refusal}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_count_the_members() {
    let store = store::open(&url().await).await.unwrap();
    let checks = store.check().await.unwrap();
    assert!(
        checks.iter().all(|check| check.level < Level::Red),
        "{checks:?}"
    );
    assert_eq!(level(&checks, "one member"), Level::Yellow);
}
