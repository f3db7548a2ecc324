//! Reading items as they are now.

use futures_util::{StreamExt as _, stream};
use hyper::Method;
use hyper::body::Bytes;
use leasehold_core::{Name, Stamp};
use tokio::time::Instant;

use super::client::{Ask, PATIENCE};
use super::failure::{self, Doubt};
use super::{AT_ONCE, Cosmos, item, later};
use crate::Result;
use crate::store::{Answer, Stored};

/// A read that asks as many replicas as it takes to know what was last written, whatever the account's own level is.
pub(super) const LATEST: (&str, &str) =
    ("x-ms-cosmos-read-consistency-strategy", "LatestCommitted");
/// The database or the container is not there, rather than the item.
const NO_CONTAINER: u32 = 1003;
/// An id that no record has: to ask for the time.
const NOBODY: &str = "time";

impl Cosmos {
    /// The records under these names, in this order.
    pub(super) async fn records(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        let deadline = Instant::now() + PATIENCE;
        if names.is_empty() {
            let (_, stamp) = self.read(NOBODY, deadline).await?;
            return Ok(Answer {
                value: Vec::new(),
                stamp,
            });
        }
        let mut reads = stream::iter(names.to_vec())
            .map(|name| async move { self.record(&name, deadline).await })
            .buffered(AT_ONCE);
        let (mut value, mut stamp) = (Vec::with_capacity(names.len()), None);
        while let Some(read) = reads.next().await {
            let (record, own) = read?;
            value.push(record);
            stamp = later(stamp, Some(own));
        }
        let stamp = stamp.ok_or_else(failure::odd)?;
        Ok(Answer { value, stamp })
    }

    /// The record under a name.
    pub(super) async fn record(
        &self,
        name: &Name,
        deadline: Instant,
    ) -> Result<(Option<Stored>, Stamp)> {
        let (body, stamp) = self.read(&item::id(name), deadline).await?;
        let found = body.map(|body| item::found(&body)).transpose()?;
        Ok((found.map(|(_, stored)| stored), stamp))
    }

    async fn read(&self, id: &str, deadline: Instant) -> Result<(Option<Bytes>, Stamp)> {
        let (name, value) = LATEST;
        let ask = Ask {
            method: Method::GET,
            resource: self.item(id),
            headers: vec![partition(id), (name, value.into())],
            body: Bytes::new(),
            doubt: Doubt::None,
        };
        let reply = self.client.ask(&ask, deadline).await?;
        match reply.status {
            200 => Ok((Some(reply.body), reply.stamp)),
            status if is_no_item(status, reply.substatus) => Ok((None, reply.stamp)),
            _ => Err(failure::refused(&reply, Doubt::None)),
        }
    }
}

/// In which partition an item is. Ids have no character that JSON escapes.
pub(super) fn partition(id: &str) -> (&'static str, String) {
    ("x-ms-documentdb-partitionkey", format!("[\"{id}\"]"))
}

/// Whether it is only the item that is missing.
pub(super) fn is_no_item(status: u16, substatus: u32) -> bool {
    status == 404 && substatus != NO_CONTAINER
}
