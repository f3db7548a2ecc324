//! Change notifications in PostgreSQL: writes of one process reach all listening processes.
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

/// Ends a test that would hang: a notification takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a record with an exclusive holder.
fn held_record() -> leasehold::core::Record {
    let mut held_record = record(1, "");
    held_record.holders = vec![holder(1, "h", Mode::Exclusive, Time::from_micros(5))];
    held_record
}

/// Waits until this many listeners with this body are registered.
async fn wait_for_listeners(fixture: &Fixture, count: usize, body: &str) {
    let count = count.to_string();
    let sql = format!("select count(*) from $T where kind = 'listener' and body = '{body}'");
    let wait = async {
        while fixture.sql(&sql).await != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait)
        .await
        .expect("registered");
}

/// Writes a record and closes the store, like a short-lived process.
async fn write_and_close(store: Arc<dyn Store>, name: &Name, record: leasehold::core::Record) {
    assert_eq!(swap_one(&*store, create(name, record)).await, WRITTEN);
    store.close().await;
}

async fn next_change(changes: &mut Changes) -> Name {
    let change = tokio::time::timeout(TIMEOUT, changes.recv()).await;
    change
        .expect("notified in time")
        .expect("the store is open")
}

#[tokio::test]
async fn watcher_is_notified_of_the_first_write_of_every_process() {
    let fixture = Fixture::new().await;
    let watcher = fixture.open().await;
    let mut changes = watcher.changes().unwrap();
    watcher.watch();
    wait_for_listeners(&fixture, 1, "watches").await;
    for round in 0..12 {
        let name = name(&format!("job {round}"));
        write_and_close(fixture.open().await, &name, held_record()).await;
        assert_eq!(next_change(&mut changes).await, name);
    }
}

#[tokio::test]
async fn waiter_is_notified_of_releases_only() {
    let fixture = Fixture::new().await;
    let mut changes = fixture.open().await.changes().unwrap();
    wait_for_listeners(&fixture, 1, "").await;
    write_and_close(fixture.open().await, &name("taken"), held_record()).await;
    write_and_close(fixture.open().await, &name("freed"), record(1, "")).await;
    assert_eq!(next_change(&mut changes).await, name("freed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriber_receives_events_of_short_lived_engines() {
    let fixture = Fixture::new().await;
    let watching = Engine::start(fixture.open().await).await.unwrap();
    let mut events = watching.subscribe();
    wait_for_listeners(&fixture, 1, "watches").await;
    let mut next = async |name: &Name| loop {
        let event = tokio::time::timeout(TIMEOUT, events.next()).await;
        let event = event.expect("an event in time").expect("the engine runs");
        if let Ok(event) = event
            && event.name == *name
        {
            return event.event;
        }
    };
    for round in 0..4 {
        let lease = name(&format!("lease {round}"));
        let engine = Engine::start(fixture.open().await).await.unwrap();
        let request = AcquireRequest {
            name: lease.clone(),
            nonce: leasehold::core::Nonce::new("nonce").unwrap(),
            owner: "test".into(),
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
        let engine = Engine::start(fixture.open().await).await.unwrap();
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

        let engine = Engine::start(fixture.open().await).await.unwrap();
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
    let fixture = Fixture::new().await;
    let engine = Engine::start(fixture.open().await).await.unwrap();
    wait_for_listeners(&fixture, 1, "").await;
    engine.close().await;
    wait_for_listeners(&fixture, 0, "").await;
}

#[tokio::test]
async fn expired_listeners_are_deleted() {
    let fixture = Fixture::new().await;
    let store = fixture.open().await;
    let insert = "insert into $T (kind, name, write_id, fence, held_until, holders, body) values \
         ('listener', 'dead', '00000000-0000-0000-0000-000000000000', 0, 1, '[]', 'watches')";
    fixture.sql(insert).await;
    let _changes = store.changes().unwrap();
    wait_for_listeners(&fixture, 1, "").await;
    wait_for_listeners(&fixture, 0, "watches").await;
}

#[tokio::test]
async fn no_notification_is_sent_without_other_listeners() {
    let fixture = Fixture::new().await;
    let store = fixture.open().await;
    let _changes = store.changes().unwrap();
    store.watch();
    wait_for_listeners(&fixture, 1, "watches").await;
    // A session that is not registered receives every message.
    let channel = format!("leasehold_{}", &fixture.table[..12]);
    let url = fixture.url.split('?').next().unwrap();
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let (sender, mut messages) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                let _ = sender.send(notification.payload().to_owned());
            }
        }
    });
    let listen = format!("listen \"{channel}\"");
    client.batch_execute(&listen).await.unwrap();
    write_and_close(store, &name("a"), record(1, "")).await;
    let end = format!("notify \"{channel}\", 'end'");
    client.batch_execute(&end).await.unwrap();
    let message = tokio::time::timeout(TIMEOUT, messages.recv())
        .await
        .unwrap();
    assert_eq!(message.as_deref(), Some("end"));
}

#[tokio::test]
async fn listener_requires_no_additional_privilege() {
    let fixture = Fixture::new().await;
    drop(fixture.open().await);
    let schema = fixture.table.split('.').next().unwrap();
    let role = format!("app_{schema}");
    let rights = format!(
        "create role {role} login; grant usage on schema {schema} to {role}; \
         grant select, insert, update, delete on $T to {role}"
    );
    fixture.sql(&rights).await;
    let url = fixture.url.replace("postgres@", &format!("{role}@"));
    let store = leasehold::store::open(&url).await.unwrap();
    let mut changes = store.changes().unwrap();
    wait_for_listeners(&fixture, 1, "").await;
    let writer = leasehold::store::open(&url).await.unwrap();
    write_and_close(writer, &name("freed"), record(1, "")).await;
    assert_eq!(next_change(&mut changes).await, name("freed"));
}

#[tokio::test]
async fn leases_view_contains_no_listeners() {
    let fixture = Fixture::new().await;
    let store = fixture.open().await;
    let _changes = store.changes().unwrap();
    wait_for_listeners(&fixture, 1, "").await;
    let view = fixture.table.replace("_records", "_leases");
    assert_eq!(
        fixture.sql(&format!("select count(*) from {view}")).await,
        "0"
    );
}
