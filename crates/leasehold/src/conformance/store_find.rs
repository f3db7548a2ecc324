//! What `find` promises.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Kind, Mode, Name, State};

use super::bench::Bench;
use super::store_kit::{NOW, delete, find, find_names, holder, load, put, record, swap};
use crate::store::{Availability, Query, Store};

super::promises!(Store:
    finds_by_prefix_in_the_order_of_names,
    takes_a_prefix_literally,
    finds_everything_without_a_prefix,
    finds_by_state_the_oldest_first,
    finds_states_of_every_kind,
    an_item_moves_from_state_to_state,
    pages_lose_and_repeat_nothing,
    finds_what_is_available,
    finds_whole_records,
    a_wrong_cursor_breaks_nothing,
);

fn locks(bench: &Bench, suffix: &str) -> Query {
    Query {
        prefix: format!("{}{suffix}", bench.prefix()),
        ..Query::all(Kind::Lock)
    }
}

/// Puts an item into a state, so many microseconds after [`NOW`].
async fn put_item(store: &dyn Store, name: &Name, state: &str, after: u64) {
    let mut item = record(name.as_str());
    item.state = Some(State {
        label: state.into(),
        since: NOW + Duration::from_micros(after),
    });
    put(store, name, None, &item).await;
}

async fn finds_by_prefix_in_the_order_of_names(bench: Bench) {
    let store = bench.store().await;
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
        put(&*store, &bench.name(suffix), None, &record("")).await;
    }
    let mut expected = inside.map(|suffix| bench.name(suffix)).to_vec();
    expected.sort();
    find_names(&*store, &locks(&bench, "a"), &expected).await;
    let last = ["a\u{10ffff}", "a\u{10ffff}z"].map(|suffix| bench.name(suffix));
    find_names(&*store, &locks(&bench, "a\u{10ffff}"), &last).await;
    find_names(&*store, &locks(&bench, "nothing starts like this"), &[]).await;
}

async fn takes_a_prefix_literally(bench: Bench) {
    let store = bench.store().await;
    let marks = [
        "%", "_", "\\", "*", "?", "[a]", "'", "\"", "^", ".", "$", "é", "e\u{301}",
    ];
    for mark in marks {
        for name in [format!("x{mark}y"), format!("x{mark}")] {
            put(&*store, &bench.name(&name), None, &record("")).await;
        }
    }
    put(&*store, &bench.name("xay"), None, &record("")).await;
    put(&*store, &bench.name("X%y"), None, &record("")).await;
    for mark in marks {
        let expected = [format!("x{mark}"), format!("x{mark}y")].map(|suffix| bench.name(&suffix));
        find_names(&*store, &locks(&bench, &format!("x{mark}")), &expected).await;
    }
}

async fn finds_everything_without_a_prefix(bench: Bench) {
    let store = bench.store().await;
    let (one, other) = (bench.name("one"), bench.of_kind(Kind::Gate, "other"));
    put(&*store, &one, None, &record("")).await;
    put(&*store, &other, None, &record("")).await;
    let query = Query {
        limit: 1_000,
        ..Query::all(Kind::Lock)
    };
    let found = find(&*store, &query).await;
    assert!(
        found.iter().any(|(name, _)| *name == one),
        "what is there is found"
    );
    assert!(found.iter().all(|(name, _)| name.kind() == Kind::Lock));
    assert!(
        found.is_sorted_by(|(a, _), (b, _)| a < b),
        "in the order of names"
    );
}

async fn finds_by_state_the_oldest_first(bench: Bench) {
    let store = bench.store().await;
    let items = [
        ("e", 40),
        ("d", 10),
        ("c", 30),
        ("b", 10),
        ("a", 20),
        ("B", 10),
    ];
    for (suffix, after) in items {
        put_item(&*store, &bench.name(suffix), "REQUESTED", after).await;
    }
    put_item(&*store, &bench.name("other"), "DONE", 0).await;
    put(&*store, &bench.name("none"), None, &record("")).await;
    let requested = Query {
        state: Some("REQUESTED".into()),
        ..locks(&bench, "")
    };
    let expected = ["B", "b", "d", "a", "c", "e"].map(|suffix| bench.name(suffix));
    find_names(&*store, &requested, &expected).await;
    let with_prefix = Query {
        state: Some("REQUESTED".into()),
        ..locks(&bench, "b")
    };
    find_names(&*store, &with_prefix, &[bench.name("b")]).await;
}

async fn finds_states_of_every_kind(bench: Bench) {
    let store = bench.store().await;
    // Labels of this case alone, so that it can ask without a prefix.
    let unique = &bench.prefix()[5..21];
    let labels = [
        "%", "_", " ", "", "'", "\\", "é", "e\u{301}", "x", "X", "🔒",
    ]
    .map(|end| format!("{unique}{end}"));
    for (index, label) in labels.iter().enumerate() {
        put_item(&*store, &bench.name(&index.to_string()), label, 0).await;
    }
    for (index, label) in labels.iter().enumerate() {
        let query = Query {
            state: Some(label.as_str().into()),
            ..Query::all(Kind::Lock)
        };
        find_names(&*store, &query, &[bench.name(&index.to_string())]).await;
    }
}

async fn an_item_moves_from_state_to_state(bench: Bench) {
    let (store, name) = (bench.store().await, bench.name("item"));
    let in_state = |label: &str| Query {
        state: Some(label.into()),
        ..locks(&bench, "")
    };
    let there = std::slice::from_ref(&name);
    put_item(&*store, &name, "A", 0).await;
    find_names(&*store, &in_state("A"), there).await;
    let mut current = load(&*store, &name).await.expect("it is there");
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
        find_names(&*store, &locks(&bench, ""), there).await;
    }
    swap(&*store, delete(&name, &current.version)).await;
    find_names(&*store, &in_state("A"), &[]).await;
    find_names(&*store, &locks(&bench, ""), &[]).await;
}

async fn pages_lose_and_repeat_nothing(bench: Bench) {
    let store = bench.store().await;
    let mut by_name: Vec<_> = (0..23)
        .map(|n| bench.name(&format!("{}:{n}", n % 5)))
        .collect();
    for (index, name) in by_name.iter().enumerate() {
        // Many of the same age, so that pages end among them.
        put_item(&*store, name, "S", index as u64 / 9).await;
    }
    let mut by_age: Vec<_> = by_name.iter().cloned().enumerate().collect();
    by_age.sort_by_key(|(index, name)| (index / 9, name.clone()));
    let by_age: Vec<_> = by_age.into_iter().map(|(_, name)| name).collect();
    by_name.sort();
    for limit in [1, 2, 7, 22, 23, 24] {
        let query = Query {
            limit,
            ..locks(&bench, "")
        };
        find_names(&*store, &query, &by_name).await;
        let query = Query {
            state: Some("S".into()),
            ..query
        };
        find_names(&*store, &query, &by_age).await;
    }
}

async fn finds_what_is_available(bench: Bench) {
    let store = bench.store().await;
    let names = ["free", "held", "over", "sharing"].map(|suffix| bench.name(suffix));
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
            ..locks(&bench, "")
        };
        // A hint: the store may return more than is wanted, but never less.
        for (availability, wanted) in [
            (Availability::Free(at), [&free, &over]),
            (Availability::Held(at), [&held, &sharing]),
        ] {
            let query = Query {
                availability: Some(availability),
                limit: 1,
                ..query.clone()
            };
            find_all_of(&*store, &query, &wanted).await;
        }
    }
}

/// Finds until these are among what is found, in order.
async fn find_all_of(store: &dyn Store, query: &Query, wanted: &[&Name]) {
    for attempt in 0.. {
        let found = find(store, query).await;
        let names: Vec<_> = found.iter().map(|(name, _)| name).collect();
        assert!(names.is_sorted(), "{query:?} found {names:?}");
        if wanted.iter().all(|name| names.contains(name)) {
            return;
        }
        assert!(attempt < 50, "{query:?} found only {names:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn finds_whole_records(bench: Bench) {
    let (store, name) = (bench.store().await, bench.name("item"));
    let mut item = record("the whole body");
    item.holders = vec![holder(4, Mode::Exclusive)];
    item.state = Some(State {
        label: "S".into(),
        since: NOW,
    });
    put(&*store, &name, None, &item).await;
    let stored = load(&*store, &name).await.expect("it is there");
    for state in [None, Some("S".into())] {
        let query = Query {
            state,
            ..locks(&bench, "")
        };
        find_names(&*store, &query, std::slice::from_ref(&name)).await;
        let found = find(&*store, &query).await;
        assert_eq!(found, [(name.clone(), stored.clone())]);
    }
}

async fn a_wrong_cursor_breaks_nothing(bench: Bench) {
    let store = bench.store().await;
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
                ..locks(&bench, "")
            };
            match store.find(&query).await {
                Ok(page) => assert!(page.value.records.is_empty()),
                Err(crate::Error::Invalid(_)) => {}
                Err(other) => panic!("the cursor {cursor:?} gave {other:?}"),
            }
        }
    }
}
