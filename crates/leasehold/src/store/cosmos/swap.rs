//! Conditional writes, one per record.

use futures_util::{StreamExt as _, stream};
use hyper::Method;
use hyper::body::Bytes;
use leasehold_core::{Name, Record, Stamp, Text};
use tokio::time::Instant;

use super::client::{ApiRequest, CALL_TIMEOUT, Reply};
use super::failure::{self, Ambiguity};
use super::load::{is_no_item, partition};
use super::{Cosmos, MAX_CONCURRENT, item, later};
use crate::store::{Answer, Swapped, Version, Write, WriteId, sql};
use crate::{Error, Result};

/// The result of one write, and its time if there was an answer.
type WriteResult = (Swapped, Option<Stamp>);

impl Cosmos {
    pub(super) async fn swap_all(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        let deadline = Instant::now() + CALL_TIMEOUT;
        let results: Vec<WriteResult> = stream::iter(writes)
            .map(|write| async move { self.swap_one(&write, deadline).await })
            .buffered(MAX_CONCURRENT)
            .collect()
            .await;
        let stamp = results
            .iter()
            .fold(None, |stamp, (_, own)| later(stamp, *own));
        let value: Vec<_> = results.into_iter().map(|(swapped, _)| swapped).collect();
        match stamp {
            Some(stamp) => Ok(Answer { value, stamp }),
            None => Err(sql::all_failed(value)),
        }
    }

    async fn swap_one(&self, write: &Write, deadline: Instant) -> WriteResult {
        if Instant::now() >= deadline {
            let late = "Cosmos DB answers too slowly: this write was not sent".to_owned();
            return (Swapped::Failed(Error::Unavailable(late)), None);
        }
        self.write(write, deadline)
            .await
            .unwrap_or_else(|error| (Swapped::Failed(error), None))
    }

    async fn write(&self, write: &Write, deadline: Instant) -> Result<WriteResult> {
        let name = &write.name;
        let reply = match (&write.expect, &write.put) {
            (None, None) => return self.delete_absent(name, deadline).await,
            (None, Some((id, record))) => self.create_item(name, *id, record, deadline).await?,
            (Some(version), put) => {
                let Some(tag) = &version.tag else {
                    return self.write_without_tag(write, version, deadline).await;
                };
                match put {
                    Some((id, record)) => self.replace(name, tag, *id, record, deadline).await?,
                    None => self.delete(name, tag, deadline).await?,
                }
            }
        };
        let is_create = write.expect.is_none();
        match reply.status {
            200 | 201 | 204 => {
                let tag = reply.etag.filter(|_| write.put.is_some());
                Ok((Swapped::Written { tag }, Some(reply.stamp)))
            }
            409 if is_create => self.conflict(name, deadline).await,
            412 => self.conflict(name, deadline).await,
            status if !is_create && is_no_item(status, reply.substatus) => {
                Ok((Swapped::Conflict(None), Some(reply.stamp)))
            }
            _ => {
                let refused = failure::refused(&reply, Ambiguity::MayHaveWritten);
                Ok((Swapped::Failed(refused), Some(reply.stamp)))
            }
        }
    }

    /// Loads the current record after a conflict, because Cosmos DB does not return it.
    async fn conflict(&self, name: &Name, deadline: Instant) -> Result<WriteResult> {
        let (current, stamp) = self.record(name, deadline).await?;
        Ok((Swapped::Conflict(current), Some(stamp)))
    }

    /// Handles a delete that expects no record.
    async fn delete_absent(&self, name: &Name, deadline: Instant) -> Result<WriteResult> {
        let (current, stamp) = self.record(name, deadline).await?;
        let swapped = match current {
            None => Swapped::Written { tag: None },
            current => Swapped::Conflict(current),
        };
        Ok((swapped, Some(stamp)))
    }

    /// Writes a version without a tag: looks the tag up, or finds a conflict.
    async fn write_without_tag(
        &self,
        write: &Write,
        expect: &Version,
        deadline: Instant,
    ) -> Result<WriteResult> {
        let (current, stamp) = self.record(&write.name, deadline).await?;
        match current {
            Some(stored)
                if stored.version.write == expect.write && stored.version.tag.is_some() =>
            {
                let tagged = Write {
                    expect: Some(stored.version),
                    ..write.clone()
                };
                Box::pin(self.write(&tagged, deadline)).await
            }
            current => Ok((Swapped::Conflict(current), Some(stamp))),
        }
    }

    async fn create_item(
        &self,
        name: &Name,
        write: WriteId,
        record: &Record,
        deadline: Instant,
    ) -> Result<Reply> {
        let request = ApiRequest {
            method: Method::POST,
            resource: self.items(),
            headers: headers(name, None),
            body: item::json(name, write, record)?.into(),
            ambiguity: Ambiguity::MayHaveWritten,
        };
        self.client.send(&request, deadline).await
    }

    async fn replace(
        &self,
        name: &Name,
        tag: &Text,
        write: WriteId,
        record: &Record,
        deadline: Instant,
    ) -> Result<Reply> {
        let request = ApiRequest {
            method: Method::PUT,
            resource: self.item(&item::id(name)),
            headers: headers(name, Some(tag)),
            body: item::json(name, write, record)?.into(),
            ambiguity: Ambiguity::MayHaveWritten,
        };
        self.client.send(&request, deadline).await
    }

    async fn delete(&self, name: &Name, tag: &Text, deadline: Instant) -> Result<Reply> {
        let request = ApiRequest {
            method: Method::DELETE,
            resource: self.item(&item::id(name)),
            headers: headers(name, Some(tag)),
            body: Bytes::new(),
            ambiguity: Ambiguity::MayHaveWritten,
        };
        self.client.send(&request, deadline).await
    }
}

fn headers(name: &Name, tag: Option<&Text>) -> Vec<(&'static str, String)> {
    let mut headers = vec![
        partition(&item::id(name)),
        ("content-type", "application/json".into()),
        // Only the tag of the new item is needed.
        ("prefer", "return=minimal".into()),
    ];
    headers.extend(tag.map(|tag| ("if-match", tag.to_string())));
    headers
}
