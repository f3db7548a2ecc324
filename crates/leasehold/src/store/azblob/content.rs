//! Converts a record to the content and metadata of a blob and back.

use std::collections::HashMap;

use azure_core::http::Etag;
use leasehold_core::{Kind, Name, Record, State, Text, Time};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use crate::store::json::ReadableRecord;
use crate::store::{Stored, Version, WriteId, held_until};
use crate::{Error, Result};

/// Characters that are encoded in metadata: headers cannot contain them, or would lose spaces.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'/')
    .remove(b':');

/// The content of a blob.
#[derive(Serialize, Deserialize)]
struct Content<'a> {
    kind: String,
    name: String,
    #[serde(flatten)]
    readable: ReadableRecord<'a>,
}

/// Converts a record to the content of its blob.
pub(super) fn write(name: &Name, id: WriteId, record: &Record) -> Result<String> {
    let content = Content {
        kind: name.kind().as_str().to_owned(),
        name: name.as_str().to_owned(),
        readable: ReadableRecord::new(id, record),
    };
    serde_json::to_string(&content)
        .map_err(|error| Error::Corrupt(format!("a record cannot be written as JSON: {error}")))
}

/// Reads the record, and its version, in the blob of this name.
pub(super) fn read(name: &Name, content: &[u8], etag: Option<Text>) -> Result<Stored> {
    let corrupt =
        |problem: &str| Error::Corrupt(format!("the record {name:?} is corrupt: {problem}"));
    let content: Content<'_> =
        serde_json::from_slice(content).map_err(|error| corrupt(&error.to_string()))?;
    if (&*content.kind, &*content.name) != (name.kind().as_str(), name.as_str()) {
        return Err(corrupt("the blob belongs to another name"));
    }
    let (write, record) = content.readable.read().map_err(corrupt)?;
    let tag = Some(etag.ok_or_else(|| corrupt("the blob has no ETag"))?);
    let version = Version { write, tag };
    Ok(Stored::new(version, record))
}

/// Returns an ETag in quotes, as conditions require it: headers contain it in quotes, listings may not.
pub(super) fn quoted(etag: &Etag) -> Text {
    let bare = etag.as_ref().trim_matches('"');
    format!("\"{bare}\"").into()
}

/// The maximum length of a record that is stored in the metadata, so that listings include it. Azure allows 8 KiB of
/// metadata.
const MAX_INLINE: usize = 2_048;

/// Converts JSON for a header: to ASCII, and without spaces, which signing might drop.
fn to_ascii(json: &str) -> String {
    let mut ascii = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '!'..='~' => ascii.push(character),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    ascii.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    ascii
}

const NAME: &str = "name";
const STATE: &str = "state";
const SINCE: &str = "state_since";
const HELD_UNTIL: &str = "held_until";
const CONTENT: &str = "content";

/// Returns the metadata of a record: what searches need, and the whole record if it is small.
pub(super) fn metadata(name: &Name, record: &Record, content: &str) -> HashMap<String, String> {
    let encoded = |text: &str| utf8_percent_encode(text, ENCODED).to_string();
    let number = |time: Time| time.as_micros().to_string();
    let mut metadata = HashMap::from([(NAME.to_owned(), encoded(name.as_str()))]);
    let mut set = |key: &str, value: String| {
        // Metadata values cannot be empty.
        if !value.is_empty() {
            metadata.insert(key.to_owned(), value);
        }
    };
    if !record.holders.is_empty() {
        set(HELD_UNTIL, number(held_until(record)));
    }
    if let Some(State { label, since }) = &record.state {
        set(STATE, encoded(label));
        set(SINCE, number(*since));
    }
    let content = to_ascii(content);
    if content.len() <= MAX_INLINE {
        set(CONTENT, content);
    }
    metadata
}

/// A record in a listing, with enough fields to match a query.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: Name,
    pub(super) state: Option<State>,
    pub(super) held_until: Time,
    /// The whole record, if it is small.
    pub(super) stored: Option<Stored>,
}

impl Entry {
    /// Reads an entry; `None` for a blob of another program.
    pub(super) fn read(
        kind: Kind,
        metadata: &HashMap<String, String>,
        etag: Option<Text>,
    ) -> Option<Self> {
        let decoded = |key: &str| {
            let text = percent_decode_str(metadata.get(key)?).decode_utf8();
            text.ok().map(|text| text.into_owned())
        };
        let time = |key: &str| Some(Time::from_micros(metadata.get(key)?.parse().ok()?));
        let state = |since| State {
            label: decoded(STATE).unwrap_or_default().into(),
            since,
        };
        let name = Name::new(kind, decoded(NAME)?).ok()?;
        let content = metadata.get(CONTENT);
        // A corrupt record is read again from the blob, which reports the error.
        let stored = content.and_then(|content| read(&name, content.as_bytes(), etag).ok());
        Some(Self {
            state: time(SINCE).map(state),
            held_until: time(HELD_UNTIL).unwrap_or_default(),
            stored,
            name,
        })
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Fence;

    use super::*;

    #[test]
    fn metadata_round_trips_any_text() {
        let name = Name::lock(" a\u{e9}🔒%+\"<&>  b ").expect("a good name");
        for label in ["", "REQUESTED", " a b ", "%", "é\n🔒"] {
            let record = Record {
                fence: Fence::new(7).expect("a good fence"),
                holders: Vec::new(),
                last: None,
                next: None,
                body: format!("\u{7f}\0  \"{label}").into(),
                state: Some(State {
                    label: label.into(),
                    since: Time::from_micros(u64::MAX),
                }),
                put: None,
            };
            let id = WriteId(7);
            let content = write(&name, id, &record).expect("it is JSON");
            let metadata = metadata(&name, &record, &content);
            let is_printed = |byte: u8| (b'!'..=b'~').contains(&byte);
            let mut values = metadata.values();
            assert!(values.all(|value| !value.is_empty() && value.bytes().all(is_printed)));
            let tag: Option<Text> = Some("\"0x1\"".into());
            let entry = Entry::read(Kind::Lock, &metadata, tag.clone()).expect("it is a record");
            let version = Version { write: id, tag };
            assert_eq!((entry.name, &entry.state), (name.clone(), &record.state));
            assert_eq!(entry.stored, Some(Stored::new(version, record)));
        }
    }

    #[test]
    fn etag_is_the_same_from_headers_and_listings() {
        for etag in ["0x8D", "\"0x8D\""] {
            assert_eq!(&*quoted(&Etag::from(etag)), "\"0x8D\"");
        }
    }
}
