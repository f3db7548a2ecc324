//! Every field of a record comes back as it was, at its extremes too.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    EndReason, Fence, Hash, Mode, Record, Reservation, State, Text, Time, limits,
};

use super::bench::Bench;
use super::store_kit::{NOW, ended, fence, holder, load, put, record};

super::promises!(Store:
    keeps_every_field,
    keeps_every_end_of_a_holder,
    keeps_every_mode,
    keeps_the_largest_record,
    keeps_text_of_every_kind,
    keeps_the_extremes_of_numbers,
);

/// Writes a record over the one that is there, from nothing at first, and reads each back.
async fn keeps(bench: &Bench, records: impl IntoIterator<Item = Record>) {
    let (store, name) = (bench.store().await, bench.name("one"));
    let mut version = None;
    for record in records {
        version = Some(put(&*store, &name, version.as_ref(), &record).await);
        let stored = load(&*store, &name).await.expect("it is there");
        assert_eq!(Some(&stored.version), version.as_ref());
        assert_eq!(*stored.record, record);
        let other = bench.store().await;
        assert_eq!(load(&*other, &name).await, Some(stored));
    }
}

fn full() -> Record {
    let mut full = record("the body");
    let mut other = holder(9, Mode::Shared { limit: Some(4) });
    other.principal = Some("ada".into());
    other.broken = Some("it hung".into());
    full.holders = vec![holder(8, Mode::Shared { limit: Some(4) }), other];
    full.last = Some(ended(EndReason::Completed(Hash::of(&[b"result"]))));
    full.next = Some(Reservation {
        nonce: Hash::of(&[b"waiter"]),
        mode: Mode::Exclusive,
        since: NOW,
        until: NOW + Duration::from_micros(4_999_999),
    });
    full.state = Some(State {
        label: "REQUESTED".into(),
        since: NOW + Duration::from_micros(3),
    });
    full.put = Some(Hash::of(&[b"put"]));
    full
}

async fn keeps_every_field(bench: Bench) {
    let mut stages = vec![full()];
    // And each of them goes away again when it is not there any more.
    let strips: [fn(&mut Record); 7] = [
        |record| record.next = None,
        |record| record.holders[1].broken = None,
        |record| record.holders[1].principal = None,
        |record| record.state = None,
        |record| record.put = None,
        |record| record.last = None,
        |record| record.holders.clear(),
    ];
    for strip in strips {
        let mut next = stages[stages.len() - 1].clone();
        strip(&mut next);
        stages.push(next);
    }
    stages.push(full());
    keeps(&bench, stages).await;
}

async fn keeps_every_end_of_a_holder(bench: Bench) {
    let zeros = Hash::parse(&"0".repeat(32)).expect("a hash");
    let ones = Hash::parse(&"f".repeat(32)).expect("a hash");
    let ends = [
        EndReason::Released,
        EndReason::Completed(zeros),
        EndReason::Completed(ones),
        EndReason::Expired,
        EndReason::Broken,
    ];
    let records = ends.map(|how| {
        let mut record = record("");
        record.last = Some(ended(how));
        record
    });
    keeps(&bench, records).await;
}

async fn keeps_every_mode(bench: Bench) {
    let limits = [None, Some(1), Some(2), Some(limits::MAX_HOLDERS as u16)];
    let shared = limits.map(|limit| Mode::Shared { limit });
    let records = shared.into_iter().chain([Mode::Exclusive]).map(|mode| {
        let mut record = record("");
        record.holders = vec![holder(3, mode)];
        record.next = Some(Reservation {
            nonce: Hash::of(&[b"waiter"]),
            mode,
            since: NOW,
            until: NOW,
        });
        record
    });
    keeps(&bench, records).await;
}

async fn keeps_the_largest_record(bench: Bench) {
    let store = bench.store().await;
    let room = leasehold_core::Name::MAX_BYTES - bench.prefix().len();
    let name = bench.name(&"n".repeat(room));
    let mut largest = full();
    largest.body = "b".repeat(limits::MAX_BODY_BYTES).into();
    largest.holders = (1..=limits::MAX_HOLDERS as u64)
        .map(|number| {
            let mut holder = holder(number, Mode::Shared { limit: None });
            holder.owner = "o".repeat(limits::MAX_OWNER_BYTES).into();
            holder.principal = Some("p".repeat(limits::MAX_OWNER_BYTES).into());
            holder.broken = Some("r".repeat(limits::MAX_REASON_BYTES).into());
            holder
        })
        .collect();
    largest.state = Some(State {
        label: "s".repeat(limits::MAX_STATE_BYTES).into(),
        since: NOW,
    });
    let version = put(&*store, &name, None, &largest).await;
    assert_eq!(
        load(&*store, &name).await.map(|stored| stored.record),
        Some(Arc::new(largest.clone()))
    );
    largest.body = Text::default();
    put(&*store, &name, Some(&version), &largest).await;
    assert_eq!(
        load(&*store, &name).await.map(|stored| stored.record),
        Some(Arc::new(largest))
    );
}

async fn keeps_text_of_every_kind(bench: Bench) {
    let every_ascii: String = (0..=127_u8).map(char::from).collect();
    let texts = [
        "",
        " ",
        "  two spaces around  ",
        "'; drop table leases; --",
        "\"quoted\" \\ back\\slash \\u0041 %41 &amp; $body {0} ${x}",
        "null",
        "0",
        "1e5",
        "{\"json\": [1, 2]}",
        "line\nbreak\r\nand\ttab\u{0}and nul\u{7f}",
        "émoji 🔒 👩‍👩‍👧‍👦 \u{202e}left\u{202c} \u{feff}bom \u{fffd} \u{10ffff} \u{e000}",
        "e\u{301} and \u{e9}",
        "\u{2028}\u{2029}\u{85}",
        &every_ascii,
    ];
    let records = texts.map(|text| {
        let mut record = record(text);
        let seen: String = text.chars().filter(|c| !c.is_control()).take(16).collect();
        let mut holder = holder(5, Mode::Exclusive);
        holder.owner = seen.as_str().into();
        holder.principal = Some(seen.as_str().into());
        holder.broken = Some(seen.as_str().into());
        record.holders = vec![holder];
        if !seen.is_empty() {
            record.state = Some(State {
                label: seen.into(),
                since: NOW,
            });
        }
        record
    });
    keeps(&bench, records).await;
    let large = "🔒\"\\\n".repeat(limits::MAX_BODY_BYTES / 7);
    keeps(&bench.sub("large"), [record(&large)]).await;
}

async fn keeps_the_extremes_of_numbers(bench: Bench) {
    // The year 2255: what a double holds exactly, as fences do.
    let late = Time::from_micros(Fence::MAX.get());
    let spans = [
        limits::MIN_TTL,
        Duration::from_micros(1_234_567),
        limits::MAX_PERIOD,
    ];
    let mut records = Vec::new();
    for (number, ttl) in [1, 2, Fence::MAX.get()].into_iter().zip(spans) {
        for time in [Time::from_micros(0), NOW, late] {
            let mut record = record("");
            let mut holder = holder(number, Mode::Exclusive);
            (holder.acquired_at, holder.renewed_at, holder.expires_at) = (time, time, time);
            holder.ttl = ttl;
            record.fence = fence(number);
            record.holders = vec![holder];
            record.state = Some(State {
                label: "x".into(),
                since: time,
            });
            records.push(record);
        }
    }
    keeps(&bench, records).await;
}
