//! Shared by several stores: a record as columns, pages of records, and rows that other transactions have locked.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::{Fence, Hash, Kind, Name, Record, State, Time};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Availability, Page, Query, Stored, Swapped, Version, Write, WriteId, held_until};
use crate::{Error, Result};

/// The columns of a record, without its name and version. Lists are JSON; times are microseconds.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) fence: i64,
    /// Only used in searches; never read back.
    pub(super) held_until: i64,
    pub(super) state: Option<String>,
    pub(super) state_since: Option<i64>,
    pub(super) holders: String,
    pub(super) last: Option<String>,
    pub(super) next: Option<String>,
    pub(super) put: Option<String>,
    pub(super) body: String,
}

impl Columns {
    /// Converts a record, without its body, which the caller may not need to send.
    pub(super) fn of(record: &Record) -> Result<Self> {
        let state = record.state.as_ref();
        Ok(Self {
            fence: record.fence.get().cast_signed(),
            held_until: as_bound(held_until(record)),
            state: state.map(|state| state.label.as_ref().into()),
            state_since: state.map(|state| state.since.as_micros().cast_signed()),
            holders: json(&record.holders)?,
            last: record.last.as_ref().map(json).transpose()?,
            next: record.next.as_ref().map(json).transpose()?,
            put: record.put.map(|hash| hash.to_string()),
            body: String::new(),
        })
    }

    /// Converts the columns to the record with this name and version.
    pub(super) fn stored(self, kind: &str, name: &str, write: WriteId) -> Result<(Name, Stored)> {
        let read = || {
            let kind = Kind::parse(kind).ok_or("unknown kind")?;
            let name = Name::new(kind, name)?;
            let version = Version { write, tag: None };
            Ok((name, Stored::new(version, self.record()?)))
        };
        read().map_err(|problem: Problem| {
            Error::Corrupt(format!(
                "the record `{kind}` `{name}` is corrupt: {problem}"
            ))
        })
    }

    fn record(self) -> Result<Record, Problem> {
        let fence = u64::try_from(self.fence)?;
        let put = self.put.as_deref();
        let record = Record {
            fence: Fence::new(fence).ok_or("the fence is above the maximum")?,
            holders: serde_json::from_str(&self.holders)?,
            last: optional(self.last.as_deref())?,
            next: optional(self.next.as_deref())?,
            body: self.body.into(),
            state: state(self.state, self.state_since)?,
            put: put
                .map(|hex| Hash::parse(hex).ok_or("`put` is not a hash"))
                .transpose()?,
        };
        if !record.is_sound() {
            return Err("its fences are inconsistent".into());
        }
        Ok(record)
    }
}

/// Why a record is invalid.
pub(super) type Problem = Box<dyn std::error::Error>;

/// Reads the state from its two columns.
pub(super) fn state(label: Option<String>, since: Option<i64>) -> Result<Option<State>, Problem> {
    match (label, since) {
        (None, None) => Ok(None),
        (Some(label), Some(since)) => Ok(Some(State {
            label: label.into(),
            since: Time::from_micros(since.cast_unsigned()),
        })),
        _ => Err("only one of `state` and `state_since` is set".into()),
    }
}

/// Serializes a part of a record as JSON.
pub(super) fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::Corrupt(format!("a record cannot be written as JSON: {error}")))
}

fn optional<T: DeserializeOwned>(text: Option<&str>) -> Result<Option<T>, Problem> {
    Ok(text.map(serde_json::from_str).transpose()?)
}

/// A query as the values of an SQL search.
pub(super) struct Search<'q> {
    /// The first name…
    pub(super) from: &'q str,
    /// …and the end of the range, exclusive; `None` if the prefix has no upper bound.
    pub(super) to: Option<String>,
    /// Continue after this name; for a search by state, after this time and name.
    pub(super) after: &'q str,
    pub(super) since: i64,
    /// The range of `held_until`.
    pub(super) held: (i64, i64),
    /// One more than the page size, to detect a next page.
    pub(super) limit: i64,
}

impl<'q> Search<'q> {
    pub(super) fn new(query: &'q Query) -> Result<Self> {
        let (since, after) = match (&query.state, query.cursor.as_deref()) {
            (Some(_), Some(cursor)) => parse_state_cursor(cursor)?,
            (None, Some(cursor)) => (i64::MIN, cursor),
            // Before every time, and before every name.
            (_, None) => (i64::MIN, ""),
        };
        let held = match query.availability {
            None => (i64::MIN, i64::MAX),
            Some(Availability::Free(at)) => (i64::MIN, as_bound(at) - 1),
            Some(Availability::Held(at)) => (as_bound(at), i64::MAX),
        };
        Ok(Self {
            from: &query.prefix,
            to: end_of(&query.prefix),
            after,
            since,
            held,
            limit: i64::try_from(query.limit).map_or(i64::MAX, |limit| limit.saturating_add(1)),
        })
    }
}

/// Builds the page from the records of a [`Search`], which include one more if there is a next page.
pub(super) fn page(mut records: Vec<(Name, Stored)>, query: &Query) -> Page {
    let more = records.len() > query.limit;
    records.truncate(query.limit);
    let cursor = records
        .last()
        .filter(|_| more)
        .map(|(name, stored)| match &stored.record.state {
            Some(state) if query.state.is_some() => {
                format!("{}:{name}", state.since.as_micros().cast_signed())
            }
            _ => name.as_str().to_owned(),
        });
    Page { records, cursor }
}

fn parse_state_cursor(cursor: &str) -> Result<(i64, &str)> {
    cursor
        .split_once(':')
        .and_then(|(since, name)| Some((since.parse().ok()?, name)))
        .ok_or_else(|| {
            Error::invalid("invalid cursor: it is not from this store; start without a cursor")
        })
}

/// Converts a time to a bound of a comparison. Times beyond the integer range are clamped.
fn as_bound(time: Time) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Returns the first text after all texts with this prefix, if there is one.
fn end_of(prefix: &str) -> Option<String> {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // In UTF-8, byte order is character order. Character ranges skip the surrogates.
        if let Some(next) = (last..=char::MAX).nth(1) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

/// Returns the result of a write that did not happen while this record was current; `None` if another transaction
/// blocked it.
pub(super) fn unwritten_result(write: &Write, current: Option<Stored>) -> Option<Swapped> {
    let found = current.as_ref().map(|stored| stored.version.write);
    let expected = write.expect.as_ref().map(|version| version.write);
    match (found == expected, &write.put) {
        (false, _) => Some(Swapped::Conflict(current)),
        // A delete of a record that is already absent.
        (true, None) if expected.is_none() => Some(Swapped::Written { tag: None }),
        (true, _) => None,
    }
}

/// Returns the error for a batch without any answer: an indeterminate one if there is one.
pub(super) fn all_failed(swapped: Vec<Swapped>) -> Error {
    let mut errors: Vec<_> = swapped
        .into_iter()
        .filter_map(|swapped| match swapped {
            Swapped::Failed(error) => Some(error),
            _ => None,
        })
        .collect();
    let open = errors
        .iter()
        .position(|error| matches!(error, Error::Indeterminate(_)));
    match errors.is_empty() {
        true => Error::Indeterminate("the database did not report its time".into()),
        false => errors.swap_remove(open.unwrap_or(0)),
    }
}

/// How long a write waits for a lock of another transaction if it is part of a batch, and if it is not.
pub(super) const BATCH_LOCK_WAIT: Duration = Duration::from_millis(100);
const SINGLE_LOCK_WAIT: Duration = Duration::from_millis(1_500);
/// How long writes in a batch do not wait for a row that was recently found locked.
const LOCKED_ROW_MEMORY: Duration = Duration::from_secs(2);

/// Rows that other transactions held locked, and when that was last observed.
#[derive(Default)]
pub(super) struct LockedRows(Mutex<HashMap<Name, Instant>>);

impl LockedRows {
    /// Returns how long to wait for a locked record.
    pub(super) fn lock_wait(&self, name: &Name, is_batched: bool) -> Duration {
        let seen = self.rows().get(name).copied();
        let is_locked = seen.is_some_and(|seen| seen.elapsed() < LOCKED_ROW_MEMORY);
        match (is_batched, is_locked) {
            (false, _) => SINGLE_LOCK_WAIT,
            (true, false) => BATCH_LOCK_WAIT,
            (true, true) => Duration::ZERO,
        }
    }

    /// Notes that the row is still locked, and returns the error.
    pub(super) fn record_locked(&self, name: &Name, see: &str) -> Error {
        let now = Instant::now();
        let mut rows = self.rows();
        rows.retain(|_, seen| now - *seen < LOCKED_ROW_MEMORY);
        rows.insert(name.clone(), now);
        Error::Unavailable(format!(
            "`{name}` is locked by another transaction in the database: find it in {see}"
        ))
    }

    pub(super) fn forget(&self, name: &Name) {
        self.rows().remove(name);
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<Name, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_range_ends_before_the_next_text() {
        for (prefix, end) in [("a", "b"), ("a\u{10FFFF}", "b"), ("\u{D7FF}", "\u{E000}")] {
            assert_eq!(end_of(prefix).as_deref(), Some(end));
        }
        for endless in ["", "\u{10FFFF}\u{10FFFF}"] {
            assert_eq!(end_of(endless), None);
        }
    }
}
