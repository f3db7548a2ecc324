//! Leases in a container of Azure Blob Storage.
//!
//! # Guarantee
//! Linearizable: a blob is written only if its ETag is still the one that was read, and reads see the last write. What
//! was acknowledged is on several disks. Time comes from the `Date` of the answers. Azure's own blob leases, of 15 to 60
//! seconds, are not used: these can be of any length.
//!
//! # Stored form
//! A blob for each record, `lock/NAME` or `gate/NAME`, with JSON that people can read. Its metadata says by what the
//! record is found: `name`, `state`, `state_since`, `held_until`; and all of a small one, for listings.
//!
//! # Set-up
//! The container is made when it is not there and the credentials may create it. Otherwise an administrator runs
//! `leasehold init`, or `az storage container create`.
//!
//! # Options
//! `azblob://ACCOUNT/CONTAINER?…`: `key` (of the account) or `sas` (a shared access signature), otherwise
//! `AZURE_STORAGE_KEY` or `AZURE_STORAGE_SAS_TOKEN` of the environment; or `auth=entra` (the identity of this process) or
//! `auth=cli` (whoever did `az login`); `endpoint` (another place than Azure's), `poll` (250ms: how often to look at
//! names that somebody waits for), `margin` (2s: what Azure's clocks may differ by), `timeout` (4s: how long a call may
//! take).
//!
//! # Limits
//! A lease to be held is of 8 seconds at least, since `Date` has whole seconds. A refusal takes two round trips. A search
//! by state lists all blobs of its prefix. No hints of changes: others poll.

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
use options::Options;

/// Each write of a batch is a request of its own.
const BATCH: usize = 64;

/// Records in a container.
pub struct AzBlob {
    clients: Clients,
    options: Options,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let options = Options::parse(url, |name| std::env::var(name).ok())?;
    let clients = Clients::new(&options)?;
    let store = AzBlob { clients, options };
    store.init().await?;
    Ok(Arc::new(store))
}

impl AzBlob {
    /// By when a call that starts now has to be over.
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
