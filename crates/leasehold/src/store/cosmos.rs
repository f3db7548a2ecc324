//! Leases in a container of Azure Cosmos DB (the API for NoSQL).
//!
//! # Guarantee
//! Linearizable: writes are conditional on the ETag, and reads request the last committed version, whatever the
//! account's consistency level. Acknowledged writes are on several disks of the write region. An account with several
//! write regions is refused, because two could hold one lease. The time comes from the `Date` header of the answers.
//!
//! # Stored form
//! One item per record, with the `id` `lock.NAME` or `gate.NAME` (unusual characters are escaped), in a partition of
//! its own. `name`, `owner` and `expires` are for readers, `record` contains the exact record, `queue` and `queued`
//! are the index of work items.
//!
//! # Set-up
//! The partition key is `/id`, or `/lease` if other items are to share the partition of a lease. Database and
//! container are created if they are missing and the account's key is used. Entra ID does not allow that; then an
//! administrator creates them as in `docs/stores/cosmos.md`.
//!
//! # Options
//! `cosmos://ACCOUNT/DATABASE/CONTAINER?…`: `key` (by default `AZURE_COSMOS_KEY`), `auth` (`key`, `entra`: Microsoft
//! Entra ID with the environment or the machine's identity, `cli`: the login of `az`), `endpoint` (instead of
//! Azure's), `poll` (250ms: how often to poll names with waiters), `margin` (2s: how far Azure's clocks may differ).
//!
//! # Limits
//! The shortest ttl is 8 s, because `Date` has a resolution of a second. Times are exact until the year 2255. A
//! conflict costs a second round trip. No change notifications: other processes poll.

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
use options::CosmosOptions;

/// The maximum number of records in one call.
const BATCH: usize = 64;
/// How many requests of one call run concurrently, each on its own connection.
const MAX_CONCURRENT: usize = 32;

/// A store in a container of Cosmos DB.
pub struct Cosmos {
    client: Client,
    options: CosmosOptions,
    /// The link of the container.
    link: String,
    /// The known physical partitions.
    partitions: Mutex<Vec<String>>,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let options = CosmosOptions::parse(url)?;
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
    /// Returns the resource of all items.
    fn items(&self) -> Resource {
        Resource {
            of_type: "docs",
            link: self.link.clone(),
            is_feed: true,
        }
    }

    /// Returns the resource of one item.
    fn item(&self, id: &str) -> Resource {
        Resource {
            of_type: "docs",
            link: format!("{}/docs/{id}", self.link),
            is_feed: false,
        }
    }
}

/// Returns the later of two stamps, with which a holder's deadline is earlier.
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
