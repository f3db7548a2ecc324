//! Hints on PostgreSQL: what a process does at once reaches every other one that listens.
#![cfg(feature = "postgres")]

mod postgres_support;

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use leasehold::core::{EndReason, Event, Mode, Name, Time};
use leasehold::engine::Engine;
use leasehold::store::{Changes, Store};
use leasehold::{AcquireRequest, BreakRequest, Leases as _, PutRequest};
use postgres_support::*;
use tokio_postgres::{AsyncMessage, NoTls};

/// A hint comes within milliseconds; this only ends a test that would never end.
const NEVER: Duration = Duration::from_secs(60);

/// A record that an exclusive holder has.
fn held() -> leasehold::core::Record {
    let mut held = record(1, "");
    held.holders = vec![holder(1, "h", Mode::Exclusive, Time::from_micros(5))];
    held
}

/// Waits until this many listeners with this body are registered.
async fn registered(ground: &Ground, count: usize, body: &str) {
    let count = count.to_string();
    let sql = format!("select count(*) from $T where kind = 'listener' and body = '{body}'");
    let wait = async {
        while ground.sql(&sql).await != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(NEVER, wait).await.expect("registered");
}

/// A write by a process that does nothing else.
async fn write_and_go(store: Arc<dyn Store>, name: &Name, record: leasehold::core::Record) {
    assert_eq!(swap_one(&*store, create(name, record)).await, WRITTEN);
    store.close().await;
}

async fn hint(changes: &mut Changes) -> Name {
    let hint = tokio::time::timeout(NEVER, changes.recv()).await;
    hint.expect("a hint comes").expect("the store is open")
}

#[tokio::test]
async fn watcher_hears_of_the_first_write_of_every_process() {
    let ground = Ground::new().await;
    let watcher = ground.open().await;
    let mut changes = watcher.changes().unwrap();
    watcher.watch();
    registered(&ground, 1, "watches").await;
    for round in 0..12 {
        let name = name(&format!("job {round}"));
        write_and_go(ground.open().await, &name, held()).await;
        assert_eq!(hint(&mut changes).await, name);
    }
}

#[tokio::test]
async fn waiter_hears_of_releases_only() {
    let ground = Ground::new().await;
    let mut changes = ground.open().await.changes().unwrap();
    registered(&ground, 1, "").await;
    write_and_go(ground.open().await, &name("taken"), held()).await;
    write_and_go(ground.open().await, &name("freed"), record(1, "")).await;
    assert_eq!(hint(&mut changes).await, name("freed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriber_hears_of_what_short_lived_engines_do() {
    let ground = Ground::new().await;
    let watching = Engine::start(ground.open().await).await.unwrap();
    let mut events = watching.subscribe();
    registered(&ground, 1, "watches").await;
    let mut next = async |name: &Name| loop {
        let event = tokio::time::timeout(NEVER, events.next()).await;
        let happened = event.expect("an event comes").expect("the engine runs");
        if let Ok(happened) = happened
            && happened.name == *name
        {
            return happened.event;
        }
    };
    for round in 0..4 {
        let lease = name(&format!("lease {round}"));
        let engine = Engine::start(ground.open().await).await.unwrap();
        let request = AcquireRequest {
            name: lease.clone(),
            nonce: leasehold::core::Nonce::new("nonce").unwrap(),
            owner: "someone".into(),
            ttl: Duration::from_secs(60),
            mode: Mode::Exclusive,
            fence: None,
            wait: Duration::ZERO,
        };
        engine.acquire(request).await.unwrap();
        engine.close().await;
        let event = next(&lease).await;
        assert!(matches!(event, Event::Granted { .. }), "{event:?}");

        let item = name(&format!("item {round}"));
        let engine = Engine::start(ground.open().await).await.unwrap();
        let request = PutRequest {
            name: item.clone(),
            state: "READY".into(),
            body: None,
            nonce: None,
        };
        engine.put(request).await.unwrap();
        engine.close().await;
        let event = next(&item).await;
        assert!(matches!(event, Event::Updated { .. }), "{event:?}");

        let engine = Engine::start(ground.open().await).await.unwrap();
        let force = BreakRequest::Force {
            fence: None,
            reason: "test".into(),
            now: true,
        };
        engine.break_lease(&lease, force).await.unwrap();
        engine.close().await;
        let event = next(&lease).await;
        let is_broken = matches!(
            event,
            Event::Ended {
                how: Some(EndReason::Broken),
                ..
            }
        );
        assert!(is_broken, "{event:?}");
    }
}

#[tokio::test]
async fn listener_withdraws_when_its_engine_closes() {
    let ground = Ground::new().await;
    let engine = Engine::start(ground.open().await).await.unwrap();
    registered(&ground, 1, "").await;
    engine.close().await;
    registered(&ground, 0, "").await;
}

#[tokio::test]
async fn lapsed_listeners_are_deleted() {
    let ground = Ground::new().await;
    let store = ground.open().await;
    let lapsed = "insert into $T (kind, name, write_id, fence, held_until, holders, body) values \
         ('listener', 'dead', '00000000-0000-0000-0000-000000000000', 0, 1, '[]', 'watches')";
    ground.sql(lapsed).await;
    let _changes = store.changes().unwrap();
    registered(&ground, 1, "").await;
    registered(&ground, 0, "watches").await;
}

#[tokio::test]
async fn nothing_is_notified_while_no_other_process_listens() {
    let ground = Ground::new().await;
    let store = ground.open().await;
    let _changes = store.changes().unwrap();
    store.watch();
    registered(&ground, 1, "watches").await;
    // A session that is not registered receives every message.
    let channel = format!("leasehold_{}", &ground.table[..12]);
    let url = ground.url.split('?').next().unwrap();
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let (heard, mut messages) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                let _ = heard.send(notification.payload().to_owned());
            }
        }
    });
    let listen = format!("listen \"{channel}\"");
    client.batch_execute(&listen).await.unwrap();
    write_and_go(store, &name("a"), record(1, "")).await;
    let end = format!("notify \"{channel}\", 'end'");
    client.batch_execute(&end).await.unwrap();
    let message = tokio::time::timeout(NEVER, messages.recv()).await.unwrap();
    assert_eq!(message.as_deref(), Some("end"));
}

#[tokio::test]
async fn listener_needs_no_right_of_its_own() {
    let ground = Ground::new().await;
    drop(ground.open().await);
    let schema = ground.table.split('.').next().unwrap();
    let role = format!("app_{schema}");
    let rights = format!(
        "create role {role} login; grant usage on schema {schema} to {role}; \
         grant select, insert, update, delete on $T to {role}"
    );
    ground.sql(&rights).await;
    let url = ground.url.replace("postgres@", &format!("{role}@"));
    let store = leasehold::store::open(&url).await.unwrap();
    let mut changes = store.changes().unwrap();
    registered(&ground, 1, "").await;
    let writer = leasehold::store::open(&url).await.unwrap();
    write_and_go(writer, &name("freed"), record(1, "")).await;
    assert_eq!(hint(&mut changes).await, name("freed"));
}

#[tokio::test]
async fn view_for_people_shows_no_listeners() {
    let ground = Ground::new().await;
    let store = ground.open().await;
    let _changes = store.changes().unwrap();
    registered(&ground, 1, "").await;
    let view = ground.table.replace("_records", "_leases");
    assert_eq!(
        ground.sql(&format!("select count(*) from {view}")).await,
        "0"
    );
}
