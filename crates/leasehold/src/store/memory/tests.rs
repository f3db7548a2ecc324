//! Random records round-trip, and random writes leave the same records as in a map.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{
    EndReason, Fence, Hash, Holder, Kind, LastHolder, Mode, Name, Record, Reservation, State, Text,
    Time,
};

use super::bytes::Writer;
use super::find::find;
use super::packed;
use super::records::Records;
use crate::conformance::Random;
use crate::store::{Availability, Query, Stored, Swapped, Version, Write, WriteId, held_until};

/// A time in 2026.
const NOW: u64 = 1_780_000_000_123_457;

/// Returns mostly times close to each other, sometimes arbitrary ones.
fn time(random: &mut Random) -> Time {
    Time::from_micros(match random.below(10) {
        0 => random.number(),
        1 => 0,
        2 => u64::MAX,
        _ => NOW + random.below(100_000_000),
    })
}

fn fence(random: &mut Random) -> Fence {
    let any = [0, Fence::MAX.get(), NOW + random.below(100)];
    Fence::new(*random.pick(&any)).unwrap()
}

fn text(random: &mut Random) -> Text {
    let long = "x".repeat(random.below(300) as usize);
    (*random.pick(&["", "a", "127.0.0.1:54321", "é 🔒\0\"", &long])).into()
}

fn hash(random: &mut Random) -> Hash {
    Hash::of(&[&random.number().to_le_bytes()])
}

fn mode(random: &mut Random) -> Mode {
    let limit = [None, Some(0), Some(4), Some(u16::MAX)];
    match random.below(2) {
        0 => Mode::Exclusive,
        _ => Mode::Shared {
            limit: *random.pick(&limit),
        },
    }
}

fn holder(random: &mut Random) -> Holder {
    Holder {
        broken: random.percent(20).then(|| text(random)),
        fence: fence(random),
        owner: text(random),
        principal: random.percent(20).then(|| text(random)),
        nonce: hash(random),
        mode: mode(random),
        ttl: Duration::from_micros(*random.pick(&[0, 30_000_000, u64::MAX])),
        acquired_at: time(random),
        renewed_at: time(random),
        expires_at: time(random),
    }
}

fn ended(random: &mut Random) -> LastHolder {
    let completed = EndReason::Completed(hash(random));
    LastHolder {
        fence: fence(random),
        owner: text(random),
        how: *random.pick(&[
            EndReason::Released,
            completed,
            EndReason::Expired,
            EndReason::Broken,
        ]),
        at: time(random),
    }
}

fn record(random: &mut Random) -> Record {
    let holders = *random.pick(&[0, 0, 1, 1, 1, 2, 256]);
    Record {
        fence: fence(random),
        holders: (0..holders).map(|_| holder(random)).collect(),
        last: random.percent(50).then(|| ended(random)),
        next: random.percent(20).then(|| Reservation {
            nonce: hash(random),
            mode: mode(random),
            since: time(random),
            until: time(random),
        }),
        body: text(random),
        state: random.percent(50).then(|| State {
            label: (*random.pick(&["", "A", "AB", "B"])).into(),
            since: Time::from_micros(random.below(10)),
        }),
        put: random.percent(50).then(|| hash(random)),
    }
}

fn name(random: &mut Random) -> Name {
    let prefix = random.pick(&["a", "ab", "🔒"]);
    let text = format!("{prefix}{}", random.below(40));
    Name::new(*random.pick(&Kind::ALL), text).unwrap()
}

#[test]
fn packed_records_round_trip() {
    let seed = Random::any_seed();
    println!("LEASEHOLD_SEED={seed}");
    let random = &mut Random::new(seed);
    for _ in 0..2_000 {
        let (name, write, record) = (
            name(random),
            WriteId(random.number().into()),
            record(random),
        );
        let mut writer = Writer::default();
        packed::pack(&name, write, &record, &mut writer);
        let packed = writer.written();
        assert_eq!(packed::key(packed), (name.kind(), name.as_str().as_bytes()));
        assert_eq!(packed::write(packed), write);
        assert_eq!(packed::until(packed), held_until(&record));
        let state = packed::item(packed).map(|(_, label, since, _)| (label, since));
        let expected = record.state.as_ref();
        assert_eq!(state, expected.map(|s| (s.label.as_bytes(), s.since)));
        assert_eq!(packed::unpack(packed), stored(write, record));
    }
}

fn stored(write: WriteId, record: Record) -> Stored {
    Stored::new(Version { write, tag: None }, record)
}

#[test]
fn held_lock_packs_into_96_bytes() {
    let at = Time::from_micros(NOW);
    let ttl = Duration::from_secs(30);
    let record = Record {
        fence: Fence::new(NOW).unwrap(),
        holders: vec![Holder {
            broken: None,
            fence: Fence::new(NOW).unwrap(),
            owner: "127.0.0.1:54321".into(),
            principal: None,
            nonce: Hash::of(&[]),
            mode: Mode::Exclusive,
            ttl,
            acquired_at: at,
            renewed_at: at,
            expires_at: at + ttl,
        }],
        last: None,
        next: None,
        body: Text::default(),
        state: None,
        put: None,
    };
    let mut writer = Writer::default();
    let name = Name::lock("a name of 19 bytes.").unwrap();
    packed::pack(&name, WriteId(0), &record, &mut writer);
    assert!(writer.written().len() <= 96, "{}", writer.written().len());
}

/// Returns the records of a map that match the query, in the order of names or of age.
fn expected(map: &BTreeMap<Name, Stored>, query: &Query) -> Vec<(Name, Stored)> {
    let matches = |name: &Name, record: &Record| {
        name.kind() == query.kind
            && name.as_str().starts_with(&query.prefix)
            && (query.state.is_none()
                || query.state.as_ref() == record.state.as_ref().map(|state| &state.label))
            && match query.availability {
                None => true,
                Some(Availability::Free(at)) => held_until(record) < at,
                Some(Availability::Held(at)) => held_until(record) >= at,
            }
    };
    let mut found: Vec<_> = map
        .iter()
        .filter(|(name, stored)| matches(name, &stored.record))
        .map(|(name, stored)| (name.clone(), stored.clone()))
        .collect();
    if query.state.is_some() {
        found.sort_by_key(|(_, stored)| stored.record.state.as_ref().map(|state| state.since));
    }
    found
}

#[test]
fn random_writes_match_a_map() {
    let seed = Random::any_seed();
    println!("LEASEHOLD_SEED={seed}");
    let random = &mut Random::new(seed);
    let (mut records, mut map) = (Records::default(), BTreeMap::new());
    for turn in 0..10_000 {
        let name = name(random);
        let current: Option<Stored> = map.get(&name).cloned();
        assert_eq!(records.get(&name), current);
        let is_current = random.percent(90);
        let id = WriteId(turn);
        let write = Write {
            name: name.clone(),
            expect: current
                .as_ref()
                .map(|stored| stored.version.clone())
                .filter(|_| is_current),
            put: random.percent(70).then(|| (id, record(random).into())),
            body_changed: true,
        };
        let swapped = records.swap(&write);
        if current.is_some() && !is_current {
            assert_eq!(swapped, Swapped::Conflict(current));
            continue;
        }
        assert_eq!(swapped, Swapped::Written { tag: None });
        match write.put {
            Some((id, record)) => map.insert(name, stored(id, Record::clone(&record))),
            None => map.remove(&name),
        };
        if turn % 20 == 0 {
            check_find(&records, &map, random);
        }
    }
}

fn check_find(records: &Records, map: &BTreeMap<Name, Stored>, random: &mut Random) {
    let at = Time::from_micros(NOW + 50_000_000);
    let mut query = Query {
        kind: *random.pick(&Kind::ALL),
        prefix: (*random.pick(&["", "a", "ab1", "🔒", "z"])).to_owned(),
        state: (*random.pick(&[None, Some(""), Some("A"), Some("AB"), Some("C")])).map(Text::from),
        availability: *random.pick(&[
            None,
            Some(Availability::Free(at)),
            Some(Availability::Held(at)),
        ]),
        cursor: None,
        limit: 1 + random.below(50) as usize,
    };
    let mut found = Vec::new();
    loop {
        let page = find(records, &query).unwrap();
        assert!(page.records.len() <= query.limit);
        found.extend(page.records);
        query.cursor = page.cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, expected(map, &query));
}
