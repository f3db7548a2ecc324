//! Every field of a record is returned unchanged, also at its limits.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    EndReason, Fence, Hash, Mode, Record, Reservation, State, Text, Time, limits,
};

use super::context::TestContext;
use super::store_helpers::{NOW, ended, fence, holder, load, put, record};

super::define_cases!(Store:
    every_field_is_kept,
    every_end_reason_is_kept,
    every_mode_is_kept,
    largest_record_is_kept,
    text_of_every_kind_is_kept,
    extreme_numbers_are_kept,
);

/// Writes each record over the one before, and reads it back.
async fn check_kept(context: &TestContext, records: impl IntoIterator<Item = Record>) {
    let (store, name) = (context.store().await, context.name("one"));
    let mut version = None;
    for record in records {
        version = Some(put(&*store, &name, version.as_ref(), &record).await);
        let stored = load(&*store, &name).await.expect("the record exists");
        assert_eq!(Some(&stored.version), version.as_ref());
        assert_eq!(*stored.record, record);
        let other = context.store().await;
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

async fn every_field_is_kept(context: TestContext) {
    let mut stages = vec![full()];
    // Each optional field can also be removed.
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
    check_kept(&context, stages).await;
}

async fn every_end_reason_is_kept(context: TestContext) {
    let zeros = Hash::parse(&"0".repeat(32)).expect("a valid hash");
    let ones = Hash::parse(&"f".repeat(32)).expect("a valid hash");
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
    check_kept(&context, records).await;
}

async fn every_mode_is_kept(context: TestContext) {
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
    check_kept(&context, records).await;
}

async fn largest_record_is_kept(context: TestContext) {
    let store = context.store().await;
    let room = leasehold_core::Name::MAX_BYTES - context.prefix().len();
    let name = context.name(&"n".repeat(room));
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

async fn text_of_every_kind_is_kept(context: TestContext) {
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
        let printable: String = text.chars().filter(|c| !c.is_control()).take(16).collect();
        let mut holder = holder(5, Mode::Exclusive);
        holder.owner = printable.as_str().into();
        holder.principal = Some(printable.as_str().into());
        holder.broken = Some(printable.as_str().into());
        record.holders = vec![holder];
        if !printable.is_empty() {
            record.state = Some(State {
                label: printable.into(),
                since: NOW,
            });
        }
        record
    });
    check_kept(&context, records).await;
    let large = "🔒\"\\\n".repeat(limits::MAX_BODY_BYTES / 7);
    check_kept(&context.nested("large"), [record(&large)]).await;
}

async fn extreme_numbers_are_kept(context: TestContext) {
    // The year 2255: the largest integer that a double represents exactly, like the largest fence.
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
    check_kept(&context, records).await;
}
