//! Records and writes for the tests of several stores.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::time::Duration;

use leasehold::Error;
use leasehold::core::{
    EndReason, Fence, Hash, Holder, Kind, LastHolder, Mode, Name, Record, Reservation, State, Time,
};
use leasehold::host::{Host as _, Machine};
use leasehold::store::{Query, Store, Stored, Swapped, Version, Write, WriteId};

/// The result of a write, for databases without tags.
pub(crate) const WRITTEN: Swapped = Swapped::Written { tag: None };

pub(crate) fn write_id() -> WriteId {
    WriteId(Machine.random())
}

pub(crate) fn version(write: WriteId) -> Version {
    Version { write, tag: None }
}

/// Returns a record without holders.
pub(crate) fn record(fence: u64, body: &str) -> Record {
    Record {
        fence: Fence::new(fence).unwrap(),
        holders: Vec::new(),
        last: None,
        next: None,
        body: body.into(),
        state: None,
        put: None,
    }
}

pub(crate) fn holder(fence: u64, owner: &str, mode: Mode, expires_at: Time) -> Holder {
    Holder {
        fence: Fence::new(fence).unwrap(),
        owner: owner.into(),
        principal: None,
        nonce: Hash::of(&[owner.as_bytes()]),
        mode,
        ttl: Duration::from_secs(30),
        acquired_at: expires_at - Duration::from_secs(30),
        renewed_at: expires_at - Duration::from_secs(30),
        expires_at,
        broken: None,
    }
}

/// Returns a record with every field set.
pub(crate) fn full_record() -> Record {
    let at = Time::from_micros(1_700_000_000_123_456);
    let mut broken = holder(7, "b", Mode::Shared { limit: Some(4) }, at);
    broken.broken = Some("stuck \"for\" hours\n🔒".into());
    broken.principal = Some("ops".into());
    Record {
        fence: Fence::MAX,
        holders: vec![
            holder(Fence::MAX.get(), "host:1", Mode::Shared { limit: None }, at),
            broken,
        ],
        last: Some(LastHolder {
            fence: Fence::new(5).unwrap(),
            owner: "é'\"--".into(),
            how: EndReason::Completed(Hash::of(&[b"x"])),
            at,
        }),
        next: Some(Reservation {
            nonce: Hash::of(&[b"n"]),
            mode: Mode::Exclusive,
            since: at,
            until: Time::from_micros(u64::MAX),
        }),
        body: "line\nNUL \0 emoji 🔒 'quote'".into(),
        state: Some(State {
            label: "RE'QUESTED".into(),
            since: Time::from_micros(u64::MAX),
        }),
        put: Some(Hash::of(&[b"p"])),
    }
}

/// Returns a write that creates a record.
pub(crate) fn create(name: &Name, record: Record) -> Write {
    Write {
        name: name.clone(),
        expect: None,
        put: Some((write_id(), record.into())),
        body_changed: true,
    }
}

/// Returns a write that replaces a stored version.
pub(crate) fn replace(name: &Name, stored: &Stored, record: Record) -> Write {
    Write {
        name: name.clone(),
        expect: Some(stored.version.clone()),
        body_changed: stored.record.body != record.body,
        put: Some((write_id(), record.into())),
    }
}

pub(crate) async fn swap_one(store: &dyn Store, write: Write) -> Swapped {
    let mut swapped = store.swap(vec![write]).await.unwrap().value;
    assert_eq!(swapped.len(), 1);
    swapped.remove(0)
}

pub(crate) async fn load_one(store: &dyn Store, name: &Name) -> Option<Stored> {
    let mut records = store.load(std::slice::from_ref(name)).await.unwrap().value;
    assert_eq!(records.len(), 1);
    records.remove(0)
}

/// Checks that a record is the same in a conflict, in a listing, and read by another store on the database.
pub(crate) async fn record_round_trips(store: &dyn Store, another: &dyn Store, name: &Name) {
    let write = create(name, full_record());
    let (id, record) = write.put.clone().unwrap();
    assert_eq!(swap_one(store, write.clone()).await, WRITTEN);
    let Swapped::Conflict(Some(current)) = swap_one(store, write).await else {
        panic!("a second insert must conflict");
    };
    assert_eq!((current.version, &current.record), (version(id), &record));
    let page = store.find(&Query::all(Kind::Lock)).await.unwrap().value;
    assert_eq!(page.records[0].1.record, record);
    let found = load_one(another, name).await.unwrap();
    assert_eq!((found.version, found.record), (version(id), record));
}

/// Checks that a corrupt record is reported by name, and that another write in the same batch succeeds.
pub(crate) async fn corrupt_record_does_not_block_others(
    store: &dyn Store,
    bad: &Name,
    good: &Name,
) {
    let error = store.load(std::slice::from_ref(bad)).await.unwrap_err();
    assert!(
        matches!(&error, Error::Corrupt(why) if why.contains(&format!("`{bad}`"))),
        "{error:?}"
    );
    let current = load_one(store, good).await.unwrap();
    let batch = vec![
        create(bad, record(1, "")),
        replace(good, &current, record(2, "")),
    ];
    let swapped = store.swap(batch).await.unwrap().value;
    assert!(
        matches!(swapped[0], Swapped::Failed(Error::Corrupt(_))),
        "{swapped:?}"
    );
    assert_eq!(swapped[1], WRITTEN);
}
