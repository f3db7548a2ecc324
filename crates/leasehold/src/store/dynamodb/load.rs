//! Loads items with consistent reads.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::KeysAndAttributes;
use futures_util::future::try_join_all;
use leasehold_core::{Name, Stamp};
use tokio::time::Instant;

use super::client::CALL_TIMEOUT;
use super::failure::{self, Ambiguity};
use super::request_trace::{RequestTrace, later};
use super::{DynamoDb, item, require_stamp};
use crate::store::{Answer, Stored};
use crate::{Error, Result};

/// The maximum number of keys in one call.
pub(super) const MAX_KEYS: usize = 100;
/// The first pause before requesting the keys that a partial answer left out.
const PAUSE: Duration = Duration::from_millis(25);

type LoadedRecords = HashMap<Name, Stored>;

impl DynamoDb {
    /// Loads the records that exist under these names.
    pub(super) async fn records(&self, names: &[Name]) -> Result<Answer<LoadedRecords>> {
        match names {
            [] => self.record("time:").await,
            [name] => self.record(&item::id(name)).await,
            names => {
                let deadline = Instant::now() + CALL_TIMEOUT;
                let parts = names
                    .chunks(MAX_KEYS)
                    .map(|names| self.part(names, deadline));
                let mut records = HashMap::new();
                let mut stamp = None;
                for part in try_join_all(parts).await? {
                    records.extend(part.value);
                    stamp = later(stamp, Some(part.stamp));
                }
                Ok(Answer {
                    value: records,
                    stamp: require_stamp(stamp)?,
                })
            }
        }
    }

    /// Loads the record with one id, with the cheapest call.
    async fn record(&self, id: &str) -> Result<Answer<LoadedRecords>> {
        let trace = RequestTrace::default();
        let request = self.clients.reads.get_item();
        let answer = request
            .table_name(&self.options.table)
            .key(item::ID, item::text(id))
            .consistent_read(true)
            .customize()
            .interceptor(trace.clone())
            .send()
            .await
            .map_err(|error| failure::of(&error, &trace, Ambiguity::None))?;
        let record = answer.item.map(item::stored).transpose()?;
        Ok(Answer {
            value: record.into_iter().collect(),
            stamp: require_stamp(trace.stamp())?,
        })
    }

    /// Loads records until every key is answered: a busy table may leave some for later.
    async fn part(&self, names: &[Name], deadline: Instant) -> Result<Answer<LoadedRecords>> {
        let mut records = HashMap::new();
        let mut stamp: Option<Stamp> = None;
        let mut pause = PAUSE;
        let mut left = Some(HashMap::from([(
            self.options.table.clone(),
            keys_of(names)?,
        )]));
        while let Some(keys) = left {
            let trace = RequestTrace::default();
            let request = self.clients.reads.batch_get_item();
            let answer = request
                .set_request_items(Some(keys))
                .customize()
                .interceptor(trace.clone())
                .send()
                .await
                .map_err(|error| failure::of(&error, &trace, Ambiguity::None))?;
            for item in answer
                .responses
                .into_iter()
                .flatten()
                .flat_map(|(_, it)| it)
            {
                let (name, stored) = item::stored(item)?;
                records.insert(name, stored);
            }
            stamp = later(stamp, trace.stamp());
            left = answer.unprocessed_keys.filter(|keys| !keys.is_empty());
            if left.is_some() {
                if Instant::now() + pause > deadline {
                    return Err(Error::Unavailable(
                        "DynamoDB answers only partially, because its capacity is exhausted: raise it, or use on-demand capacity".into(),
                    ));
                }
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
        }
        Ok(Answer {
            value: records,
            stamp: require_stamp(stamp)?,
        })
    }
}

fn keys_of(names: &[Name]) -> Result<KeysAndAttributes> {
    // Keys must be unique.
    let ids: std::collections::BTreeSet<_> = names.iter().map(item::id).collect();
    let keys = ids
        .into_iter()
        .map(|id| HashMap::from([(item::ID.to_owned(), item::text(id))]));
    KeysAndAttributes::builder()
        .set_keys(Some(keys.collect()))
        .consistent_read(true)
        .build()
        .map_err(|error| Error::Corrupt(error.to_string()))
}
