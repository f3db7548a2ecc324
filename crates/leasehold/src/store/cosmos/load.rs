//! Loads items with consistent reads.

use futures_util::{StreamExt as _, stream};
use hyper::Method;
use hyper::body::Bytes;
use leasehold_core::{Name, Stamp};
use tokio::time::Instant;

use super::client::{ApiRequest, CALL_TIMEOUT};
use super::failure::{self, Ambiguity};
use super::{Cosmos, MAX_CONCURRENT, item, later};
use crate::Result;
use crate::store::{Answer, Stored};

/// The header for reads of the last committed version, whatever the account's level.
pub(super) const LATEST: (&str, &str) =
    ("x-ms-cosmos-read-consistency-strategy", "LatestCommitted");
/// The substatus if the database or the container is missing, rather than the item.
const NO_CONTAINER: u32 = 1003;
/// An id that no record has, for reading the time.
const NO_RECORD: &str = "time";

impl Cosmos {
    /// Loads the records under these names, in order.
    pub(super) async fn records(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        let deadline = Instant::now() + CALL_TIMEOUT;
        if names.is_empty() {
            let (_, stamp) = self.read(NO_RECORD, deadline).await?;
            return Ok(Answer {
                value: Vec::new(),
                stamp,
            });
        }
        let mut reads = stream::iter(names.to_vec())
            .map(|name| async move { self.record(&name, deadline).await })
            .buffered(MAX_CONCURRENT);
        let (mut value, mut stamp) = (Vec::with_capacity(names.len()), None);
        while let Some(read) = reads.next().await {
            let (record, own) = read?;
            value.push(record);
            stamp = later(stamp, Some(own));
        }
        let stamp = stamp.ok_or_else(failure::unexpected_answer)?;
        Ok(Answer { value, stamp })
    }

    /// Loads the record under a name.
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
        let request = ApiRequest {
            method: Method::GET,
            resource: self.item(id),
            headers: vec![partition(id), (name, value.into())],
            body: Bytes::new(),
            ambiguity: Ambiguity::None,
        };
        let reply = self.client.send(&request, deadline).await?;
        match reply.status {
            200 => Ok((Some(reply.body), reply.stamp)),
            status if is_no_item(status, reply.substatus) => Ok((None, reply.stamp)),
            _ => Err(failure::refused(&reply, Ambiguity::None)),
        }
    }
}

/// Returns the header with an item's partition. Ids contain no character that JSON escapes.
pub(super) fn partition(id: &str) -> (&'static str, String) {
    ("x-ms-documentdb-partitionkey", format!("[\"{id}\"]"))
}

/// Returns whether only the item is missing.
pub(super) fn is_no_item(status: u16, substatus: u32) -> bool {
    status == 404 && substatus != NO_CONTAINER
}
