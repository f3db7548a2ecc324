//! Builds swaps as transactions.

use serde_json::{Value, json};

use super::failure;
use super::keys::{self, Keys};
use crate::store::{Swapped, Write};
use crate::{Error, Result};

/// Splits writes into batches with a maximum count and an approximate maximum size.
pub(super) fn batches(
    writes: &[Write],
    limit: usize,
    bytes: usize,
) -> impl Iterator<Item = &[Write]> {
    let mut rest = writes;
    std::iter::from_fn(move || {
        let mut left = bytes;
        let fits = |write: &&Write| {
            let size = write.put.as_ref().map_or(0, |(_, record)| {
                record.body.len() + 512 * (1 + record.holders.len())
            });
            let fits = size <= left;
            left = left.saturating_sub(size);
            fits
        };
        let count = rest.iter().take(limit).take_while(fits).count();
        let (batch, later) = rest.split_at(count.max(1).min(rest.len()));
        rest = later;
        (!batch.is_empty()).then_some(batch)
    })
}

/// Writes a record, and moves its index key, if it still has the revision; otherwise reads it.
pub(super) fn transaction(keys: &Keys, write: &Write) -> Result<Value> {
    let key = keys.record(&write.name);
    let (revision, old_state) = match &write.expect {
        // A missing key has revision 0.
        None => (0, None),
        Some(version) => {
            // A revision that no key ever has.
            let never = (-1, None);
            let tag = version.tag.as_deref();
            tag.and_then(keys::parse_tag).unwrap_or(never)
        }
    };
    let mut done = Vec::new();
    let mut new_state = None;
    match &write.put {
        None => done.push(json!({ "request_delete_range": { "key": key } })),
        Some((id, record)) => {
            let value = keys::encoded(&keys::value(*id, record)?);
            done.push(json!({ "request_put": { "key": key, "value": value } }));
            new_state = record.state.clone();
        }
    }
    if old_state != new_state {
        if let Some(old) = old_state {
            let key = keys.index(&write.name, &old);
            done.push(json!({ "request_delete_range": { "key": key } }));
        }
        if let Some(new) = new_state {
            let key = keys.index(&write.name, &new);
            done.push(json!({ "request_put": { "key": key } }));
        }
    }
    Ok(json!({ "request_txn": {
        "compare": [{ "key": key, "target": "MOD", "mod_revision": revision.to_string() }],
        "success": done,
        "failure": [{ "request_range": { "key": key } }],
    } }))
}

/// Reads the results of these writes.
pub(super) fn swapped(keys: &Keys, answer: &Value, writes: &[Write]) -> Result<Vec<Swapped>> {
    let unknown = || Error::Indeterminate("etcd returned an unexpected answer".into());
    let revision = keys::number(&answer["header"]["revision"]).ok_or_else(unknown)?;
    let responses = answer["responses"].as_array().ok_or_else(unknown)?;
    if responses.len() != writes.len() {
        return Err(unknown());
    }
    let one = |(write, response): (&Write, &Value)| {
        let transaction = &response["response_txn"];
        if transaction["succeeded"] == true {
            let put = write.put.as_ref();
            let tag = put.map(|(_, record)| keys::tag(revision, record));
            return Swapped::Written { tag };
        }
        let read = &transaction["responses"][0]["response_range"];
        match read.is_object() {
            true => match keys.first(read) {
                Ok(current) => Swapped::Conflict(current.map(|(_, stored)| stored)),
                Err(corrupt) => Swapped::Failed(corrupt),
            },
            false => Swapped::Failed(failure::unexpected_answer()),
        }
    };
    Ok(writes.iter().zip(responses).map(one).collect())
}
