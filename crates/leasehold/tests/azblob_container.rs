//! Tests of Azure blobs beyond the conformance suite: readable form, foreign blobs, and cost.
#![cfg(feature = "azblob")]

mod azblob_support;
mod records;

use azblob_support::{container_url, http, names, sas};
use leasehold::Error;
use leasehold::core::{Kind, Mode, Name, State, Time};
use leasehold::store::{self, Query, Swapped};
use leasehold_testbed::Proxy;
use records::{create, full_record, holder, load_one, record, replace, swap_one};

fn name(text: &str) -> Name {
    Name::lock(text).expect("a valid name")
}

#[tokio::test]
async fn stored_records_are_readable() {
    let (url, port) = container_url("readable").await;
    let store = store::open(&url).await.expect("it opens");
    let name = name("nightly report/🔒");
    let mut stored = record(7, "step 3");
    let until = Time::from_micros(1_780_000_000_000_000);
    stored.holders = vec![holder(7, "host:42", Mode::Exclusive, until)];
    stored.state = Some(State {
        label: "RE QUESTED".into(),
        since: Time::from_micros(5),
    });
    swap_one(&*store, create(&name, stored.clone())).await;
    let path = format!(
        "readable/lock/nightly%2520report.2F~F0~9F~94~92?{}",
        sas(&url, "readable", "r")
    );
    let seen = http(port, "GET", &path, "", "");
    for part in [
        "application/json",
        "x-ms-meta-name: nightly%20report/%F0%9F%94%92",
        "x-ms-meta-state: RE%20QUESTED",
        "x-ms-meta-state_since: 5",
        "x-ms-meta-held_until: 1780000000000000",
        r#""kind":"lock","name":"nightly report/🔒""#,
        r#""owner":"host:42","expires":"2026-05-28T20:26:40Z""#,
        r#""fence":7"#,
        r#""body":"step 3""#,
    ] {
        assert!(seen.contains(part), "{part} is not in {seen}");
    }
    // Removed values are deleted.
    let current = load_one(&*store, &name).await.expect("the record exists");
    swap_one(&*store, replace(&name, &current, record(7, "step 3"))).await;
    let seen = http(port, "GET", &path, "", "");
    assert!(!seen.contains("state_since") && !seen.contains("held_until"));
    let full = full_record();
    let current = load_one(&*store, &name).await.expect("the record exists");
    swap_one(&*store, replace(&name, &current, full.clone())).await;
    let current = load_one(&*store, &name).await.expect("the record exists");
    assert_eq!(*current.record, full);
}

#[tokio::test]
async fn foreign_blobs_are_ignored() {
    let (url, port) = container_url("shared-by-two").await;
    let store = store::open(&url).await.expect("it opens");
    swap_one(&*store, create(&name("a"), record(1, ""))).await;
    let sas = sas(&url, "shared-by-two", "racwdl");
    for blob in ["readme", "lock/zebra"] {
        let path = format!("shared-by-two/{blob}?{sas}");
        let answer = http(port, "PUT", &path, "x-ms-blob-type: BlockBlob\r\n", "hello");
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }
    assert_eq!(names(&*store, &Query::all(Kind::Lock)).await, ["a"]);
    let loaded = store.load(&[name("zebra")]).await;
    assert!(matches!(loaded, Err(Error::Corrupt(_))), "{loaded:?}");
}

#[tokio::test]
async fn call_takes_the_documented_round_trips() {
    let (url, port) = container_url("counted").await;
    let proxy = Proxy::to(port).await;
    let url = url.replace(&port.to_string(), &proxy.port().to_string());
    let store = store::open(&url).await.expect("it opens");
    let mut before = proxy.traffic().round_trips;
    let mut cost = || {
        let now = proxy.traffic().round_trips;
        now - std::mem::replace(&mut before, now)
    };
    let created = create(&name("a"), record(1, "body"));
    let Swapped::Written { tag: Some(_) } = swap_one(&*store, created.clone()).await else {
        panic!("there is no conflict");
    };
    assert_eq!(cost(), 1, "a create");
    let Swapped::Conflict(Some(current)) = swap_one(&*store, created).await else {
        panic!("it is a conflict");
    };
    assert_eq!(cost(), 2, "a conflict");
    swap_one(&*store, replace(&name("a"), &current, record(2, "body"))).await;
    assert_eq!(cost(), 1, "a renewal");
    load_one(&*store, &name("a")).await;
    assert_eq!(cost(), 1, "a load");
    for n in 0..3 {
        swap_one(&*store, create(&name(&format!("b{n}")), record(1, ""))).await;
    }
    cost();
    let query = Query {
        prefix: "b".into(),
        limit: 2,
        ..Query::all(Kind::Lock)
    };
    assert_eq!(names(&*store, &query).await, ["b0", "b1"]);
    assert_eq!(cost(), 1, "a page of two");
    let large = create(&name("b"), record(1, &"x".repeat(3_000)));
    swap_one(&*store, large).await;
    cost();
    assert_eq!(names(&*store, &query).await, ["b", "b0"]);
    assert_eq!(cost(), 2, "a page of two, one of them large");
}
