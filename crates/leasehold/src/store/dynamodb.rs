//! Leases in an Amazon DynamoDB table.
//!
//! # Guarantee
//! Linearizable: conditional writes and strongly consistent reads of single items. Acknowledged writes are on disks
//! in several zones. A global table with eventual consistency is refused, because two regions could hold one lease.
//! The time comes from the `Date` header of the answers.
//!
//! # Stored form
//! One item per record, with the `id` `lock:NAME` or `gate:NAME` and one attribute per value: lists as JSON, times in
//! microseconds, and `owner` and `expires` in readable form. The index `by_name` contains all names, the index
//! `by_state` those with a state, oldest first; both contain only keys.
//!
//! # Set-up
//! The table is created if it is missing and the credentials allow it: with on-demand capacity and both indexes.
//! Otherwise an administrator runs `leasehold init`, or creates it as in `docs/stores/dynamodb.md`.
//!
//! # Options
//! `dynamodb://TABLE?…`: `region` (by default the environment's), `endpoint` (instead of Amazon's), `profile` (of the
//! AWS configuration files), `poll` (250ms: how often to poll names with waiters), `margin` (2s: how far Amazon's
//! clocks may differ). Credentials come from the environment, the configuration files, or the machine's role. An
//! `endpoint` on this machine is treated as an emulator, which requires none.
//!
//! # Limits
//! The shortest ttl is 8 s, because `Date` has a resolution of a second. About a thousand new names per second are
//! possible until DynamoDB splits the index of names. No change notifications: other processes poll.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::{Name, Stamp};

use super::{Answer, Check, Facts, Page, Query, Store, Stored, Swapped, Write};
use crate::{Error, Result};

mod check;
mod client;
mod failure;
mod find;
mod item;
mod load;
mod options;
mod request_trace;
mod swap;
mod table;

use client::Clients;
use options::DynamoDbOptions;

/// A store in a DynamoDB table.
pub struct DynamoDb {
    clients: Clients,
    options: DynamoDbOptions,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let options = DynamoDbOptions::parse(url)?;
    let clients = Clients::connect(&options).await?;
    let store = DynamoDb { clients, options };
    store.init().await?;
    Ok(Arc::new(store))
}

/// Returns the time of an answer, or an error if it has none.
fn require_stamp(stamp: Option<Stamp>) -> Result<Stamp> {
    stamp.ok_or_else(|| {
        Error::Denied(
            "the answers of DynamoDB have no `Date` header, which leases require: check the `endpoint` in the store URL".into(),
        )
    })
}

#[async_trait]
impl Store for DynamoDb {
    fn facts(&self) -> Facts {
        Facts {
            margin: self.options.margin,
            batch: load::MAX_KEYS,
            in_flight: 4,
            poll: self.options.poll,
        }
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        let Answer { value, stamp } = self.records(names).await?;
        let records = names.iter().map(|name| value.get(name).cloned());
        Ok(Answer {
            value: records.collect(),
            stamp,
        })
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        if !writes.is_empty() {
            return self.swap_all(writes).await;
        }
        let Answer { stamp, .. } = self.records(&[]).await?;
        Ok(Answer {
            value: Vec::new(),
            stamp,
        })
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        self.search(query).await
    }

    async fn init(&self) -> Result<()> {
        self.prepare().await
    }

    async fn check(&self) -> Result<Vec<Check>> {
        self.checks().await
    }
}
