//! Distinct names have distinct records, however similar they are.

use leasehold_core::{Kind, Name};

use super::context::TestContext;
use super::store_helpers::{delete, find_names, load, load_all, put, record, stored_body, swap};
use crate::store::Query;

super::define_cases!(Store:
    similar_names_are_distinct,
    long_names_with_a_common_prefix_are_distinct,
    names_are_returned_unchanged,
    lock_and_gate_of_one_name_are_distinct,
);

/// Names that some database, collation, path or URL confuses with another.
pub(super) const ODD_NAMES: &[&str] = &[
    "a",
    "A",
    "a ",
    " a",
    "a  ",
    "a.",
    "a/",
    "/a",
    "a//b",
    "a/b",
    "a/./b",
    "a/../b",
    "a\\b",
    "a%2Fb",
    "a%2fb",
    "a%b",
    "a_b",
    "a+b",
    "a b",
    "a*b",
    "a?b",
    "a#b",
    "a&b",
    "a=b",
    "a:b",
    "a;b",
    "a,b",
    "a|b",
    "a~b",
    "a'b",
    "a''b",
    "a\"b",
    "a`b",
    "a$b",
    "a{b}",
    "a[b]",
    "a(b)",
    "a<b>",
    "a^b",
    "a@b",
    "a!b",
    "a-b",
    "a--b",
    ".",
    "..",
    "...",
    "%",
    "%%",
    "%00",
    "_",
    "*",
    "NULL",
    "null",
    "0",
    "00",
    "-0",
    "1e0",
    "#?%",
    "\u{e9}",
    "e\u{301}",
    "e",
    "E",
    "\u{c9}",
    "ß",
    "ss",
    "SS",
    "ẞ",
    "ı",
    "i",
    "I",
    "İ",
    "ſ",
    "s",
    "K",
    "k",
    "\u{212a}",
    "ﬁ",
    "fi",
    "Å",
    "\u{212b}",
    "A\u{30a}",
    "ａ",
    "１",
    "æ",
    "ae",
    "\u{3a9}",
    "\u{2126}",
    "σ",
    "ς",
    "か",
    "カ",
    "が",
    "か\u{3099}",
    "🔒",
    "🔓",
    "👩‍👩‍👧‍👦",
    "👩",
    "émoji 🔒",
    "a\u{200b}",
    "a\u{200d}",
    "a\u{ad}",
    "\u{feff}a",
    "a\u{a0}",
    "a\u{2028}",
    "\u{10ffff}",
    "\u{fffd}",
    "\u{e000}",
];

async fn similar_names_are_distinct(context: TestContext) {
    let store = context.store().await;
    let names: Vec<_> = ODD_NAMES.iter().map(|odd| context.name(odd)).collect();
    for (name, odd) in names.iter().zip(ODD_NAMES) {
        put(&*store, name, None, &record(odd)).await;
    }
    let mut gone = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let stored = load(&*store, name)
            .await
            .unwrap_or_else(|| panic!("{name:?} does not exist"));
        assert_eq!(
            &*stored.record.body, ODD_NAMES[index],
            "the body of {name:?}"
        );
        if index % 3 == 0 {
            swap(&*store, delete(name, &stored.version)).await;
            gone.push(index);
        }
    }
    for chunk in (0..names.len())
        .collect::<Vec<_>>()
        .chunks(store.facts().batch)
    {
        let requested: Vec<_> = chunk.iter().map(|index| names[*index].clone()).collect();
        for (index, stored) in chunk.iter().zip(load_all(&*store, &requested).await) {
            let there = !gone.contains(index);
            assert_eq!(stored.is_some(), there, "{:?}", names[*index]);
        }
    }
}

async fn long_names_with_a_common_prefix_are_distinct(context: TestContext) {
    let store = context.store().await;
    let room = Name::MAX_BYTES - context.prefix().len();
    let long = "long/".repeat(room / 5);
    let mut texts = vec![
        long[..room - 4].to_owned() + "🔒",
        long[..room - 4].to_owned() + "🔓",
        long[..room - 2].to_owned() + "é",
        long[..room - 3].to_owned() + "e\u{301}",
    ];
    texts.extend([room - 300, room - 260, room - 1].map(|length| long[..length].to_owned()));
    texts.extend(["a", "A", "b", "%", "_"].map(|end| long[..room - 1].to_owned() + end));
    let names: Vec<_> = texts.iter().map(|text| context.name(text)).collect();
    for (index, name) in names.iter().enumerate() {
        put(&*store, name, None, &record(&index.to_string())).await;
    }
    for (index, name) in names.iter().enumerate() {
        assert_eq!(
            stored_body(&*store, name).await.as_deref(),
            Some(&*index.to_string())
        );
    }
}

async fn names_are_returned_unchanged(context: TestContext) {
    let store = context.store().await;
    let mut names: Vec<_> = ODD_NAMES.iter().map(|odd| context.name(odd)).collect();
    names.push(context.name(&"🔒".repeat((Name::MAX_BYTES - context.prefix().len()) / 4)));
    for name in &names {
        put(&*store, name, None, &record("")).await;
    }
    names.sort();
    let query = Query {
        prefix: context.prefix().to_owned(),
        ..Query::all(Kind::Lock)
    };
    find_names(&*store, &query, &names).await;
}

async fn lock_and_gate_of_one_name_are_distinct(context: TestContext) {
    let store = context.store().await;
    let [lock, gate] = Kind::ALL.map(|kind| context.name_of_kind(kind, "device-42"));
    let of_lock = put(&*store, &lock, None, &record("lock")).await;
    let of_gate = put(&*store, &gate, None, &record("gate")).await;
    assert_eq!(stored_body(&*store, &lock).await.as_deref(), Some("lock"));
    assert_eq!(stored_body(&*store, &gate).await.as_deref(), Some("gate"));
    for (kind, name) in Kind::ALL.into_iter().zip([&lock, &gate]) {
        let query = Query {
            prefix: context.prefix().to_owned(),
            ..Query::all(kind)
        };
        find_names(&*store, &query, std::slice::from_ref(name)).await;
    }
    put(&*store, &lock, Some(&of_lock), &record("lock 2")).await;
    assert_eq!(stored_body(&*store, &gate).await.as_deref(), Some("gate"));
    swap(&*store, delete(&gate, &of_gate)).await;
    assert_eq!(stored_body(&*store, &lock).await.as_deref(), Some("lock 2"));
    assert_eq!(load(&*store, &gate).await, None);
}
