//! A record as an item, and back.

use std::borrow::Cow;
use std::fmt::Write as _;

use leasehold_core::{Hash, Kind, Name, Record, Time};
use serde::{Deserialize, Serialize};

use crate::store::json::Shown;
use crate::store::{Stored, Version, WriteId};
use crate::{Error, Result};

/// What Cosmos DB allows an id to have, in bytes.
const LONGEST_ID: usize = 1_023;
/// The mark before the hash that stands for the rest of a long name. No escape looks like it.
const HASHED: &str = "~~";
const HASH_DIGITS: usize = 32;

/// What people and queries find. Times are microseconds since 1970.
#[derive(Serialize, Deserialize)]
struct Item<'a> {
    /// Also the partition key.
    id: String,
    /// The same once more: the partition key of containers that have other items beside the lease.
    #[serde(skip_deserializing)]
    lease: String,
    kind: Cow<'a, str>,
    name: Cow<'a, str>,
    /// Where it is found by its name.
    #[serde(skip_deserializing)]
    listed: String,
    /// Where a work item is found by its state; others have none of it.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    queued: Option<String>,
    /// Cosmos DB deletes no record by itself, whatever the container says.
    #[serde(skip_deserializing)]
    ttl: i32,
    #[serde(flatten)]
    shown: Shown<'a>,
    #[serde(rename = "_etag", skip_serializing)]
    etag: Option<String>,
}

/// What an item is stored under: the kind and the name, in characters that mean nothing in a URL. No two names have the same.
pub(crate) fn id(name: &Name) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let mut id = format!("{}.", name.kind().as_str());
    id.push_str(&escaped(name.as_str(), is_plain));
    if id.len() > LONGEST_ID {
        id.truncate(LONGEST_ID - HASHED.len() - HASH_DIGITS);
        id.push_str(HASHED);
        id.push_str(&Hash::of(&[name.as_str().as_bytes()]).to_string());
    }
    id
}

/// A name, or what names begin with, so that it is sorted by its bytes. Cosmos DB sorts by the halves of characters in UTF-16;
/// in ASCII that is the same. Nothing in a name is above `~`, and so what is escaped comes last, as it should.
pub(super) fn listed(name: &str) -> String {
    escaped(name, |byte| byte.is_ascii() && byte != b'~')
}

/// With `~` and two hexadecimal digits for each byte that is not plain.
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

/// The items of a kind in a state.
pub(super) fn queue(kind: Kind, state: &str) -> String {
    format!("{}:{state}", kind.as_str())
}

/// The place among them: the oldest first, then by name.
pub(super) fn queued(since: Time, name: &Name) -> String {
    format!("{:020}:{}", since.as_micros(), listed(name.as_str()))
}

/// The item of a record.
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
        shown: Shown::new(write, record),
        etag: None,
    };
    serde_json::to_vec(&item)
        .map_err(|error| Error::Corrupt(format!("a record cannot be written as JSON: {error}")))
}

/// The record in an item.
pub(super) fn found(json: &[u8]) -> Result<(Name, Stored)> {
    read::<Item<'_>>(json)?.found()
}

/// The records in the answer to a query.
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
    serde_json::from_slice(json).map_err(|error| {
        Error::Corrupt(format!(
            "an item in Cosmos DB is not a record of ours: {error}"
        ))
    })
}

impl Item<'_> {
    fn found(self) -> Result<(Name, Stored)> {
        let id = self.id;
        let corrupt = |problem: &str| {
            Error::Corrupt(format!(
                "the item `{id}` in Cosmos DB makes no sense: {problem}"
            ))
        };
        let kind = Kind::parse(&self.kind).ok_or_else(|| corrupt("there is no such kind"))?;
        let name = Name::new(kind, &self.name).map_err(|problem| corrupt(&problem.to_string()))?;
        let (write, record) = self.shown.read().map_err(corrupt)?;
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
    fn an_id_can_be_read_and_has_nothing_that_is_forbidden() {
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
    fn what_is_listed_is_in_the_order_of_bytes() {
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
    fn long_names_have_ids_of_their_own() {
        let stem = "/".repeat(Name::MAX_BYTES - 1);
        let names = ["a", "b", "/"].map(|end| format!("{stem}{end}"));
        let ids: HashSet<_> = names
            .iter()
            .map(|name| id(&Name::lock(name).unwrap()))
            .collect();
        assert_eq!(ids.len(), 3);
        assert!(ids.iter().all(|id| id.len() == LONGEST_ID));
        // What looks like a hash in a name is escaped.
        let longest_as_it_is = id(&Name::lock("x".repeat(Name::MAX_BYTES)).unwrap());
        assert!(!longest_as_it_is.contains(HASHED));
    }
}
