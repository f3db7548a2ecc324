//! Leases in etcd.
//!
//! # Guarantee
//! Linearizable, and durable through the loss of any minority of members: every swap is a transaction that a majority
//! has on disk, and every read is confirmed by a majority. The time is that of the member that answers, from the
//! answer's `Date` header. It has a resolution of a second, so the shortest ttl is 8 s.
//!
//! # Stored form
//! One key per record, `leasehold/lock/NAME`, with readable JSON. Work items have a second, empty key as an index,
//! oldest first: `leasehold/state/lock/STATE/SINCE/NAME`.
//!
//! # Set-up
//! None. With authentication, the user's role needs `readwrite` on the prefix `leasehold/`. Requires etcd 3.4 or
//! newer with its JSON gateway, which is on by default.
//!
//! # Options
//! `etcd://[USER:PASSWORD@]HOST[:PORT],…?…`: `prefix` (`leasehold/`), `changes=off` (poll instead of a watch),
//! `margin` (2s: how far the members' clocks may differ), `tls=on`, `ca` (a file with trusted certificates; by
//! default the system's), `cert` and `key` (files with the client's certificate and key).
//!
//! # Limits
//! A batch is one transaction of at most 64 records and a megabyte, otherwise several. etcd keeps old versions until
//! it is configured to compact them: `--auto-compaction-retention=1h`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::{Name, Stamp};
use serde_json::{Value, json};

use super::notification_request::NotificationRequest;
use super::{Answer, Changes, Check, Facts, Page, Query, Store, Stored, Swapped, Write};
use crate::{Error, Result};

mod changes;
mod check;
mod failure;
mod find;
mod gateway;
mod keys;
mod options;
mod swap;

use failure::Ambiguity;
use gateway::Gateway;
use keys::Keys;
use options::EtcdOptions;

/// A server accepts 128 operations in a transaction, including those of nested transactions.
const BATCH: usize = 64;
/// A server accepts requests of 1.5 MiB.
const BATCH_BYTES: usize = 1024 * 1024;

/// A store in etcd.
pub struct Etcd {
    gateway: Arc<Gateway>,
    keys: Keys,
    margin: Duration,
    changes: bool,
    watch_request: NotificationRequest,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let options = EtcdOptions::parse(url)?;
    let store = Etcd {
        gateway: Arc::new(Gateway::new(&options)?),
        keys: Keys::new(options.prefix),
        margin: options.margin,
        changes: options.changes,
        watch_request: NotificationRequest::default(),
    };
    store.init().await?;
    Ok(Arc::new(store))
}

impl Etcd {
    /// Runs a transaction.
    async fn run(&self, transaction: Value, ambiguity: Ambiguity) -> Result<(Value, Stamp)> {
        self.gateway
            .call("/v3/kv/txn", &transaction, ambiguity)
            .await
    }

    /// Swaps records in one transaction of independent nested transactions.
    async fn swap_batch(&self, writes: &[Write]) -> Result<(Vec<Swapped>, Stamp)> {
        let operations = writes
            .iter()
            .map(|write| swap::transaction(&self.keys, write))
            .collect::<Result<Vec<_>>>()?;
        let transaction = json!({ "success": operations });
        let (answer, stamp) = self.run(transaction, Ambiguity::MayHaveWritten).await?;
        Ok((swap::swapped(&self.keys, &answer, writes)?, stamp))
    }

    /// Adds the revision to expected versions without one, which come from another store or were made up, by loading
    /// the records.
    async fn with_tags(&self, mut writes: Vec<Write>) -> Result<Vec<Write>> {
        let tagless = |write: &&mut Write| {
            let expect = write.expect.as_ref();
            expect.is_some_and(|version| version.tag.is_none())
        };
        for write in writes.iter_mut().filter(tagless) {
            let loaded = self.load(std::slice::from_ref(&write.name)).await?.value;
            if let (Some(Some(stored)), Some(version)) = (loaded.first(), &mut write.expect)
                && stored.version.write == version.write
            {
                *version = stored.version.clone();
            }
        }
        Ok(writes)
    }
}

#[async_trait]
impl Store for Etcd {
    fn facts(&self) -> Facts {
        Facts {
            margin: self.margin,
            batch: BATCH,
            in_flight: 4,
            poll: Duration::from_millis(if self.changes { 250 } else { 100 }),
        }
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        let ranges: Vec<_> = names
            .iter()
            .map(|name| json!({ "request_range": { "key": self.keys.record(name) } }))
            .collect();
        let (answer, stamp) = self
            .run(json!({ "success": ranges }), Ambiguity::None)
            .await?;
        let responses = answer["responses"].as_array();
        let value = names
            .iter()
            .enumerate()
            .map(|(index, _)| {
                let response = responses.and_then(|responses| responses.get(index));
                let found = response.ok_or_else(failure::unexpected_answer)?;
                Ok(self
                    .keys
                    .first(&found["response_range"])?
                    .map(|(_, stored)| stored))
            })
            .collect::<Result<_>>()?;
        Ok(Answer { value, stamp })
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        if writes.is_empty() {
            let Answer { stamp, .. } = self.load(&[]).await?;
            return Ok(Answer {
                value: Vec::new(),
                stamp,
            });
        }
        let writes = self.with_tags(writes).await?;
        let batches = swap::batches(&writes, BATCH, BATCH_BYTES);
        let done = join_all(batches.map(async |batch| (batch.len(), self.swap_batch(batch).await)));
        let (mut value, mut answered_at, mut failed) = (Vec::new(), None, None);
        for (writes, answer) in done.await {
            match answer {
                Ok((swapped, stamp)) => {
                    value.extend(swapped);
                    answered_at = Some(stamp);
                }
                Err(error) => {
                    value.extend((0..writes).map(|_| Swapped::Failed(error.clone())));
                    // An indeterminate error takes precedence.
                    if failed.is_none() || matches!(error, Error::Indeterminate(_)) {
                        failed = Some(error);
                    }
                }
            }
        }
        match (answered_at, failed) {
            (Some(stamp), _) => Ok(Answer { value, stamp }),
            (None, failed) => Err(failed.unwrap_or_else(failure::unexpected_answer)),
        }
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        match &query.state {
            None => self.find_by_name(query).await,
            Some(state) => self.find_by_state(query, state).await,
        }
    }

    fn changes(&self) -> Option<Changes> {
        let follow = || {
            changes::follow(
                self.gateway.clone(),
                self.keys.clone(),
                self.watch_request.clone(),
            )
        };
        self.changes.then(follow)
    }

    fn watch(&self) {
        self.watch_request.renew();
    }

    /// Creates nothing, but detects a cluster that cannot be used.
    async fn init(&self) -> Result<()> {
        let range = json!({ "request_range": {
            "key": self.keys.encoded(""),
            "range_end": self.keys.encoded_end(""),
            "keys_only": true,
            "limit": 1,
        } });
        let read = self.run(json!({ "success": [range] }), Ambiguity::None);
        read.await.map(drop)
    }

    async fn check(&self) -> Result<Vec<Check>> {
        check::checks(&self.gateway).await
    }
}
