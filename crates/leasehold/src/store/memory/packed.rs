//! A name and its record as compact bytes in one allocation.
//!
//! The fields that searches need come first, so that they can be read without unpacking the rest: the name, the
//! version, the latest expiry, the state of an item. Times are stored as differences to nearby times: a lock with one
//! holder takes about 60 bytes in addition to the name and the owner.

use std::time::Duration;

use leasehold_core::{
    EndReason, Fence, Hash, Holder, Kind, LastHolder, Mode, Name, Record, Reservation, State, Text,
    Time,
};

use super::bytes::{Reader, Writer};
use crate::store::{Stored, Version, WriteId, held_until};

const GATE: u8 = 1;
const STATE: u8 = 1 << 1;
const LAST: u8 = 1 << 2;
const NEXT: u8 = 1 << 3;
const PUT: u8 = 1 << 4;
const BODY: u8 = 1 << 5;

const RELEASED: u8 = 0;
const COMPLETED: u8 = 1;
const EXPIRED: u8 = 2;
const BROKEN: u8 = 3;

/// Kind and name: the order of names.
pub(super) type Key<'a> = (Kind, &'a [u8]);

/// Kind, state, time of entering it, and name: the order of items.
pub(super) type Item<'a> = (Kind, &'a [u8], Time, &'a [u8]);

/// Packs this record under this name.
pub(super) fn pack(name: &Name, write: WriteId, record: &Record, to: &mut Writer) {
    let Record {
        fence,
        holders,
        last,
        next,
        body,
        state,
        put,
    } = record;
    let flag = |set: bool, flag| if set { flag } else { 0 };
    to.byte(
        flag(name.kind() == Kind::Gate, GATE)
            | flag(state.is_some(), STATE)
            | flag(last.is_some(), LAST)
            | flag(next.is_some(), NEXT)
            | flag(put.is_some(), PUT)
            | flag(!body.is_empty(), BODY),
    );
    to.text(name.as_str());
    to.raw(&write.0.to_le_bytes());
    let until = held_until(record).as_micros();
    to.number(until);
    if let Some(state) = state {
        to.text(&state.label);
        to.number(state.since.as_micros());
    }
    to.number(fence.get());
    to.number(holders.len() as u64);
    for holder in holders {
        pack_holder(holder, fence.get(), until, to);
    }
    if let Some(last) = last {
        pack_ended(last, fence.get(), until, to);
    }
    if let Some(next) = next {
        pack_reservation(next, until, to);
    }
    if let Some(put) = put {
        to.raw(&put.to_bytes());
    }
    if !body.is_empty() {
        to.text(body);
    }
}

/// Reads the name.
pub(super) fn key(packed: &[u8]) -> Key<'_> {
    let head = Head::read(packed);
    (head.kind, head.name)
}

/// Reads the version.
pub(super) fn write(packed: &[u8]) -> WriteId {
    Head::read(packed).write()
}

/// Reads the record's [`held_until`](crate::store::held_until).
pub(super) fn until(packed: &[u8]) -> Time {
    let mut head = Head::read(packed);
    head.write();
    head.time()
}

/// Reads the item's key; `None` if the record has no state.
pub(super) fn item(packed: &[u8]) -> Option<Item<'_>> {
    let mut head = Head::read(packed);
    if head.flags & STATE == 0 {
        return None;
    }
    head.write();
    head.time();
    let (label, since) = (head.rest.text_bytes(), head.time());
    Some((head.kind, label, since, head.name))
}

/// Unpacks the record.
pub(super) fn unpack(packed: &[u8]) -> Stored {
    let mut head = Head::read(packed);
    let (flags, write, until) = (head.flags, head.write(), head.time().as_micros());
    let from = &mut head.rest;
    let has = |flag| flags & flag != 0;
    let state = has(STATE).then(|| State {
        label: from.text().into(),
        since: Time::from_micros(from.number()),
    });
    let fence = from.number();
    let record = Record {
        fence: as_fence(fence),
        state,
        holders: (0..from.number())
            .map(|_| unpack_holder(from, fence, until))
            .collect(),
        last: has(LAST).then(|| unpack_ended(from, fence, until)),
        next: has(NEXT).then(|| unpack_reservation(from, until)),
        put: has(PUT).then(|| Hash::from_bytes(from.raw())),
        body: if has(BODY) {
            from.text().into()
        } else {
            Text::default()
        },
    };
    let version = Version { write, tag: None };
    Stored::new(version, record)
}

/// The fields at the start of every packed record.
struct Head<'a> {
    flags: u8,
    kind: Kind,
    name: &'a [u8],
    rest: Reader<'a>,
}

impl<'a> Head<'a> {
    fn read(packed: &'a [u8]) -> Self {
        let mut rest = Reader(packed);
        let flags = rest.byte();
        Self {
            flags,
            kind: if flags & GATE == 0 {
                Kind::Lock
            } else {
                Kind::Gate
            },
            name: rest.text_bytes(),
            rest,
        }
    }

    fn write(&mut self) -> WriteId {
        WriteId(u128::from_le_bytes(self.rest.raw()))
    }

    fn time(&mut self) -> Time {
        Time::from_micros(self.rest.number())
    }
}

fn pack_holder(holder: &Holder, highest: u64, until: u64, to: &mut Writer) {
    let Holder {
        broken,
        fence,
        owner,
        principal,
        nonce,
        mode,
        ttl,
        acquired_at,
        renewed_at,
        expires_at,
    } = holder;
    to.number(
        mode_number(*mode) << 2 | u64::from(principal.is_some()) << 1 | u64::from(broken.is_some()),
    );
    to.delta(fence.get(), highest);
    to.text(owner);
    for text in [principal, broken].into_iter().flatten() {
        to.text(text);
    }
    to.raw(&nonce.to_bytes());
    let [acquired, renewed, expires] =
        [acquired_at, renewed_at, expires_at].map(|time| time.as_micros());
    to.delta(expires, until);
    to.delta(renewed, expires);
    to.delta(acquired, renewed);
    // The ttl is usually the difference of the two times. It is in microseconds, as in every stored form.
    let ttl = u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX);
    to.delta(ttl, expires.wrapping_sub(renewed));
}

fn unpack_holder(from: &mut Reader<'_>, highest: u64, until: u64) -> Holder {
    let marks = from.number();
    let fence = as_fence(from.delta(highest));
    let owner = from.text().into();
    let principal = (marks & 2 != 0).then(|| from.text().into());
    let broken = (marks & 1 != 0).then(|| from.text().into());
    let nonce = Hash::from_bytes(from.raw());
    let expires = from.delta(until);
    let renewed = from.delta(expires);
    Holder {
        broken,
        fence,
        owner,
        principal,
        nonce,
        mode: as_mode(marks >> 2),
        acquired_at: Time::from_micros(from.delta(renewed)),
        renewed_at: Time::from_micros(renewed),
        expires_at: Time::from_micros(expires),
        ttl: Duration::from_micros(from.delta(expires.wrapping_sub(renewed))),
    }
}

fn pack_ended(ended: &LastHolder, highest: u64, until: u64, to: &mut Writer) {
    let LastHolder {
        fence,
        owner,
        how,
        at,
    } = ended;
    to.delta(fence.get(), highest);
    to.text(owner);
    to.delta(at.as_micros(), until);
    to.byte(match how {
        EndReason::Released => RELEASED,
        EndReason::Completed(_) => COMPLETED,
        EndReason::Expired => EXPIRED,
        EndReason::Broken => BROKEN,
    });
    if let EndReason::Completed(written) = how {
        to.raw(&written.to_bytes());
    }
}

fn unpack_ended(from: &mut Reader<'_>, highest: u64, until: u64) -> LastHolder {
    LastHolder {
        fence: as_fence(from.delta(highest)),
        owner: from.text().into(),
        at: Time::from_micros(from.delta(until)),
        how: match from.byte() {
            RELEASED => EndReason::Released,
            COMPLETED => EndReason::Completed(Hash::from_bytes(from.raw())),
            EXPIRED => EndReason::Expired,
            _ => EndReason::Broken,
        },
    }
}

fn pack_reservation(next: &Reservation, until: u64, to: &mut Writer) {
    let Reservation {
        nonce,
        mode,
        since,
        until: reserved_until,
    } = next;
    to.raw(&nonce.to_bytes());
    to.number(mode_number(*mode));
    to.delta(since.as_micros(), until);
    to.delta(reserved_until.as_micros(), since.as_micros());
}

fn unpack_reservation(from: &mut Reader<'_>, until: u64) -> Reservation {
    let nonce = Hash::from_bytes(from.raw());
    let mode = as_mode(from.number());
    let since = from.delta(until);
    Reservation {
        nonce,
        mode,
        since: Time::from_micros(since),
        until: Time::from_micros(from.delta(since)),
    }
}

fn mode_number(mode: Mode) -> u64 {
    match mode {
        Mode::Exclusive => 0,
        Mode::Shared { limit: None } => 1,
        Mode::Shared { limit: Some(limit) } => 2 + u64::from(limit),
    }
}

fn as_mode(number: u64) -> Mode {
    match number {
        0 => Mode::Exclusive,
        1 => Mode::Shared { limit: None },
        limit => Mode::Shared {
            limit: u16::try_from(limit - 2).ok(),
        },
    }
}

fn as_fence(number: u64) -> Fence {
    Fence::new(number).expect("packed as a fence")
}
