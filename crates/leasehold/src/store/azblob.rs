//! Leases in a container of Azure Blob Storage.
//!
//! # Guarantee
//! Linearizable: a blob is written only if its ETag is still the one that was read, and reads return the last write.
//! Acknowledged writes are on several disks. The time comes from the `Date` header of the answers. Azure's own blob
//! leases, of 15 to 60 seconds, are not used, so leases can have any length.
//!
//! # Stored form
//! One blob per record, `lock/NAME` or `gate/NAME`, with readable JSON. Its metadata contains what searches need:
//! `name`, `state`, `state_since`, `held_until`; and for listings the whole record if it is small.
//!
//! # Set-up
//! The container is created if it is missing and the credentials allow it. Otherwise an administrator runs `leasehold
//! init`, or `az storage container create`.
//!
//! # Options
//! `azblob://ACCOUNT/CONTAINER?…`: `key` (of the account) or `sas` (a shared access signature), by default
//! `AZURE_STORAGE_KEY` or `AZURE_STORAGE_SAS_TOKEN` of the environment; or `auth=entra` (the identity of this
//! process) or `auth=cli` (the login of `az`); `endpoint` (instead of Azure's), `poll` (250ms: how often to poll
//! names with waiters), `margin` (2s: how far Azure's clocks may differ), `timeout` (4s: how long a call may take).
//!
//! # Limits
//! The shortest ttl is 8 s, because `Date` has a resolution of a second. A conflict costs a second round trip. A
//! search by state lists all blobs of its prefix. No change notifications: other processes poll.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::Name;
use tokio::time::Instant;

use super::{Answer, Check, Facts, Page, Query, Store, Stored, Swapped, Write};
use crate::Result;

mod check;
mod client;
mod container;
mod content;
mod failure;
mod find;
mod load;
mod names;
mod options;
mod signing;
mod swap;
mod transport;

use client::Clients;
use options::AzBlobOptions;

/// The maximum number of writes in a batch, each of which is a separate request.
const BATCH: usize = 64;

/// A store in a container of Azure Blob Storage.
pub struct AzBlob {
    clients: Clients,
    options: AzBlobOptions,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let options = AzBlobOptions::parse(url, |name| std::env::var(name).ok())?;
    let clients = Clients::new(&options)?;
    let store = AzBlob { clients, options };
    store.init().await?;
    Ok(Arc::new(store))
}

impl AzBlob {
    /// Returns the deadline of a call that starts now.
    fn deadline(&self) -> Instant {
        Instant::now() + self.options.timeout
    }
}

#[async_trait]
impl Store for AzBlob {
    fn facts(&self) -> Facts {
        Facts {
            margin: self.options.margin,
            batch: BATCH,
            in_flight: 4,
            poll: self.options.poll,
        }
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        let deadline = self.deadline();
        let (value, stamp) = self.records(names.iter().cloned(), deadline).await?;
        let stamp = match stamp {
            Some(stamp) => stamp,
            None => self.time(deadline).await?,
        };
        Ok(Answer { value, stamp })
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        if !writes.is_empty() {
            return self.swap_all(writes).await;
        }
        Ok(Answer {
            value: Vec::new(),
            stamp: self.time(self.deadline()).await?,
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
