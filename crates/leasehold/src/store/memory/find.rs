//! Finds records by prefix, state and availability.

use leasehold_core::{Name, Time};

use super::bytes::as_text;
use super::packed;
use super::records::Records;
use crate::store::{Availability, Page, Query};
use crate::{Error, Result};

/// Returns a page of the records that match.
pub(super) fn find(records: &Records, query: &Query) -> Result<Page> {
    match &query.state {
        None => Ok(by_name(records, query)),
        Some(label) => by_state(records, query, label),
    }
}

fn by_name(records: &Records, query: &Query) -> Page {
    let prefix = query.prefix.as_bytes();
    let after = query.cursor.as_deref().map(str::as_bytes);
    let found = records
        .by_name(|(kind, name)| {
            (kind, name) < (query.kind, prefix)
                || after.is_some_and(|after| (kind, name) <= (query.kind, after))
        })
        .take_while(|packed| {
            let (kind, name) = packed::key(packed);
            kind == query.kind && name.starts_with(prefix)
        })
        .filter(|packed| available(packed, query));
    page(found, query.limit, |packed| name_of(packed).to_owned())
}

fn by_state(records: &Records, query: &Query, label: &str) -> Result<Page> {
    let after = query.cursor.as_deref().map(parse_cursor).transpose()?;
    let asked = (query.kind, label.as_bytes());
    let found = records
        .by_state(|(kind, label, since, name)| {
            (kind, label) < asked
                || after.is_some_and(|after| ((kind, label), (since, name)) <= (asked, after))
        })
        .take_while(|packed| {
            packed::item(packed).is_some_and(|(kind, label, ..)| (kind, label) == asked)
        })
        .filter(|packed| {
            packed::key(packed).1.starts_with(query.prefix.as_bytes()) && available(packed, query)
        });
    Ok(page(found, query.limit, |packed| {
        let since = packed::item(packed).map_or(0, |(_, _, since, _)| since.as_micros());
        format!("{since}:{}", name_of(packed))
    }))
}

/// Returns the records up to the limit, with a cursor if there are more.
fn page<'a>(
    found: impl Iterator<Item = &'a [u8]>,
    limit: usize,
    cursor: impl Fn(&[u8]) -> String,
) -> Page {
    let mut found: Vec<_> = found.take(limit + 1).collect();
    let more = found.len() > limit;
    found.truncate(limit);
    let unpacked = found.iter().map(|packed| {
        let name = Name::new(packed::key(packed).0, name_of(packed)).expect("it was a name");
        (name, packed::unpack(packed))
    });
    Page {
        records: unpacked.collect(),
        cursor: found.last().filter(|_| more).map(|last| cursor(last)),
    }
}

fn name_of(packed: &[u8]) -> &str {
    as_text(packed::key(packed).1)
}

fn available(packed: &[u8], query: &Query) -> bool {
    match query.availability {
        None => true,
        Some(Availability::Free(at)) => packed::until(packed) < at,
        Some(Availability::Held(at)) => packed::until(packed) >= at,
    }
}

fn parse_cursor(cursor: &str) -> Result<(Time, &[u8])> {
    cursor
        .split_once(':')
        .and_then(|(since, name)| Some((Time::from_micros(since.parse().ok()?), name.as_bytes())))
        .ok_or_else(|| {
            Error::invalid("invalid cursor: it is not from this store; start without a cursor")
        })
}
