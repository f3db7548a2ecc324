//! What the stores on SQL servers share: a record as columns, pages of records, and rows that somebody has locked.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::{Fence, Hash, Kind, Name, Record, State, Time};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Availability, Page, Query, Stored, Swapped, Version, Write, WriteId, held_until};
use crate::{Error, Result};

/// What a record's columns hold besides its name and version. Lists are JSON; times are microseconds.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) fence: i64,
    /// Only searched by, never read.
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
    /// The columns of a record; the body is left to the caller, who may not need to move it.
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

    /// The record that these columns hold under this name and version.
    pub(super) fn stored(self, kind: &str, name: &str, write: WriteId) -> Result<(Name, Stored)> {
        let read = || {
            let kind = Kind::parse(kind).ok_or("there is no such kind")?;
            let name = Name::new(kind, name)?;
            let version = Version { write, tag: None };
            Ok((name, Stored::new(version, self.record()?)))
        };
        read().map_err(|problem: Problem| {
            Error::Corrupt(format!(
                "the record `{kind}` `{name}` makes no sense: {problem}"
            ))
        })
    }

    fn record(self) -> Result<Record, Problem> {
        let fence = u64::try_from(self.fence)?;
        let put = self.put.as_deref();
        let record = Record {
            fence: Fence::new(fence).ok_or("the fence is beyond the highest")?,
            holders: serde_json::from_str(&self.holders)?,
            last: optional(self.last.as_deref())?,
            next: optional(self.next.as_deref())?,
            body: self.body.into(),
            state: state(self.state, self.state_since)?,
            put: put
                .map(|hex| Hash::parse(hex).ok_or("put is no hash"))
                .transpose()?,
        };
        if !record.is_sound() {
            return Err("its fences contradict each other".into());
        }
        Ok(record)
    }
}

/// What keeps a record from making sense.
pub(super) type Problem = Box<dyn std::error::Error>;

/// The state in its two columns.
pub(super) fn state(label: Option<String>, since: Option<i64>) -> Result<Option<State>, Problem> {
    match (label, since) {
        (None, None) => Ok(None),
        (Some(label), Some(since)) => Ok(Some(State {
            label: label.into(),
            since: Time::from_micros(since.cast_unsigned()),
        })),
        _ => Err("of state and state_since only one is there".into()),
    }
}

/// A part of a record as JSON.
pub(super) fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::Corrupt(format!("a record cannot be written as JSON: {error}")))
}

fn optional<T: DeserializeOwned>(text: Option<&str>) -> Result<Option<T>, Problem> {
    Ok(text.map(serde_json::from_str).transpose()?)
}

/// A search as values to compare with.
pub(super) struct Search<'q> {
    /// Names from here on…
    pub(super) from: &'q str,
    /// …and before this, where there is anything after the prefix.
    pub(super) to: Option<String>,
    /// Go on after this name; with a state, after this age and name.
    pub(super) after: &'q str,
    pub(super) since: i64,
    /// `held_until` from here to there.
    pub(super) held: (i64, i64),
    /// One more than a page, to see whether there is a next one.
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

/// The page that a search of one more than its limit found.
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
        .ok_or_else(|| Error::invalid("that cursor was not made by this store: start without one"))
}

/// A time to compare with: one beyond all integers may be any late one.
fn as_bound(time: Time) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// The first text after all those with this prefix, where there is one.
fn end_of(prefix: &str) -> Option<String> {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // In UTF-8 the order of bytes is the order of characters; ranges of them skip the surrogates.
        if let Some(next) = (last..=char::MAX).nth(1) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

/// What a write that did not write means, where this was there; `None`: somebody is in the way.
pub(super) fn lost(write: &Write, current: Option<Stored>) -> Option<Swapped> {
    let found = current.as_ref().map(|stored| stored.version.write);
    let expected = write.expect.as_ref().map(|version| version.write);
    match (found == expected, &write.put) {
        (false, _) => Some(Swapped::Conflict(current)),
        // Nothing was to be deleted, and nothing is there.
        (true, None) if expected.is_none() => Some(Swapped::Written { tag: None }),
        (true, _) => None,
    }
}

/// The error of a batch of which nothing was answered: the one that leaves most open.
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
        true => Error::Indeterminate("the database did not tell its time".into()),
        false => errors.swap_remove(open.unwrap_or(0)),
    }
}

/// How long a write waits for somebody else's lock while others wait for its answer, and while none do.
pub(super) const WAIT_IN_COMPANY: Duration = Duration::from_millis(100);
const WAIT_ALONE: Duration = Duration::from_millis(1_500);
/// How long a row that stayed locked is not waited for in company again.
const STUCK: Duration = Duration::from_secs(2);

/// Rows that were locked for long, and when that was last seen.
#[derive(Default)]
pub(super) struct Stuck(Mutex<HashMap<Name, Instant>>);

impl Stuck {
    /// How long to wait for a record that somebody is in the way of.
    pub(super) fn wait_for(&self, name: &Name, in_company: bool) -> Duration {
        let seen = self.rows().get(name).copied();
        let is_stuck = seen.is_some_and(|seen| seen.elapsed() < STUCK);
        match (in_company, is_stuck) {
            (false, _) => WAIT_ALONE,
            (true, false) => WAIT_IN_COMPANY,
            (true, true) => Duration::ZERO,
        }
    }

    /// This one stays locked; the error that says so.
    pub(super) fn note(&self, name: &Name, see: &str) -> Error {
        let now = Instant::now();
        let mut rows = self.rows();
        rows.retain(|_, seen| now - *seen < STUCK);
        rows.insert(name.clone(), now);
        Error::Unavailable(format!(
            "`{name}` is locked by another transaction in the database: see {see}"
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
    fn a_prefix_ends_before_the_next_text() {
        for (prefix, end) in [("a", "b"), ("a\u{10FFFF}", "b"), ("\u{D7FF}", "\u{E000}")] {
            assert_eq!(end_of(prefix).as_deref(), Some(end));
        }
        for endless in ["", "\u{10FFFF}\u{10FFFF}"] {
            assert_eq!(end_of(endless), None);
        }
    }
}
