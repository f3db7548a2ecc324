//! Cosmos DB's emulator: setup, readable form, network failures, and the cost of each call.
#![cfg(feature = "cosmos")]

mod blackhole;
mod idle_connections;
mod records;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use leasehold::Error;
use leasehold::core::{Mode, Name, State, Time};
use leasehold::store::{self, Level, Swapped};
use leasehold_testbed::{Cosmos, Proxy};
use records::{create, holder, load_one, record, replace, swap_one};

fn name(text: &str) -> Name {
    Name::lock(text).expect("a valid name")
}

/// Sends a request to the emulator directly, and returns the body of its answer.
fn send_request(cosmos: &Cosmos, method: &str, path: &str, key: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", cosmos.port())).expect("it listens");
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: emulator\r\nconnection: close\r\ncontent-length: {length}\r\n\
         x-ms-documentdb-partitionkey: [\"{key}\"]\r\n\r\n{body}"
    )
    .expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a whole answer");
    assert!(head.starts_with("HTTP/1.1 20"), "{answer}");
    body.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_records_are_readable() {
    let cosmos = Cosmos::start().await;
    let store = store::open(&cosmos.url()).await.expect("it opens");
    let name = name("nightly report/🔒");
    let mut stored = record(7, "step 3");
    let until = Time::from_micros(1_780_000_000_000_000);
    stored.holders = vec![holder(7, "host:42", Mode::Exclusive, until)];
    stored.state = Some(State {
        label: "REQUESTED".into(),
        since: Time::from_micros(5),
    });
    swap_one(&*store, create(&name, stored.clone())).await;

    let id = "lock.nightly~20report~2F~F0~9F~94~92";
    let path = format!("/dbs/leasehold/colls/leases/docs/{id}");
    let item = |cosmos| -> serde_json::Value {
        serde_json::from_str(&send_request(cosmos, "GET", &path, id, "")).expect("JSON")
    };
    let seen = item(&cosmos);
    for (key, value) in [
        ("id", id),
        ("lease", id),
        ("kind", "lock"),
        ("name", "nightly report/🔒"),
        ("owner", "host:42"),
        ("expires", "2026-05-28T20:26:40Z"),
        ("queue", "lock:REQUESTED"),
        ("listed", "nightly report/~F0~9F~94~92"),
        ("queued", "00000000000000000005:nightly report/~F0~9F~94~92"),
    ] {
        assert_eq!(seen[key], value, "{key}");
    }
    assert_eq!(seen["ttl"], -1, "it is never deleted by time to live");
    assert_eq!(seen["record"]["fence"], 7);
    assert_eq!(seen["record"]["body"], "step 3");
    assert_eq!(seen["record"]["holders"][0]["owner"], "host:42");

    // Removed values are deleted.
    let current = load_one(&*store, &name).await.expect("the record exists");
    assert_eq!(*current.record, stored);
    swap_one(&*store, replace(&name, &current, record(7, "step 3"))).await;
    let seen = item(&cosmos);
    assert_eq!(seen["owner"], "");
    for gone in ["expires", "queue", "queued"] {
        assert!(seen[gone].is_null(), "{gone} is still there");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_opens_create_the_container_once() {
    let cosmos = Cosmos::start().await;
    // Neither the database nor the container exists yet.
    let url = cosmos
        .url()
        .replace("/leasehold/leases", "/shop/our%20leases");
    let opening: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { store::open(&url).await.map(drop) })
        })
        .collect();
    for opened in opening {
        opened.await.expect("no panic").expect("it opens");
    }
    let store = store::open(&url).await.expect("it opens");
    swap_one(&*store, create(&name("a"), record(1, ""))).await;
    let checks = store.check().await.expect("it answers");
    assert!(
        checks.iter().all(|check| check.level == Level::Green),
        "{checks:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn container_with_time_to_live_is_reported() {
    let cosmos = Cosmos::start().await;
    let container = r#"{"id":"leases","defaultTtl":60,"partitionKey":{"paths":["/id"],"kind":"Hash","version":2}}"#;
    send_request(&cosmos, "POST", "/dbs/leasehold/colls", "", container);
    let store = store::open(&cosmos.url()).await.expect("it opens");
    let checks = store.check().await.expect("it answers");
    let ttl = checks.iter().find(|check| check.level == Level::Yellow);
    assert!(
        ttl.is_some_and(|check| check.what.contains("time to live")),
        "{checks:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn several_write_regions_are_refused() {
    let cosmos = Cosmos::start_writing_everywhere().await;
    let opened = store::open(&cosmos.url()).await;
    assert!(
        matches!(&opened, Err(Error::Denied(why)) if why.contains("several write regions")),
        "{:?}",
        opened.err()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn call_takes_one_round_trip_and_a_conflict_two() {
    let cosmos = Cosmos::start().await;
    let proxy = Proxy::to(cosmos.port()).await;
    let store = store::open(&cosmos.url_at(proxy.port()))
        .await
        .expect("it opens");
    let mut before = proxy.traffic().round_trips;
    let mut cost = || {
        let now = proxy.traffic().round_trips;
        let spent = now - before;
        before = now;
        spent
    };
    let created = create(&name("a"), record(1, ""));
    let swapped = swap_one(&*store, created.clone()).await;
    assert!(matches!(swapped, Swapped::Written { tag: Some(_) }));
    assert_eq!(cost(), 1, "a create");
    let refused = swap_one(&*store, created).await;
    assert_eq!(cost(), 2, "a conflict");
    let Swapped::Conflict(Some(current)) = refused else {
        panic!("{refused:?}");
    };
    swap_one(&*store, replace(&name("a"), &current, record(2, ""))).await;
    assert_eq!(cost(), 1, "a renewal");
    load_one(&*store, &name("a")).await;
    assert_eq!(cost(), 1, "a load");
}

#[tokio::test(flavor = "multi_thread")]
async fn unresponsive_network_is_an_error_in_time() {
    let cosmos = Cosmos::start().await;
    let proxy = Proxy::to(cosmos.port()).await;
    let store = store::open(&cosmos.url_at(proxy.port()))
        .await
        .expect("it opens");
    blackhole::calls_fail_in_time(&*store, &proxy).await;

    proxy.refuse();
    let swapped = store.swap(vec![create(&name("b"), record(1, ""))]).await;
    assert!(
        matches!(
            swapped,
            Err(Error::Unavailable(_) | Error::Indeterminate(_))
        ),
        "{swapped:?}"
    );
    let opened = store::open(&cosmos.url_at(proxy.port())).await;
    assert!(
        matches!(&opened, Err(Error::Unavailable(why)) if why.contains("endpoint")),
        "{:?}",
        opened.err()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_succeed_despite_a_closed_idle_connection() {
    let cosmos = Cosmos::start().await;
    let proxy = Proxy::to(cosmos.port()).await;
    idle_connections::operations_succeed(&cosmos.url_at(proxy.port()), &proxy).await;
}
