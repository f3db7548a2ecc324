//! A record as human-readable JSON.

use std::borrow::Cow;

use leasehold_core::{Record, Time};
use serde::{Deserialize, Serialize};

use super::{WriteId, held_until};

/// A record and its version in full, and for readers its owners and their expiry.
#[derive(Serialize, Deserialize)]
pub(super) struct ReadableRecord<'a> {
    write: Cow<'a, str>,
    #[serde(skip_deserializing)]
    owner: String,
    #[serde(skip_deserializing)]
    expires: Option<String>,
    record: Cow<'a, Record>,
}

impl<'a> ReadableRecord<'a> {
    pub(super) fn new(write: WriteId, record: &'a Record) -> Self {
        let owners: Vec<&str> = record.holders.iter().map(|holder| &*holder.owner).collect();
        Self {
            write: write.to_string().into(),
            owner: owners.join(", "),
            expires: (!owners.is_empty()).then(|| readable(held_until(record))),
            record: Cow::Borrowed(record),
        }
    }

    /// Returns the version and the record, or what is wrong with them.
    pub(super) fn read(self) -> Result<(WriteId, Record), &'static str> {
        let write = WriteId::parse(&self.write).ok_or("`write` is not a write id")?;
        let record = self.record.into_owned();
        match record.is_sound() {
            true => Ok((write, record)),
            false => Err("its fences are inconsistent"),
        }
    }
}

fn readable(time: Time) -> String {
    let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros)
        .map_or_else(|_| time.to_string(), |time| time.to_string())
}
