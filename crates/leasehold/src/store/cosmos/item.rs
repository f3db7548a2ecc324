//! Converts a record to an item and back.

use std::borrow::Cow;
use std::fmt::Write as _;

use leasehold_core::{Hash, Kind, Name, Record, Time};
use serde::{Deserialize, Serialize};

use crate::store::json::ReadableRecord;
use crate::store::{Stored, Version, WriteId};
use crate::{Error, Result};

/// The maximum length of an id, in bytes.
const MAX_ID_LENGTH: usize = 1_023;
/// Introduces the hash of a long name. No escape sequence looks like it.
const HASH_MARKER: &str = "~~";
const HASH_DIGITS: usize = 32;

/// The item of a record. Times are microseconds since 1970.
#[derive(Serialize, Deserialize)]
struct Item<'a> {
    /// The id, which is also the partition key.
    id: String,
    /// A copy of the id: the partition key of containers in which other items share the partition.
    #[serde(skip_deserializing)]
    lease: String,
    kind: Cow<'a, str>,
    name: Cow<'a, str>,
    /// The sort key for searches by name.
    #[serde(skip_deserializing)]
    listed: String,
    /// The keys for searches by state, which only work items have.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    queued: Option<String>,
    /// Exempts the record from the container's time to live.
    #[serde(skip_deserializing)]
    ttl: i32,
    #[serde(flatten)]
    readable: ReadableRecord<'a>,
    #[serde(rename = "_etag", skip_serializing)]
    etag: Option<String>,
}

/// Returns the id of an item: kind and name, with only characters that are unreserved in URLs. Injective.
pub(crate) fn id(name: &Name) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let mut id = format!("{}.", name.kind().as_str());
    id.push_str(&escaped(name.as_str(), is_plain));
    if id.len() > MAX_ID_LENGTH {
        id.truncate(MAX_ID_LENGTH - HASH_MARKER.len() - HASH_DIGITS);
        id.push_str(HASH_MARKER);
        id.push_str(&Hash::of(&[name.as_str().as_bytes()]).to_string());
    }
    id
}

/// Returns a sort key for a name, or for a prefix of names, that sorts bytewise. Cosmos DB sorts by UTF-16 code
/// units, which for ASCII is the same. Escaped characters start with `~`, the highest ASCII character in names, and
/// therefore sort last, as they should.
pub(super) fn listed(name: &str) -> String {
    escaped(name, |byte| byte.is_ascii() && byte != b'~')
}

/// Escapes each byte that is not plain as `~` and two hexadecimal digits.
fn escaped(text: &str, is_plain: impl Fn(u8) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_plain(byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "~{byte:02X}");
        }
    }
    escaped
}

/// Returns the queue of a kind and state.
pub(super) fn queue(kind: Kind, state: &str) -> String {
    format!("{}:{state}", kind.as_str())
}

/// Returns the position in the queue: oldest first, then by name.
pub(super) fn queued(since: Time, name: &Name) -> String {
    format!("{:020}:{}", since.as_micros(), listed(name.as_str()))
}

/// Returns the item of a record.
pub(super) fn json(name: &Name, write: WriteId, record: &Record) -> Result<Vec<u8>> {
    let state = record.state.as_ref();
    let id = id(name);
    let item = Item {
        lease: id.clone(),
        id,
        kind: name.kind().as_str().into(),
        name: name.as_str().into(),
        listed: listed(name.as_str()),
        queue: state.map(|state| queue(name.kind(), &state.label)),
        queued: state.map(|state| queued(state.since, name)),
        ttl: -1,
        readable: ReadableRecord::new(write, record),
        etag: None,
    };
    serde_json::to_vec(&item)
        .map_err(|error| Error::Corrupt(format!("a record cannot be written as JSON: {error}")))
}

/// Reads the record in an item.
pub(super) fn found(json: &[u8]) -> Result<(Name, Stored)> {
    read::<Item<'_>>(json)?.found()
}

/// Reads the records in the answer to a query.
pub(super) fn all_found(json: &[u8]) -> Result<Vec<(Name, Stored)>> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(rename = "Documents", borrow)]
        items: Vec<Item<'a>>,
    }
    let items = read::<Answer<'_>>(json)?.items;
    items.into_iter().map(Item::found).collect()
}

fn read<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T> {
    serde_json::from_slice(json)
        .map_err(|error| Error::Corrupt(format!("an item in Cosmos DB is not a record: {error}")))
}

impl Item<'_> {
    fn found(self) -> Result<(Name, Stored)> {
        let id = self.id;
        let corrupt = |problem: &str| {
            Error::Corrupt(format!(
                "the item `{id}` in Cosmos DB is corrupt: {problem}"
            ))
        };
        let kind = Kind::parse(&self.kind).ok_or_else(|| corrupt("unknown kind"))?;
        let name = Name::new(kind, &self.name).map_err(|problem| corrupt(&problem.to_string()))?;
        let (write, record) = self.readable.read().map_err(corrupt)?;
        let tag = self.etag.map(Into::into);
        let version = Version { write, tag };
        Ok((name, Stored::new(version, record)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_readable_and_have_no_forbidden_characters() {
        let id_of = |text: &str| id(&Name::lock(text).unwrap());
        assert_eq!(
            id_of("orders_2.nightly-report"),
            "lock.orders_2.nightly-report"
        );
        assert_eq!(id_of("a/b #?\\~é"), "lock.a~2Fb~20~23~3F~5C~7E~C3~A9");
        let gate = Name::new(Kind::Gate, "a").unwrap();
        assert_eq!(id(&gate), "gate.a");
    }

    #[test]
    fn sort_keys_are_in_byte_order() {
        let mut names = [
            "a",
            "a ",
            "a~",
            "a~7F",
            "a}",
            "ab",
            "a\u{80}",
            "a\u{e000}",
            "a\u{ffff}",
            "a🔒",
            "a\u{10ffff}",
        ];
        names.sort_unstable();
        let listed = names.map(listed);
        assert!(listed.is_sorted(), "{listed:?}");
        assert!(listed.iter().all(|text| text.is_ascii()));
        let distinct: HashSet<_> = listed.iter().collect();
        assert_eq!(distinct.len(), names.len());
    }

    #[test]
    fn long_names_have_distinct_ids() {
        let stem = "/".repeat(Name::MAX_BYTES - 1);
        let names = ["a", "b", "/"].map(|end| format!("{stem}{end}"));
        let ids: HashSet<_> = names
            .iter()
            .map(|name| id(&Name::lock(name).unwrap()))
            .collect();
        assert_eq!(ids.len(), 3);
        assert!(ids.iter().all(|id| id.len() == MAX_ID_LENGTH));
        // Text in a name that looks like a hash is escaped.
        let longest_plain = id(&Name::lock("x".repeat(Name::MAX_BYTES)).unwrap());
        assert!(!longest_plain.contains(HASH_MARKER));
    }
}
