//! Tests of DynamoDB tables beyond the conformance suite: setup, stored form, cost, and server failures.
#![cfg(feature = "dynamodb")]

mod blackhole;
mod records;

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use leasehold::Error;
use leasehold::core::{Mode, Name, State, Time};
use leasehold::store::{self, Level, Store, Swapped};
use leasehold_testbed::{Proxy, Server};
use records::{create, full_record, holder, load_one, record, replace, swap_one};
use tokio::time::Instant;

fn name(text: &str) -> Name {
    Name::lock(text).expect("a valid name")
}

/// Reads an item with the database's own client.
async fn item(server: &Server, id: &str) -> std::collections::HashMap<String, AttributeValue> {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .region(Region::new("us-east-1"))
        .endpoint_url(format!("http://127.0.0.1:{}", server.port()))
        .credentials_provider(Credentials::new("local", "local", None, None, "test"));
    let request = Client::from_conf(config.build()).get_item();
    let answer = request
        .table_name("leasehold")
        .key("id", AttributeValue::S(id.to_owned()))
        .send();
    answer
        .await
        .expect("an answer")
        .item
        .expect("the item exists")
}

#[tokio::test]
async fn stored_records_are_readable() {
    let server = Server::start("dynoxide").await.expect("installed");
    let store = store::open(&server.url()).await.expect("it opens");
    let name = name("nightly report/🔒");
    let mut stored = record(7, "step 3");
    let until = Time::from_micros(1_780_000_000_000_000);
    stored.holders = vec![holder(7, "host:42", Mode::Exclusive, until)];
    stored.state = Some(State {
        label: "REQUESTED".into(),
        since: Time::from_micros(5),
    });
    swap_one(&*store, create(&name, stored.clone())).await;
    let id = "lock:nightly report/🔒";
    let seen = item(&server, id).await;
    let text = |key: &str| match &seen[key] {
        AttributeValue::S(text) | AttributeValue::N(text) => text.clone(),
        other => panic!("{key} is {other:?}"),
    };
    for (key, value) in [
        ("kind", "lock"),
        ("name", "nightly report/🔒"),
        ("fence", "7"),
        ("owner", "host:42"),
        ("expires", "2026-05-28T20:26:40Z"),
        ("state", "REQUESTED"),
        ("state_since", "5"),
        ("queue", "lock:REQUESTED"),
        ("queued", "00000000000000000005:nightly report/🔒"),
        ("body", "step 3"),
    ] {
        assert_eq!(text(key), value, "{key}");
    }
    // Removed values are deleted, whether or not the body changes.
    let current = load_one(&*store, &name).await.expect("the record exists");
    swap_one(&*store, replace(&name, &current, record(7, "step 3"))).await;
    let seen = item(&server, id).await;
    for gone in [
        "owner",
        "expires",
        "state",
        "state_since",
        "queue",
        "queued",
    ] {
        assert!(!seen.contains_key(gone), "{gone} is still there");
    }
    let full = full_record();
    let current = load_one(&*store, &name).await.expect("the record exists");
    swap_one(&*store, replace(&name, &current, full.clone())).await;
    let current = load_one(&*store, &name).await.expect("the record exists");
    assert_eq!(*current.record, full);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_opens_create_the_table_once() {
    let server = Server::start("dynamodb").await.expect("installed");
    let opening: Vec<_> = (0..6)
        .map(|_| {
            let url = server.url();
            tokio::spawn(async move { store::open(&url).await.map(drop) })
        })
        .collect();
    for opened in opening {
        opened.await.expect("no panic").expect("it opens");
    }
    let store = store::open(&server.url()).await.expect("it opens");
    let checks = store.check().await.expect("it answers");
    assert!(
        checks.iter().all(|check| check.level < Level::Red),
        "{checks:?}"
    );
    killed_server_is_used_again(&server, &*store).await;
}

/// Runs in the same test as the setup, because this server starts slowly.
async fn killed_server_is_used_again(server: &Server, store: &dyn Store) {
    swap_one(store, create(&name("kept"), record(1, "kept"))).await;
    let kept = load_one(store, &name("kept")).await;
    server.kill().await;
    let down = Instant::now();
    let loaded = store.load(&[name("kept")]).await;
    assert!(matches!(loaded, Err(Error::Unavailable(_))), "{loaded:?}");
    let swapped = store.swap(vec![create(&name("b"), record(1, ""))]).await;
    assert!(
        matches!(swapped, Err(Error::Unavailable(_))),
        "nothing was sent: {swapped:?}"
    );
    assert!(down.elapsed() < Duration::from_secs(9));
    server.restart().await;
    let back = Instant::now();
    assert_eq!(load_one(store, &name("kept")).await, kept);
    assert!(back.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn unresponsive_network_is_an_error_in_time() {
    let server = Server::start("dynoxide").await.expect("installed");
    let proxy = Proxy::to(server.port()).await;
    let store = store::open(&server.url_at(proxy.port()))
        .await
        .expect("it opens");
    blackhole::calls_fail_in_time(&*store, &proxy).await;
}

#[tokio::test]
async fn each_call_takes_one_round_trip_and_a_renewal_does_not_send_the_body() {
    let server = Server::start("dynoxide").await.expect("installed");
    let proxy = Proxy::to(server.port()).await;
    let store = store::open(&server.url_at(proxy.port()))
        .await
        .expect("it opens");
    let large = "x".repeat(60_000);
    let created = create(&name("a"), record(1, &large));
    let mut before = proxy.traffic();
    let mut cost = || {
        let now = proxy.traffic();
        let spent = (now.round_trips - before.round_trips, now.sent - before.sent);
        before = now;
        spent
    };
    assert_eq!(
        swap_one(&*store, created.clone()).await,
        Swapped::Written { tag: None }
    );
    assert_eq!(cost().0, 1, "a create");
    let refused = swap_one(&*store, created).await;
    assert_eq!(cost().0, 1, "a conflict");
    let Swapped::Conflict(Some(current)) = refused else {
        panic!("{refused:?}");
    };
    let renewal = replace(&name("a"), &current, record(2, &large));
    assert_eq!(
        swap_one(&*store, renewal).await,
        Swapped::Written { tag: None }
    );
    let (trips, sent) = cost();
    assert_eq!(trips, 1, "a renewal");
    assert!(sent < 5_000, "a renewal sent {sent} bytes");
    let names: Vec<_> = (0..64).map(|n| name(&format!("{n}"))).collect();
    store.load(&names).await.expect("it answers");
    assert_eq!(cost().0, 1, "a load of many");
}
