//! Leases in a container of Azure Cosmos DB (the API for NoSQL).
//!
//! # Guarantee
//! Linearizable: writes on condition of the ETag, and reads that ask for what was last written, whatever consistency the
//! account has. What was acknowledged is on several disks of the write region. An account with several write regions is refused:
//! two could hold one lease. Time comes from the `Date` of the answers.
//!
//! # Stored form
//! An item for each record, under `id` = `lock.NAME` or `gate.NAME` with unusual characters escaped. Each is a partition
//! of its own. `name`, `owner` and `expires` are there to be read by people, `record` has everything exactly, `queue` and `queued` are
//! where work items are found.
//!
//! # Set-up
//! The partition key is `/id`, or `/lease` where other items are to share the partition of a lease.
//! Database and container are made when they are not there and the account's key is used. Whoever comes by Entra ID may not:
//! then an administrator makes them as `docs/stores/cosmos.md` shows.
//!
//! # Options
//! `cosmos://ACCOUNT/DATABASE/CONTAINER?…`: `key` (otherwise `AZURE_COSMOS_KEY`), `auth` (`key`, `entra`: Microsoft Entra ID by the
//! environment or the machine's identity, `cli`: whoever ran `az login`), `endpoint` (another place than Azure's), `poll` (250ms:
//! how often to look at names that somebody waits for), `margin` (2s: what Azure's clocks may differ by).
//!
//! # Limits
//! A lease to be held is of 8 seconds at least, since `Date` has whole seconds. Times are exact until the year 2255. A lost race costs
//! a second round trip. No hints of changes: others poll.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use leasehold_core::{Name, Stamp};

use super::{Answer, Check, Facts, Page, Query, Store, Stored, Swapped, Write};
use crate::Result;

mod auth;
mod check;
mod client;
mod container;
mod failure;
mod find;
mod item;
mod load;
mod options;
mod swap;

use client::{Client, Resource};
pub(crate) use item::id as record_id;
use options::Options;

/// The most records in one call.
const BATCH: usize = 64;
/// How many of them are asked for at once, each on a connection of its own.
const AT_ONCE: usize = 32;

/// Records in a container of Cosmos DB.
pub struct Cosmos {
    client: Client,
    options: Options,
    /// Where the container is.
    link: String,
    /// The physical partitions, as far as they are known.
    partitions: Mutex<Vec<String>>,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let options = Options::parse(url)?;
    let store = Cosmos {
        client: Client::new(&options)?,
        link: format!("dbs/{}/colls/{}", options.database, options.container),
        options,
        partitions: Mutex::default(),
    };
    store.init().await?;
    Ok(Arc::new(store))
}

impl Cosmos {
    /// All items.
    fn items(&self) -> Resource {
        Resource {
            of_type: "docs",
            link: self.link.clone(),
            is_feed: true,
        }
    }

    /// One item.
    fn item(&self, id: &str) -> Resource {
        Resource {
            of_type: "docs",
            link: format!("{}/docs/{id}", self.link),
            is_feed: false,
        }
    }
}

/// The later of two stamps: a holder that counts by it lets go the sooner.
fn later(one: Option<Stamp>, other: Option<Stamp>) -> Option<Stamp> {
    let stamps = [one, other].into_iter().flatten();
    stamps.max_by_key(|stamp| stamp.time)
}

#[async_trait]
impl Store for Cosmos {
    fn facts(&self) -> Facts {
        Facts {
            margin: self.options.margin,
            batch: BATCH,
            in_flight: 4,
            poll: self.options.poll,
        }
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        self.records(names).await
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
