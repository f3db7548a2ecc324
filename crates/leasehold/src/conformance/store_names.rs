//! Names are kept apart, whatever they look like.

use leasehold_core::{Kind, Name};

use super::bench::Bench;
use super::store_kit::{delete, find_names, load, load_all, put, record, stored_body, swap};
use crate::store::Query;

super::promises!(Store:
    names_that_look_alike_are_different,
    long_names_that_differ_at_the_end_are_different,
    names_come_back_as_they_were,
    a_lock_and_a_gate_of_one_name_never_meet,
);

/// Names that some database, collation, path or URL takes for another one.
pub(super) const ODD: &[&str] = &[
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

async fn names_that_look_alike_are_different(bench: Bench) {
    let store = bench.store().await;
    let names: Vec<_> = ODD.iter().map(|odd| bench.name(odd)).collect();
    for (name, odd) in names.iter().zip(ODD) {
        put(&*store, name, None, &record(odd)).await;
    }
    let mut gone = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let stored = load(&*store, name)
            .await
            .unwrap_or_else(|| panic!("{name:?} is not there"));
        assert_eq!(&*stored.record.body, ODD[index], "what {name:?} has");
        if index % 3 == 0 {
            swap(&*store, delete(name, &stored.version)).await;
            gone.push(index);
        }
    }
    for chunk in (0..names.len())
        .collect::<Vec<_>>()
        .chunks(store.facts().batch)
    {
        let asked: Vec<_> = chunk.iter().map(|index| names[*index].clone()).collect();
        for (index, stored) in chunk.iter().zip(load_all(&*store, &asked).await) {
            let there = !gone.contains(index);
            assert_eq!(stored.is_some(), there, "{:?}", names[*index]);
        }
    }
}

async fn long_names_that_differ_at_the_end_are_different(bench: Bench) {
    let store = bench.store().await;
    let room = Name::MAX_BYTES - bench.prefix().len();
    let long = "long/".repeat(room / 5);
    let mut texts = vec![
        long[..room - 4].to_owned() + "🔒",
        long[..room - 4].to_owned() + "🔓",
        long[..room - 2].to_owned() + "é",
        long[..room - 3].to_owned() + "e\u{301}",
    ];
    texts.extend([room - 300, room - 260, room - 1].map(|length| long[..length].to_owned()));
    texts.extend(["a", "A", "b", "%", "_"].map(|end| long[..room - 1].to_owned() + end));
    let names: Vec<_> = texts.iter().map(|text| bench.name(text)).collect();
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

async fn names_come_back_as_they_were(bench: Bench) {
    let store = bench.store().await;
    let mut names: Vec<_> = ODD.iter().map(|odd| bench.name(odd)).collect();
    names.push(bench.name(&"🔒".repeat((Name::MAX_BYTES - bench.prefix().len()) / 4)));
    for name in &names {
        put(&*store, name, None, &record("")).await;
    }
    names.sort();
    let query = Query {
        prefix: bench.prefix().to_owned(),
        ..Query::all(Kind::Lock)
    };
    find_names(&*store, &query, &names).await;
}

async fn a_lock_and_a_gate_of_one_name_never_meet(bench: Bench) {
    let store = bench.store().await;
    let [lock, gate] = Kind::ALL.map(|kind| bench.of_kind(kind, "device-42"));
    let of_lock = put(&*store, &lock, None, &record("lock")).await;
    let of_gate = put(&*store, &gate, None, &record("gate")).await;
    assert_eq!(stored_body(&*store, &lock).await.as_deref(), Some("lock"));
    assert_eq!(stored_body(&*store, &gate).await.as_deref(), Some("gate"));
    for (kind, name) in Kind::ALL.into_iter().zip([&lock, &gate]) {
        let query = Query {
            prefix: bench.prefix().to_owned(),
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
