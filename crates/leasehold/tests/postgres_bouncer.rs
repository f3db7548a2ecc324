//! PostgreSQL behind PgBouncer in transaction mode, where each statement may use another session.
#![cfg(feature = "postgres")]

mod postgres_support;

use std::time::Duration;

use leasehold::core::Outcome;
use leasehold::engine::Engine;
use leasehold::store::Swapped;
use postgres_support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_increment_is_lost_with_changing_sessions() {
    let server = leasehold_testbed::shared("postgres").await.unwrap();
    let bouncer = server.behind_pgbouncer().await.unwrap();
    let fixture = Fixture::on(bouncer.port());
    let names: Vec<_> = (0..4).map(|n| name(&format!("counter {n}"))).collect();
    let first = fixture.open().await;
    let zeros = names.iter().map(|name| create(name, record(1, "0")));
    first.swap(zeros.collect()).await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let (store, names) = (fixture.open().await, names.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..8 {
                let mut left = names.clone();
                while !left.is_empty() {
                    let loaded = store.load(&left).await.unwrap().value;
                    let batch = left.iter().zip(loaded).map(|(name, stored)| {
                        let stored = stored.unwrap();
                        let count: u32 = stored.record.body.parse().unwrap();
                        replace(name, &stored, record(1, &(count + 1).to_string()))
                    });
                    let swapped = store.swap(batch.collect()).await.unwrap().value;
                    let mut answers = swapped.into_iter();
                    left.retain(|_| !matches!(answers.next(), Some(Swapped::Written { .. })));
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for stored in first.load(&names).await.unwrap().value {
        assert_eq!(&*stored.unwrap().record.body, "48");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_take_turns_behind_pgbouncer() {
    let server = leasehold_testbed::shared("postgres").await.unwrap();
    let bouncer = server.behind_pgbouncer().await.unwrap();
    let fixture = Fixture::on(bouncer.port());
    let name = name("turns");
    let mut tasks = Vec::new();
    for number in 0..3 {
        let engine = Engine::start(fixture.open().await).await.unwrap();
        let name = name.clone();
        tasks.push(tokio::spawn(async move {
            for round in 0..4 {
                let nonce = format!("{number} {round}");
                let fence = grant(&engine, &name, &nonce, Duration::from_secs(60)).await;
                assert_eq!(release(&engine, &name, fence).await, Ok(Outcome::Released));
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn listener_is_notified_of_writes_through_pgbouncer() {
    let server = leasehold_testbed::shared("postgres").await.unwrap();
    let bouncer = server.behind_pgbouncer().await.unwrap();
    let fixture = Fixture::on(bouncer.port());
    let direct = server.port().to_string();
    let url = fixture.url.replace(&bouncer.port().to_string(), &direct);
    let writer = fixture.open().await;
    let mut changes = leasehold::store::open(&url)
        .await
        .unwrap()
        .changes()
        .unwrap();
    let registered = "select count(*) from $T where kind = 'listener'";
    while fixture.sql(registered).await != "1" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    swap_one(&*writer, create(&name("freed"), record(1, ""))).await;
    assert_eq!(changes.recv().await, Some(name("freed")));
}

/// Runs `change` between calls that use prepared statements, as other clients of the pooler may change a session. Calls
/// are sequential here, so all of them use the same session.
async fn check_session_change(change: impl AsyncFn(&Fixture, &Session)) {
    let server = leasehold_testbed::shared("postgres").await.unwrap();
    let bouncer = server.behind_pgbouncer().await.unwrap();
    let fixture = Fixture::on(bouncer.port());
    let store = fixture.open_with("&changes=off").await;
    let name = name("a");
    swap_one(&*store, create(&name, record(1, "0"))).await;
    let count = async |from: u32, to: u32| {
        for count in from..to {
            let current = load_one(&*store, &name).await.unwrap();
            assert_eq!(&*current.record.body, count.to_string());
            let write = replace(&name, &current, record(1, &(count + 1).to_string()));
            assert_eq!(swap_one(&*store, write).await, WRITTEN);
        }
    };
    count(0, 3).await;
    change(&fixture, &Session(fixture.session().await)).await;
    count(3, 6).await;
}

struct Session(tokio_postgres::Client);

impl Session {
    async fn run(&self, sql: &str) {
        self.0.batch_execute(sql).await.unwrap();
    }

    /// Returns name, types and text of the prepared statements that load and update records.
    async fn prepared(&self) -> Vec<[String; 3]> {
        let sql = "select name, trim(both '{}' from parameter_types::text), statement from pg_prepared_statements \
             where statement like '%$17 = %'";
        let messages = self.0.simple_query(sql).await.unwrap();
        let rows = messages.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        rows.map(|row| [0, 1, 2].map(|column| row.get(column).unwrap().to_owned()))
            .collect()
    }
}

#[tokio::test]
async fn deallocated_statements_are_prepared_again() {
    check_session_change(async |_, session| {
        assert!(session.prepared().await.len() >= 2, "a load and an update");
        session.run("deallocate all").await;
    })
    .await;
}

#[tokio::test]
async fn statements_replaced_by_another_process_are_detected() {
    check_session_change(async |fixture, session| {
        let other = Fixture::on(fixture.port);
        other.open_with("&changes=off").await;
        let schema = |fixture: &Fixture| fixture.table.split('.').next().unwrap().to_owned();
        let (ours, theirs) = (schema(fixture), schema(&other));
        let prepared = session.prepared().await;
        assert!(prepared.len() >= 2, "a load and an update");
        for [name, types, text] in prepared {
            let (_, mark) = text.split_once("$17 = '").unwrap();
            let (mark, _) = mark.split_once('\'').unwrap();
            let text = text.replace(&ours, &theirs).replace(mark, "their mark");
            let replace = format!("deallocate {name}; prepare {name} ({types}) as {text}");
            session.run(&replace).await;
        }
    })
    .await;
}

#[tokio::test]
async fn statements_older_than_the_table_are_prepared_again() {
    check_session_change(async |fixture, session| {
        assert!(session.prepared().await.len() >= 2, "a load and an update");
        let view = fixture.table.replace("_records", "_leases");
        let change = format!(
            "drop view {view}; alter table {} alter column body type varchar",
            fixture.table
        );
        session.run(&change).await;
    })
    .await;
}
