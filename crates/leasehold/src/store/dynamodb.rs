//! Leases in an Amazon DynamoDB table.
//!
//! # Guarantee
//! Linearizable: conditional writes and strongly consistent reads of single items. What was acknowledged is on several
//! disks in several zones. A global table with eventual consistency is refused: two regions could hold one lease. Time
//! comes from the `Date` of the answers.
//!
//! # Stored form
//! An item for each record, under `id` = `lock:NAME` or `gate:NAME`, with an attribute for everything; lists are JSON,
//! times microseconds, and `owner` and `expires` are there to be read by people. The index `by_name` has all names, the
//! index `by_state` those with a state, the oldest first; both have nothing but keys.
//!
//! # Set-up
//! The table is made when it is not there and the credentials may create it: on demand, with both indexes. Otherwise an
//! administrator runs `leasehold init`, or makes it as `docs/stores/dynamodb.md` shows.
//!
//! # Options
//! `dynamodb://TABLE?…`: `region` (otherwise the environment's), `endpoint` (another place than Amazon's), `profile` (of
//! the AWS configuration files), `poll` (250ms: how often to look at names that somebody waits for), `margin` (2s: what
//! Amazon's clocks may differ by). Credentials come from the environment, the configuration files, or the machine's
//! role; an `endpoint` on this machine is taken for an emulator, which needs none.
//!
//! # Limits
//! A lease to be held is of 8 seconds at least, since `Date` has whole seconds. New names come at a thousand a second,
//! until DynamoDB has split the index of names. No hints of changes: others poll.

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
mod swap;
mod table;
mod witness;

use client::Clients;
use options::Options;

/// Records in a DynamoDB table.
pub struct DynamoDb {
    clients: Clients,
    options: Options,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let options = Options::parse(url)?;
    let clients = Clients::connect(&options).await?;
    let store = DynamoDb { clients, options };
    store.init().await?;
    Ok(Arc::new(store))
}

/// The time that an answer must tell.
fn told(stamp: Option<Stamp>) -> Result<Stamp> {
    stamp.ok_or_else(|| {
        Error::Denied(
            "the answers of DynamoDB have no `Date`, by which leases expire: what is at the `endpoint`?".into(),
        )
    })
}

#[async_trait]
impl Store for DynamoDb {
    fn facts(&self) -> Facts {
        Facts {
            margin: self.options.margin,
            batch: load::KEYS,
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
