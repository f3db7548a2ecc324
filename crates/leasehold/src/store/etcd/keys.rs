//! Keys and values: what stands where, and back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use leasehold_core::{Kind, Name, Record, State, Text, Time};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::Value;

use super::failure;
use crate::store::json::Shown;
use crate::store::{Stored, Version, WriteId};
use crate::{Error, Result};

/// What would end a state's part of a key too early, and what marks that it was replaced.
const IN_STATES: &AsciiSet = &CONTROLS.add(b'/').add(b'%');

/// What all keys begin with.
#[derive(Clone)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: String) -> Self {
        Self { prefix }
    }

    /// A key under the prefix, as the gateway takes it.
    pub(super) fn encoded(&self, rest: &str) -> String {
        STANDARD.encode(format!("{}{rest}", self.prefix))
    }

    /// The first key after all those that begin like this, as the gateway takes it.
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

    /// The key of a record.
    pub(super) fn record(&self, name: &Name) -> String {
        self.encoded(&record(name.kind(), name.as_str()))
    }

    /// The key by which a work item is found.
    pub(super) fn index(&self, name: &Name, state: &State) -> String {
        let since = state.since.as_micros();
        let folder = index(name.kind(), &state.label);
        self.encoded(&format!("{folder}{since:020}/{name}"))
    }

    /// What a key says after the prefix.
    pub(super) fn rest(&self, pair: &Value) -> Option<String> {
        let key = decoded(&pair["key"])?;
        key.strip_prefix(&self.prefix).map(str::to_owned)
    }

    /// The name that the key of a record has.
    pub(super) fn name(&self, pair: &Value) -> Option<Name> {
        let rest = self.rest(pair)?;
        let (kind, name) = rest.split_once('/')?;
        Name::new(Kind::parse(kind)?, name).ok()
    }

    /// The first record of a range.
    pub(super) fn first(&self, range: &Value) -> Result<Option<(Name, Stored)>> {
        let first = range["kvs"].as_array().and_then(|pairs| pairs.first());
        first.map(|pair| self.stored(pair)).transpose()
    }

    /// The record under a key.
    pub(super) fn stored(&self, pair: &Value) -> Result<(Name, Stored)> {
        let name = self.name(pair).ok_or_else(failure::odd)?;
        let corrupt = |problem: &str| {
            Error::Corrupt(format!("the record {name:?} makes no sense: {problem}"))
        };
        let text = decoded(&pair["value"]).ok_or_else(|| corrupt("it is not UTF-8"))?;
        let shown: Shown<'_> =
            serde_json::from_str(&text).map_err(|error| corrupt(&error.to_string()))?;
        let (write, record) = shown.read().map_err(corrupt)?;
        let revision = number(&pair["mod_revision"]).ok_or_else(failure::odd)?;
        let tag = Some(tag(revision, &record));
        let version = Version { write, tag };
        Ok((name, Stored::new(version, record)))
    }
}

/// The key of a record after the prefix.
pub(super) fn record(kind: Kind, name: &str) -> String {
    format!("{}/{name}", kind.as_str())
}

/// What the keys of all work items in a state begin with, after the prefix.
pub(super) fn index(kind: Kind, state: &str) -> String {
    let state = utf8_percent_encode(state, IN_STATES);
    format!("state/{}/{state}/", kind.as_str())
}

/// A record as it is stored.
pub(super) fn value(write: WriteId, record: &Record) -> Result<String> {
    serde_json::to_string(&Shown::new(write, record))
        .map_err(|error| Error::Corrupt(format!("a record cannot be written as JSON: {error}")))
}

/// A version's revision, and by which state it is found: whoever replaces it has to move that, too.
pub(super) fn tag(revision: i64, record: &Record) -> Text {
    match &record.state {
        None => revision.to_string(),
        Some(State { label, since }) => format!("{revision} {} {label}", since.as_micros()),
    }
    .into()
}

/// What [`tag`] was made of.
pub(super) fn parse_tag(tag: &str) -> Option<(i64, Option<State>)> {
    let Some((revision, state)) = tag.split_once(' ') else {
        return Some((tag.parse().ok()?, None));
    };
    let (since, label) = state.split_once(' ')?;
    let since = Time::from_micros(since.parse().ok()?);
    let label = label.into();
    Some((revision.parse().ok()?, Some(State { label, since })))
}

/// A number, which the gateway writes as text.
pub(super) fn number(value: &Value) -> Option<i64> {
    value.as_str()?.parse().ok()
}

fn decoded(value: &Value) -> Option<String> {
    let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).ok()?;
    String::from_utf8(bytes).ok()
}

/// As the gateway takes a value.
pub(super) fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_never_looks_like_another() {
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
    fn the_end_of_a_prefix_is_after_all_that_begins_like_it() {
        let keys = Keys::new("leasehold/".into());
        assert_eq!(
            keys.encoded_end("lock/"),
            STANDARD.encode("leasehold/lock0")
        );
    }
}
