//! Records in a SQLite file: round trips, queries, readable form, and corrupt rows.

#![cfg(feature = "sqlite")]

use leasehold::Error;
use leasehold::core::{Kind, Mode, Name, State, Time};
use leasehold::store::{Availability, Query, Store as _, Swapped, Write};

mod sqlite_support;
use sqlite_support::*;

#[tokio::test]
async fn record_round_trips_through_every_read() {
    let folder = Folder::new();
    let name = Name::lock("a/b '\"#?%_🔒").unwrap();
    let write = create(&name, full_record());
    let (id, record) = write.put.clone().unwrap();
    {
        let store = open(folder.join("leases.db")).await;
        row_of(&swap_one(&*store, write.clone()).await);
        let Swapped::Conflict(Some(current)) = swap_one(&*store, write).await else {
            panic!("a second insert must conflict");
        };
        assert_eq!((current.version.write, &current.record), (id, &record));
        let page = store.find(&Query::all(Kind::Lock)).await.unwrap().value;
        assert_eq!(page.records.len(), 1);
        assert_eq!(page.records[0].0, name);
        assert_eq!(page.records[0].1.record, record);
    }
    let store = open(folder.join("leases.db")).await;
    let found = load_one(&*store, &name).await.unwrap();
    assert_eq!((found.version.write, found.record), (id, record));
}

#[tokio::test]
async fn writes_of_a_batch_are_independent() {
    let folder = Folder::new();
    let store = open(folder.join("leases.db")).await;
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| Name::lock(name).unwrap());
    let first = store
        .swap(vec![
            create(&a, record(1, "a1")),
            create(&b, record(1, "b1")),
        ])
        .await
        .unwrap();
    for swapped in &first.value {
        row_of(swapped);
    }
    let (old_a, old_b) = (
        load_one(&*store, &a).await.unwrap(),
        load_one(&*store, &b).await.unwrap(),
    );

    let stale = Write {
        expect: Some(version(write_id())),
        ..create(&c, record(1, ""))
    };
    let delete = Write {
        put: None,
        ..replace(&b, &old_b, record(1, ""))
    };
    let batch = vec![
        replace(&a, &old_a, record(2, "a1")),
        stale,
        delete,
        create(&d, record(1, "d1")),
        create(&Name::gate("a").unwrap(), record(9, "gate")),
    ];
    let swapped = store.swap(batch).await.unwrap().value;
    assert_eq!(swapped[1], Swapped::Conflict(None));
    for number in [0, 2, 3, 4] {
        row_of(&swapped[number]);
    }
    let now = store.load(&[a.clone(), b, c, d]).await.unwrap().value;
    let bodies: Vec<_> = now
        .iter()
        .map(|found| {
            found
                .as_ref()
                .map(|found| (found.record.fence.get(), &*found.record.body))
        })
        .collect();
    assert_eq!(bodies, [Some((2, "a1")), None, None, Some((1, "d1"))]);
    // The replaced version no longer matches.
    let late = swap_one(&*store, replace(&a, &old_a, record(3, "late"))).await;
    assert_eq!(late, Swapped::Conflict(now[0].clone()));
}

#[tokio::test]
async fn reused_row_id_is_not_overwritten() {
    let folder = Folder::new();
    let store = open(folder.join("leases.db")).await;
    let [mine, other] = ["mine", "other"].map(|name| Name::lock(name).unwrap());
    let row = row_of(&swap_one(&*store, create(&mine, record(1, ""))).await);
    let seen = load_one(&*store, &mine).await.unwrap();
    assert!(row.is_some() && seen.version.tag == row);
    let delete = Write {
        put: None,
        ..replace(&mine, &seen, record(1, ""))
    };
    row_of(&swap_one(&*store, delete).await);
    let again = row_of(&swap_one(&*store, create(&other, record(7, "theirs"))).await);
    assert_eq!(again, row, "SQLite reuses the id of a deleted last row");
    let late = swap_one(&*store, replace(&mine, &seen, record(2, "mine"))).await;
    assert_eq!(late, Swapped::Conflict(None));
    let theirs = load_one(&*store, &other).await.unwrap();
    assert_eq!(&*theirs.record.body, "theirs");
    // A version without a row id is found by name.
    let unknown = Write {
        expect: Some(version(theirs.version.write)),
        ..replace(&other, &theirs, record(8, "by name"))
    };
    row_of(&swap_one(&*store, unknown).await);
    let theirs = load_one(&*store, &other).await.unwrap();
    assert_eq!(&*theirs.record.body, "by name");
}

#[tokio::test]
async fn prefixes_match_bytes_and_pages_have_no_gaps() {
    let folder = Folder::new();
    let store = open(folder.join("leases.db")).await;
    let names = [
        "a",
        "a%",
        "a%b",
        "a%c",
        "a_",
        "ab",
        "A%",
        "é",
        "é\u{301}",
        "\u{10FFFF}x",
        "b",
    ];
    let writes = names.map(|name| create(&Name::lock(name).unwrap(), record(1, "")));
    store.swap(writes.to_vec()).await.unwrap();

    for prefix in ["", "a", "a%", "A", "_", "é", "\u{10FFFF}", "a%b", "zz"] {
        let mut expected: Vec<_> = names
            .iter()
            .filter(|name| name.starts_with(prefix))
            .collect();
        expected.sort();
        let mut query = Query {
            prefix: prefix.into(),
            limit: 2,
            ..Query::all(Kind::Lock)
        };
        let mut found = Vec::new();
        loop {
            let page = store.find(&query).await.unwrap().value;
            assert!(page.records.len() <= 2);
            found.extend(page.records.into_iter().map(|(name, _)| name));
            match page.cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => break,
            }
        }
        let found: Vec<_> = found.iter().map(Name::as_str).collect();
        assert_eq!(found, expected.into_iter().copied().collect::<Vec<_>>());
    }
    let gates = store.find(&Query::all(Kind::Gate)).await.unwrap().value;
    assert!(gates.records.is_empty());
}

#[tokio::test]
async fn items_are_found_oldest_first_and_filtered_by_availability() {
    let folder = Folder::new();
    let store = open(folder.join("leases.db")).await;
    let soon = Time::from_micros(5_000_000);
    let items = [
        ("x3", 30, false),
        ("x1", 10, true),
        ("x2b", 20, false),
        ("x2a", 20, true),
        ("y", 5, false),
    ];
    let writes = items.map(|(name, since, held)| {
        let mut item = record(9, "");
        item.state = Some(State {
            label: "REQUESTED".into(),
            since: Time::from_micros(since),
        });
        if held {
            item.holders = vec![holder(9, "h", Mode::Exclusive, soon)];
        }
        create(&Name::lock(name).unwrap(), item)
    });
    store.swap(writes.to_vec()).await.unwrap();
    let plain = create(&Name::lock("x0").unwrap(), record(1, ""));
    swap_one(&*store, plain).await;

    let found = async |prefix: &str, availability| {
        let mut query = Query {
            prefix: prefix.into(),
            state: Some("REQUESTED".into()),
            availability,
            limit: 1,
            ..Query::all(Kind::Lock)
        };
        let mut found = Vec::new();
        loop {
            let page = store.find(&query).await.unwrap().value;
            found.extend(
                page.records
                    .into_iter()
                    .map(|(name, _)| name.as_str().to_owned()),
            );
            query.cursor = page.cursor;
            if query.cursor.is_none() {
                return found;
            }
        }
    };
    assert_eq!(found("", None).await, ["y", "x1", "x2a", "x2b", "x3"]);
    assert_eq!(found("x2", None).await, ["x2a", "x2b"]);
    let at = soon;
    assert_eq!(
        found("x", Some(Availability::Free(at))).await,
        ["x2b", "x3"]
    );
    assert_eq!(
        found("x", Some(Availability::Held(at))).await,
        ["x1", "x2a"]
    );
    let later = Time::from_micros(5_000_001);
    assert_eq!(found("x1", Some(Availability::Free(later))).await, ["x1"]);

    let query = Query {
        state: Some("REQUESTED".into()),
        cursor: Some("nonsense".into()),
        ..Query::all(Kind::Lock)
    };
    let error = store.find(&query).await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
}

#[tokio::test]
async fn leases_are_readable_with_sqlite3() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    let store = open(&path).await;
    let expires_at = Time::from_micros(1_700_000_000_250_000);
    let mut held = record(1_700_000_000_000_002, "step 3");
    held.holders = vec![holder(
        1_700_000_000_000_001,
        "web-1:17",
        Mode::Exclusive,
        expires_at,
    )];
    let mut shared = record(8, "");
    shared.holders = vec![
        holder(7, "r1", Mode::Shared { limit: None }, expires_at),
        holder(8, "r2", Mode::Shared { limit: None }, expires_at),
    ];
    let mut item = full_record();
    item.holders.clear();
    item.body = "{}".into();
    item.state = Some(State {
        label: "REQUESTED".into(),
        since: expires_at,
    });
    let [nightly, index, order] =
        ["nightly", "index", "order-1"].map(|name| Name::lock(name).unwrap());
    store
        .swap(vec![
            create(&nightly, held),
            create(&index, shared),
            create(&order, item),
        ])
        .await
        .unwrap();

    let shown = sqlite3(&path, "select * from leases order by name");
    let rows: Vec<_> = shown.lines().collect();
    assert_eq!(
        rows,
        [
            "lock|index|8|r1, r2|shared|2023-11-14 22:12:50.250|2023-11-14 22:13:20.250||||||",
            "lock|nightly|1700000000000002|web-1:17|exclusive|2023-11-14 22:12:50.250|2023-11-14 22:13:20.250||||||step 3",
            "lock|order-1|9007199254740991|||||REQUESTED|2023-11-14 22:13:20.250|é'\"--|completed|2023-11-14 22:13:20.123|{}",
        ]
    );
}

#[tokio::test]
async fn corrupt_row_is_reported_by_name() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    let store = open(&path).await;
    let [bad, good] = ["bad one", "good"].map(|name| Name::lock(name).unwrap());
    store
        .swap(vec![
            create(&bad, full_record()),
            create(&good, record(1, "")),
        ])
        .await
        .unwrap();
    for damage in [
        "holders = '[{]'",
        "last = '{}'",
        "put = 'xyz'",
        "state_since = null",
        "fence = -1",
        "fence = 3",
        "write = x'00'",
    ] {
        sqlite3(
            &path,
            &format!(
                "create table if not exists kept as select * from records; \
             update records set {damage} where name = 'bad one'"
            ),
        );
        let error = store.load(std::slice::from_ref(&bad)).await.unwrap_err();
        let Error::Corrupt(message) = &error else {
            panic!("{damage}: {error:?}");
        };
        assert!(message.contains("`bad one`"), "{message}");
        let found = store.find(&Query::all(Kind::Lock)).await;
        assert!(matches!(found, Err(Error::Corrupt(_))), "{damage}");
        // The other writes of a batch succeed.
        let current = load_one(&*store, &good).await.unwrap();
        let batch = vec![
            create(&bad, record(1, "")),
            replace(&good, &current, record(2, "")),
        ];
        let swapped = store.swap(batch).await.unwrap().value;
        assert!(
            matches!(swapped[0], Swapped::Failed(Error::Corrupt(_))),
            "{damage}"
        );
        row_of(&swapped[1]);
        sqlite3(
            &path,
            "delete from records; insert into records select * from kept",
        );
    }
}
