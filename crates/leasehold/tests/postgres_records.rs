//! Records in PostgreSQL: round trips, readable form, corrupt rows, and the cost of changes.
#![cfg(feature = "postgres")]

mod postgres_support;

use std::time::Duration;

use leasehold::core::{Mode, Name, State, Time};
use leasehold::store::Store;
use postgres_support::*;
use tokio::time::Instant;

#[tokio::test]
async fn record_round_trips_through_every_read() {
    let fixture = Fixture::new().await;
    let store = fixture.open().await;
    let name = name("a/b '\"#?%_🔒");
    record_round_trips(&*store, &*fixture.open().await, &name).await;
}

#[tokio::test]
async fn body_with_nul_round_trips() {
    let fixture = Fixture::new().await;
    let store = fixture.open().await;
    let name = name("nul");
    swap_one(&*store, create(&name, record(1, "a\0b"))).await;
    assert_eq!(fixture.sql("select body from $T").await, "a\u{2400}b");
    for body in ["a\0b", "plain \u{2400}", "\0", ""] {
        let current = load_one(&*store, &name).await.unwrap();
        let write = replace(&name, &current, record(2, body));
        assert_eq!(swap_one(&*store, write).await, WRITTEN);
        let stored = load_one(&*store, &name).await.unwrap();
        assert_eq!(&*stored.record.body, body);
    }
}

#[tokio::test]
async fn leases_are_readable_with_psql() {
    let fixture = Fixture::new().await;
    let store = fixture.open().await;
    let expires_at = Time::from_micros(1_700_000_000_250_000);
    let mut held = record(1_700_000_000_000_002, "step 3");
    held.holders = vec![
        holder(7, "web-1:17", Mode::Shared { limit: None }, expires_at),
        holder(8, "nul \0", Mode::Shared { limit: None }, expires_at),
    ];
    held.state = Some(State {
        label: "REQUESTED".into(),
        since: expires_at,
    });
    swap_one(&*store, create(&name("nightly"), held)).await;
    let view = fixture.table.replace("records", "leases");
    let shown = fixture
        .sql(&format!(
            "set time zone 'UTC'; select concat_ws('|', kind, name, fence, owner, expires_at, state, state_since, body) \
             from {view}"
        ))
        .await;
    assert_eq!(
        shown,
        "lock|nightly|1700000000000002|web-1:17, nul \u{2400}|2023-11-14 22:13:20.25+00|REQUESTED|\
         2023-11-14 22:13:20.25+00|step 3"
    );
}

#[tokio::test]
async fn corrupt_row_is_reported_by_name_and_blocks_no_other_write() {
    let fixture = Fixture::new().await;
    let store = fixture.open().await;
    let (bad, good) = (name("bad one"), name("good"));
    let both = vec![create(&bad, full_record()), create(&good, record(1, ""))];
    store.swap(both).await.unwrap();
    for damage in [
        "holders = '{}'",
        "put = 'xyz'",
        "fence = -1",
        "state = null",
    ] {
        let damage = format!(
            "create table if not exists {t}_kept as select * from {t}; \
             update {t} set {damage} where name = 'bad one'",
            t = fixture.table
        );
        fixture.sql(&damage).await;
        corrupt_record_does_not_block_others(&*store, &bad, &good).await;
        let repair = "truncate $T; insert into $T select * from $T_kept";
        fixture.sql(repair).await;
    }
}

/// An update that changes no indexed column stays on its page and needs no vacuum (a heap-only tuple).
#[tokio::test]
async fn renewals_do_not_grow_indexes() {
    let fixture = Fixture::new().await;
    let store = fixture.open().await;
    let names: Vec<_> = (0..64).map(|n| name(&format!("n{n}"))).collect();
    let writes = names.iter().map(|name| {
        let mut item = record(1, "body");
        item.state = Some(State {
            label: "S".into(),
            since: Time::from_micros(1),
        });
        create(name, item)
    });
    store.swap(writes.collect()).await.unwrap();
    let size = "select pg_indexes_size('$T')";
    let before = fixture.sql(size).await;
    for round in 2..102 {
        let current = store.load(&names).await.unwrap().value;
        let writes = names.iter().zip(current).map(|(name, stored)| {
            let stored = stored.unwrap();
            let mut next = record(round, "body");
            next.state = stored.record.state.clone();
            replace(name, &stored, next)
        });
        let swapped = store.swap(writes.collect()).await.unwrap().value;
        assert!(swapped.iter().all(|swapped| *swapped == WRITTEN));
    }
    assert_eq!(fixture.sql(size).await, before);
    // 6,400 updates would take over 100 pages if each kept its old row.
    let pages = fixture.sql("select pg_relation_size('$T') / 8192").await;
    assert!(pages.parse::<u32>().unwrap() < 20, "{pages} pages");
}

/// A statement prepared for an empty table has a plan for an empty one, and the table may never be analysed.
#[tokio::test]
async fn table_that_has_grown_is_read_by_index() {
    let fixture = Fixture::new().await;
    // Without listening, the store uses a single connection.
    let store = fixture.open_with("&changes=off").await;
    fixture
        .sql("alter table $T set (autovacuum_enabled = off)")
        .await;
    let first = name("first");
    swap_one(&*store, create(&first, record(1, ""))).await;
    // The server chooses a generic plan after a few calls.
    for _ in 0..10 {
        write_again(&*store, &first).await;
    }
    for batch in 0..20 {
        let names = (0..500).map(|n| name(&format!("{batch}/{n}")));
        let writes = names.map(|name| create(&name, record(1, "")));
        store.swap(writes.collect()).await.unwrap();
    }
    // A session reports its statistics once a second, while it is active.
    let mut figures = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let reported = Instant::now() + Duration::from_millis(1200);
        while Instant::now() < reported {
            write_again(&*store, &first).await;
        }
        let sql = "select concat(seq_tup_read, ' ', idx_scan) from pg_stat_user_tables where relid = '$T'::regclass";
        let statistics = fixture.sql(sql).await;
        let (read, found) = statistics.split_once(' ').unwrap();
        let now: (u64, u64) = (read.parse().unwrap(), found.parse().unwrap());
        if let Some((read, found)) = figures.last()
            && *read == now.0
            && *found < now.1
        {
            break;
        }
        figures.push(now);
        assert!(
            Instant::now() < deadline,
            "the table is scanned: {figures:?}"
        );
    }
}

async fn write_again(store: &dyn Store, name: &Name) {
    let current = load_one(store, name).await.unwrap();
    let next = record(current.record.fence.get() + 1, "");
    assert_eq!(
        swap_one(store, replace(name, &current, next)).await,
        WRITTEN
    );
}
