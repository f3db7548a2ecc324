//! Converts names and records to keys and values and back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use leasehold_core::{Kind, Name, Record, State, Text, Time};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::Value;

use super::failure;
use crate::store::json::ReadableRecord;
use crate::store::{Stored, Version, WriteId};
use crate::{Error, Result};

/// Characters to encode in a state: the separator of keys and the escape character.
const IN_STATES: &AsciiSet = &CONTROLS.add(b'/').add(b'%');

/// The keys under a prefix.
#[derive(Clone)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: String) -> Self {
        Self { prefix }
    }

    /// Encodes a key for the gateway.
    pub(super) fn encoded(&self, rest: &str) -> String {
        STANDARD.encode(format!("{}{rest}", self.prefix))
    }

    /// Encodes the first key after all keys with this prefix.
    pub(super) fn encoded_end(&self, rest: &str) -> String {
        let mut end = format!("{}{rest}", self.prefix).into_bytes();
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                break;
            }
        }
        STANDARD.encode(end)
    }

    /// Returns the key of a record.
    pub(super) fn record(&self, name: &Name) -> String {
        self.encoded(&record(name.kind(), name.as_str()))
    }

    /// Returns the index key of a work item.
    pub(super) fn index(&self, name: &Name, state: &State) -> String {
        let since = state.since.as_micros();
        let folder = index(name.kind(), &state.label);
        self.encoded(&format!("{folder}{since:020}/{name}"))
    }

    /// Returns the part of a key after the prefix.
    pub(super) fn rest(&self, pair: &Value) -> Option<String> {
        let key = decoded(&pair["key"])?;
        key.strip_prefix(&self.prefix).map(str::to_owned)
    }

    /// Returns the name in the key of a record.
    pub(super) fn name(&self, pair: &Value) -> Option<Name> {
        let rest = self.rest(pair)?;
        let (kind, name) = rest.split_once('/')?;
        Name::new(Kind::parse(kind)?, name).ok()
    }

    /// Reads the first record of a range.
    pub(super) fn first(&self, range: &Value) -> Result<Option<(Name, Stored)>> {
        let first = range["kvs"].as_array().and_then(|pairs| pairs.first());
        first.map(|pair| self.stored(pair)).transpose()
    }

    /// Reads the record of a key.
    pub(super) fn stored(&self, pair: &Value) -> Result<(Name, Stored)> {
        let name = self.name(pair).ok_or_else(failure::unexpected_answer)?;
        let corrupt =
            |problem: &str| Error::Corrupt(format!("the record {name:?} is corrupt: {problem}"));
        let text = decoded(&pair["value"]).ok_or_else(|| corrupt("it is not UTF-8"))?;
        let shown: ReadableRecord<'_> =
            serde_json::from_str(&text).map_err(|error| corrupt(&error.to_string()))?;
        let (write, record) = shown.read().map_err(corrupt)?;
        let revision = number(&pair["mod_revision"]).ok_or_else(failure::unexpected_answer)?;
        let tag = Some(tag(revision, &record));
        let version = Version { write, tag };
        Ok((name, Stored::new(version, record)))
    }
}

/// Returns the key of a record, without the prefix.
pub(super) fn record(kind: Kind, name: &str) -> String {
    format!("{}/{name}", kind.as_str())
}

/// Returns the common start of the index keys of a state, without the prefix.
pub(super) fn index(kind: Kind, state: &str) -> String {
    let state = utf8_percent_encode(state, IN_STATES);
    format!("state/{}/{state}/", kind.as_str())
}

/// Returns the stored form of a record.
pub(super) fn value(write: WriteId, record: &Record) -> Result<String> {
    serde_json::to_string(&ReadableRecord::new(write, record))
        .map_err(|error| Error::Corrupt(format!("a record cannot be written as JSON: {error}")))
}

/// Returns the tag of a version: its revision and its index key, which a write that replaces it has to move.
pub(super) fn tag(revision: i64, record: &Record) -> Text {
    match &record.state {
        None => revision.to_string(),
        Some(State { label, since }) => format!("{revision} {} {label}", since.as_micros()),
    }
    .into()
}

/// Parses a [`tag`].
pub(super) fn parse_tag(tag: &str) -> Option<(i64, Option<State>)> {
    let Some((revision, state)) = tag.split_once(' ') else {
        return Some((tag.parse().ok()?, None));
    };
    let (since, label) = state.split_once(' ')?;
    let since = Time::from_micros(since.parse().ok()?);
    let label = label.into();
    Some((revision.parse().ok()?, Some(State { label, since })))
}

/// Parses a number, which the gateway formats as text.
pub(super) fn number(value: &Value) -> Option<i64> {
    value.as_str()?.parse().ok()
}

fn decoded(value: &Value) -> Option<String> {
    let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).ok()?;
    String::from_utf8(bytes).ok()
}

/// Encodes a value for the gateway.
pub(super) fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_distinct_key_prefixes() {
        let folders: Vec<_> = ["A", "A/B", "A%2FB", "", "/", "%"]
            .iter()
            .map(|state| index(Kind::Lock, state))
            .collect();
        for (n, one) in folders.iter().enumerate() {
            for (m, other) in folders.iter().enumerate() {
                assert!(n == m || !one.starts_with(other.as_str()), "{one} {other}");
            }
        }
    }

    #[test]
    fn prefix_range_ends_after_all_keys_with_the_prefix() {
        let keys = Keys::new("leasehold/".into());
        assert_eq!(
            keys.encoded_end("lock/"),
            STANDARD.encode("leasehold/lock0")
        );
    }
}
