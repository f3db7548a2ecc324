//! The contract of `find`.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Kind, Mode, Name, State};

use super::context::TestContext;
use super::store_helpers::{NOW, delete, find, find_names, holder, load, put, record, swap};
use crate::store::{Availability, Query, Store};

super::define_cases!(Store:
    find_by_prefix_is_in_name_order,
    prefix_is_taken_literally,
    find_without_a_prefix_returns_every_name,
    find_by_state_returns_the_oldest_first,
    find_accepts_states_of_every_kind,
    find_follows_state_changes,
    pages_are_complete_without_duplicates,
    find_filters_by_availability,
    find_returns_whole_records,
    invalid_cursor_is_refused_or_finds_nothing,
);

fn locks(context: &TestContext, suffix: &str) -> Query {
    Query {
        prefix: format!("{}{suffix}", context.prefix()),
        ..Query::all(Kind::Lock)
    }
}

/// Writes an item whose state began `after` microseconds after [`NOW`].
async fn put_item(store: &dyn Store, name: &Name, state: &str, after: u64) {
    let mut item = record(name.as_str());
    item.state = Some(State {
        label: state.into(),
        since: NOW + Duration::from_micros(after),
    });
    put(store, name, None, &item).await;
}

async fn find_by_prefix_is_in_name_order(context: TestContext) {
    let store = context.store().await;
    let inside = [
        "a",
        "a ",
        "a!",
        "aB",
        "aZ",
        "a_",
        "ab",
        "az",
        "a~",
        "a\u{e9}",
        "a🔒",
        "a\u{10ffff}",
        "a\u{10ffff}z",
    ];
    let outside = ["A", "`", "B", "b", "\u{e9}", "\u{301}", "\u{10ffff}"];
    for suffix in inside.iter().chain(&outside) {
        put(&*store, &context.name(suffix), None, &record("")).await;
    }
    let mut expected = inside.map(|suffix| context.name(suffix)).to_vec();
    expected.sort();
    find_names(&*store, &locks(&context, "a"), &expected).await;
    let last = ["a\u{10ffff}", "a\u{10ffff}z"].map(|suffix| context.name(suffix));
    find_names(&*store, &locks(&context, "a\u{10ffff}"), &last).await;
    find_names(&*store, &locks(&context, "nothing starts like this"), &[]).await;
}

async fn prefix_is_taken_literally(context: TestContext) {
    let store = context.store().await;
    let marks = [
        "%", "_", "\\", "*", "?", "[a]", "'", "\"", "^", ".", "$", "é", "e\u{301}",
    ];
    for mark in marks {
        for name in [format!("x{mark}y"), format!("x{mark}")] {
            put(&*store, &context.name(&name), None, &record("")).await;
        }
    }
    put(&*store, &context.name("xay"), None, &record("")).await;
    put(&*store, &context.name("X%y"), None, &record("")).await;
    for mark in marks {
        let expected =
            [format!("x{mark}"), format!("x{mark}y")].map(|suffix| context.name(&suffix));
        find_names(&*store, &locks(&context, &format!("x{mark}")), &expected).await;
    }
}

async fn find_without_a_prefix_returns_every_name(context: TestContext) {
    let store = context.store().await;
    let (one, other) = (
        context.name("one"),
        context.name_of_kind(Kind::Gate, "other"),
    );
    put(&*store, &one, None, &record("")).await;
    put(&*store, &other, None, &record("")).await;
    let query = Query {
        limit: 1_000,
        ..Query::all(Kind::Lock)
    };
    let found = find(&*store, &query).await;
    assert!(
        found.iter().any(|(name, _)| *name == one),
        "an existing record is found"
    );
    assert!(found.iter().all(|(name, _)| name.kind() == Kind::Lock));
    assert!(
        found.is_sorted_by(|(a, _), (b, _)| a < b),
        "the records are in name order"
    );
}

async fn find_by_state_returns_the_oldest_first(context: TestContext) {
    let store = context.store().await;
    let items = [
        ("e", 40),
        ("d", 10),
        ("c", 30),
        ("b", 10),
        ("a", 20),
        ("B", 10),
    ];
    for (suffix, after) in items {
        put_item(&*store, &context.name(suffix), "REQUESTED", after).await;
    }
    put_item(&*store, &context.name("other"), "DONE", 0).await;
    put(&*store, &context.name("none"), None, &record("")).await;
    let requested = Query {
        state: Some("REQUESTED".into()),
        ..locks(&context, "")
    };
    let expected = ["B", "b", "d", "a", "c", "e"].map(|suffix| context.name(suffix));
    find_names(&*store, &requested, &expected).await;
    let with_prefix = Query {
        state: Some("REQUESTED".into()),
        ..locks(&context, "b")
    };
    find_names(&*store, &with_prefix, &[context.name("b")]).await;
}

async fn find_accepts_states_of_every_kind(context: TestContext) {
    let store = context.store().await;
    // Labels that no other case uses, so that the query requires no prefix.
    let unique = &context.prefix()[5..21];
    let labels = [
        "%", "_", " ", "", "'", "\\", "é", "e\u{301}", "x", "X", "🔒",
    ]
    .map(|end| format!("{unique}{end}"));
    for (index, label) in labels.iter().enumerate() {
        put_item(&*store, &context.name(&index.to_string()), label, 0).await;
    }
    for (index, label) in labels.iter().enumerate() {
        let query = Query {
            state: Some(label.as_str().into()),
            ..Query::all(Kind::Lock)
        };
        find_names(&*store, &query, &[context.name(&index.to_string())]).await;
    }
}

async fn find_follows_state_changes(context: TestContext) {
    let (store, name) = (context.store().await, context.name("item"));
    let in_state = |label: &str| Query {
        state: Some(label.into()),
        ..locks(&context, "")
    };
    let there = std::slice::from_ref(&name);
    put_item(&*store, &name, "A", 0).await;
    find_names(&*store, &in_state("A"), there).await;
    let mut current = load(&*store, &name).await.expect("the record exists");
    for (next, after) in [(Some("B"), 1), (None, 2), (Some("A"), 3)] {
        Arc::make_mut(&mut current.record).state = next.map(|label| State {
            label: label.into(),
            since: NOW + Duration::from_micros(after),
        });
        current.version = put(&*store, &name, Some(&current.version), &current.record).await;
        for label in ["A", "B"] {
            let expected = if next == Some(label) { there } else { &[] };
            find_names(&*store, &in_state(label), expected).await;
        }
        find_names(&*store, &locks(&context, ""), there).await;
    }
    swap(&*store, delete(&name, &current.version)).await;
    find_names(&*store, &in_state("A"), &[]).await;
    find_names(&*store, &locks(&context, ""), &[]).await;
}

async fn pages_are_complete_without_duplicates(context: TestContext) {
    let store = context.store().await;
    let mut by_name: Vec<_> = (0..23)
        .map(|n| context.name(&format!("{}:{n}", n % 5)))
        .collect();
    for (index, name) in by_name.iter().enumerate() {
        // Many items of the same age, so that a page ends between them.
        put_item(&*store, name, "S", index as u64 / 9).await;
    }
    let mut by_age: Vec<_> = by_name.iter().cloned().enumerate().collect();
    by_age.sort_by_key(|(index, name)| (index / 9, name.clone()));
    let by_age: Vec<_> = by_age.into_iter().map(|(_, name)| name).collect();
    by_name.sort();
    for limit in [1, 2, 7, 22, 23, 24] {
        let query = Query {
            limit,
            ..locks(&context, "")
        };
        find_names(&*store, &query, &by_name).await;
        let query = Query {
            state: Some("S".into()),
            ..query
        };
        find_names(&*store, &query, &by_age).await;
    }
}

async fn find_filters_by_availability(context: TestContext) {
    let store = context.store().await;
    let names = ["free", "held", "over", "sharing"].map(|suffix| context.name(suffix));
    let expiries: [&[u64]; 4] = [&[], &[2_000_000], &[1_000_000], &[500_000, 3_000_000]];
    for (name, expiries) in names.iter().zip(expiries) {
        let mut item = record("");
        for (number, after) in (1..).zip(expiries) {
            let mut holder = holder(number, Mode::Shared { limit: None });
            holder.expires_at = NOW + Duration::from_micros(*after);
            item.holders.push(holder);
        }
        item.state = Some(State {
            label: "S".into(),
            since: NOW,
        });
        put(&*store, name, None, &item).await;
    }
    let at = NOW + Duration::from_secs(2);
    let [free, held, over, sharing] = names;
    for state in [None, Some("S".into())] {
        let query = Query {
            state,
            ..locks(&context, "")
        };
        // Availability is a hint: the store may return more records, but never fewer.
        for (availability, expected) in [
            (Availability::Free(at), [&free, &over]),
            (Availability::Held(at), [&held, &sharing]),
        ] {
            let query = Query {
                availability: Some(availability),
                limit: 1,
                ..query.clone()
            };
            find_until_includes(&*store, &query, &expected).await;
        }
    }
}

/// Repeats the query until it finds at least these names. The names must be in order.
async fn find_until_includes(store: &dyn Store, query: &Query, expected: &[&Name]) {
    for attempt in 0.. {
        let found = find(store, query).await;
        let names: Vec<_> = found.iter().map(|(name, _)| name).collect();
        assert!(names.is_sorted(), "{query:?} found {names:?}");
        if expected.iter().all(|name| names.contains(name)) {
            return;
        }
        assert!(attempt < 50, "{query:?} found only {names:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn find_returns_whole_records(context: TestContext) {
    let (store, name) = (context.store().await, context.name("item"));
    let mut item = record("the whole body");
    item.holders = vec![holder(4, Mode::Exclusive)];
    item.state = Some(State {
        label: "S".into(),
        since: NOW,
    });
    put(&*store, &name, None, &item).await;
    let stored = load(&*store, &name).await.expect("the record exists");
    for state in [None, Some("S".into())] {
        let query = Query {
            state,
            ..locks(&context, "")
        };
        find_names(&*store, &query, std::slice::from_ref(&name)).await;
        let found = find(&*store, &query).await;
        assert_eq!(found, [(name.clone(), stored.clone())]);
    }
}

async fn invalid_cursor_is_refused_or_finds_nothing(context: TestContext) {
    let store = context.store().await;
    for state in [None, Some("S".into())] {
        for cursor in [
            "",
            "banana",
            "🔒",
            "-1:x",
            "99999999999999999999:x",
            "' or 1=1",
        ] {
            let query = Query {
                state: state.clone(),
                cursor: Some(cursor.to_owned()),
                ..locks(&context, "")
            };
            match store.find(&query).await {
                Ok(page) => assert!(page.value.records.is_empty()),
                Err(crate::Error::Invalid(_)) => {}
                Err(other) => panic!("the cursor {cursor:?} gave {other:?}"),
            }
        }
    }
}
