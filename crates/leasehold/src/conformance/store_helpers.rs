//! Helpers of the cases that test a store directly.

use std::time::Duration;

use leasehold_core::{EndReason, Fence, Hash, Holder, LastHolder, Mode, Name, Record, Text, Time};

use crate::host::{Host, Machine};
use crate::store::{Page, Query, Store, Stored, Swapped, Version, Write, WriteId};

/// A time in 2026.
pub(super) const NOW: Time = Time::from_micros(1_780_000_000_123_457);

/// Returns a record without a holder.
pub(super) fn record(body: &str) -> Record {
    Record {
        fence: fence(1_780_000_000_000_001),
        holders: Vec::new(),
        last: None,
        next: None,
        body: body.into(),
        state: None,
        put: None,
    }
}

pub(super) fn fence(number: u64) -> Fence {
    Fence::new(number).expect("a valid fence")
}

/// Returns a holder with a value in every required field.
pub(super) fn holder(number: u64, mode: Mode) -> Holder {
    Holder {
        fence: fence(number),
        owner: "host:42".into(),
        principal: None,
        nonce: Hash::of(&[&number.to_le_bytes()]),
        mode,
        ttl: Duration::from_micros(30_000_001),
        acquired_at: NOW,
        renewed_at: NOW + Duration::from_micros(1),
        expires_at: NOW + Duration::from_micros(30_000_002),
        broken: None,
    }
}

pub(super) fn ended(how: EndReason) -> LastHolder {
    LastHolder {
        fence: fence(7),
        owner: "host:41".into(),
        how,
        at: NOW,
    }
}

pub(super) fn new_id() -> WriteId {
    WriteId(Machine.random())
}

/// Returns a write of this record with a new write id.
pub(super) fn write(name: &Name, expect: Option<&Version>, record: &Record) -> Write {
    Write {
        name: name.clone(),
        expect: expect.cloned(),
        put: Some((new_id(), record.clone().into())),
        body_changed: true,
    }
}

/// Returns a write that deletes the record.
pub(super) fn delete(name: &Name, expect: &Version) -> Write {
    Write {
        name: name.clone(),
        expect: Some(expect.clone()),
        put: None,
        body_changed: true,
    }
}

/// Sends one write and returns its result.
pub(super) async fn swap(store: &dyn Store, write: Write) -> Swapped {
    let mut swapped = store.swap(vec![write]).await.expect("the store answers");
    assert_eq!(swapped.value.len(), 1, "one answer to one write");
    swapped.value.remove(0)
}

/// Writes a record, which must succeed, and returns its new version.
pub(super) async fn put(
    store: &dyn Store,
    name: &Name,
    expect: Option<&Version>,
    record: &Record,
) -> Version {
    let write = write(name, expect, record);
    let id = write.put.as_ref().expect("the write has a record").0;
    match swap(store, write).await {
        Swapped::Written { tag } => Version { write: id, tag },
        other => panic!("{name:?} was not written: {other:?}"),
    }
}

pub(super) async fn load_all(store: &dyn Store, names: &[Name]) -> Vec<Option<Stored>> {
    let loaded = store.load(names).await.expect("the store answers").value;
    assert_eq!(loaded.len(), names.len(), "one answer to each name");
    loaded
}

pub(super) async fn load(store: &dyn Store, name: &Name) -> Option<Stored> {
    load_all(store, std::slice::from_ref(name)).await.remove(0)
}

pub(super) async fn stored_body(store: &dyn Store, name: &Name) -> Option<Text> {
    load(store, name)
        .await
        .map(|stored| stored.record.body.clone())
}

/// Returns the records of all pages of a query.
pub(super) async fn find(store: &dyn Store, query: &Query) -> Vec<(Name, Stored)> {
    let (mut query, mut found) = (query.clone(), Vec::new());
    loop {
        let page: Page = store.find(&query).await.expect("the store answers").value;
        assert!(
            page.records.len() <= query.limit,
            "a page has at most {} records, not {}",
            query.limit,
            page.records.len()
        );
        found.extend(page.records);
        match page.cursor {
            None => return found,
            cursor => query.cursor = cursor,
        }
    }
}

/// Repeats the query until it finds exactly these names: an index may lag behind for some seconds.
pub(super) async fn find_names(store: &dyn Store, query: &Query, expected: &[Name]) {
    for attempt in 0.. {
        let found: Vec<_> = find(store, query).await;
        let names: Vec<_> = found.iter().map(|(name, _)| name.clone()).collect();
        if names == expected {
            return;
        }
        assert!(
            attempt < 50,
            "{query:?}\n   found {names:?}\nexpected {expected:?}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
