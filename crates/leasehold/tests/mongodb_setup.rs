//! MongoDB: setup, readable form, and checks.
#![cfg(feature = "mongodb")]

mod records;
mod refusals;

use std::time::{Duration, SystemTime};

use leasehold::core::{Mode, Name, Time};
use leasehold::host::{Host as _, Machine};
use leasehold::store::{self, Level, Swapped};
use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection};
use records::*;
use refusals::level;

/// A collection of a single test, on the server that the tests of this process share.
struct Fixture {
    url: String,
    collection: Collection<Document>,
}

async fn fixture() -> Fixture {
    let server = leasehold_testbed::shared("mongodb").await.unwrap();
    let name = format!("t{:016x}", Machine.random() as u64);
    let admin = format!("mongodb://127.0.0.1:{}/leasehold", server.port());
    let client = Client::with_uri_str(&admin).await.unwrap();
    Fixture {
        url: format!("{admin}?collection={name}"),
        collection: client.database("leasehold").collection(&name),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_opens_create_the_collection_once() {
    let fixture = fixture().await;
    let opening = (0..8).map(|_| {
        let url = fixture.url.clone();
        tokio::spawn(async move { store::open(&url).await.map(drop) })
    });
    for opened in opening.collect::<Vec<_>>() {
        opened.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_is_readable_and_can_be_queried_by_its_fields() {
    let fixture = fixture().await;
    let store = store::open(&fixture.url).await.unwrap();
    let name = Name::lock("nightly/report 🔒").unwrap();
    let mut held = record(7, "step $3");
    let until = Time::from_micros(1_780_000_000_123_456);
    held.holders = vec![holder(7, "web-7:42", Mode::Exclusive, until)];
    let written = swap_one(&*store, create(&name, held)).await;
    assert_eq!(written, Swapped::Written { tag: None });
    let query = doc! { "owner": { "$regex": "^web-7" }, "fence": { "$gte": 7 } };
    let found = fixture.collection.find_one(query).await.unwrap().unwrap();
    assert_eq!(found.get_str("_id").unwrap(), "lock:nightly/report 🔒");
    assert_eq!(found.get_str("body").unwrap(), "step $3");
    assert_eq!(found.get_str("mode").unwrap(), "exclusive");
    let expires = found.get_datetime("expires").unwrap();
    assert_eq!(expires.timestamp_millis(), 1_780_000_000_123);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflict_does_not_change_the_record() {
    let fixture = fixture().await;
    let store = store::open(&fixture.url).await.unwrap();
    let name = Name::lock("one").unwrap();
    swap_one(&*store, create(&name, full_record())).await;
    let current = load_one(&*store, &name).await.unwrap();
    for _ in 0..2 {
        let conflict = swap_one(&*store, create(&name, record(1, "late"))).await;
        assert_eq!(conflict, Swapped::Conflict(Some(current.clone())));
    }
    assert_eq!(load_one(&*store, &name).await, Some(current.clone()));
    let written = swap_one(&*store, replace(&name, &current, full_record())).await;
    assert_eq!(written, Swapped::Written { tag: None });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_is_read_from_the_server() {
    let fixture = fixture().await;
    let store = store::open(&fixture.url).await.unwrap();
    let name = Name::lock("one").unwrap();
    let wall = || {
        let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        Time::from_micros(u64::try_from(wall.as_micros()).unwrap())
    };
    for round in 0..50 {
        let before = wall();
        let stamp = match round % 3 {
            0 => store.load(std::slice::from_ref(&name)).await.unwrap().stamp,
            1 => {
                let write = create(&name, record(1, ""));
                store.swap(vec![write]).await.unwrap().stamp
            }
            _ => store.swap(Vec::new()).await.unwrap().stamp,
        };
        // The server runs on this machine, with the same clock.
        assert!(
            stamp.time + stamp.resolution >= before,
            "{stamp:?} {before}"
        );
        assert!(stamp.time <= wall(), "{stamp:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_find_a_ttl_index() {
    let fixture = fixture().await;
    let store = store::open(&fixture.url).await.unwrap();
    let checks = store.check().await.unwrap();
    assert!(
        checks.iter().all(|check| check.level < Level::Red),
        "{checks:?}"
    );
    let ttl = mongodb::options::IndexOptions::builder()
        .expire_after(Duration::from_secs(60))
        .build();
    let ttl = mongodb::IndexModel::builder()
        .keys(doc! { "expires": 1 })
        .options(ttl)
        .build();
    fixture.collection.create_index(ttl).await.unwrap();
    let checks = store.check().await.unwrap();
    assert_eq!(level(&checks, "expires_1"), Level::Red);
    let missing = fixture.collection.drop_index("leasehold_by_state").await;
    missing.unwrap();
    let checks = store.check().await.unwrap();
    assert_eq!(level(&checks, "leasehold_by_state"), Level::Yellow);
    assert_eq!(level(&checks, "one member"), Level::Yellow);
}
