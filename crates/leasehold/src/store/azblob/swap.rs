//! Conditional writes, one per record.

use azure_core::http::Etag;
use azure_core::http::RequestContent;
use azure_storage_blob::models::{
    BlobClientDeleteOptions, BlobClientUploadOptions, DeleteSnapshotsOptionType,
};
use futures_util::{StreamExt as _, stream};
use leasehold_core::{Name, Record, Stamp, Text};
use tokio::time::Instant;

use super::client::{TimedAnswer, later, send};
use super::failure::Ambiguity;
use super::load::MAX_CONCURRENT;
use super::{AzBlob, content, names};
use crate::store::{Answer, Swapped, Version, Write, WriteId};
use crate::{Error, Result};

/// The condition of a write.
enum Condition {
    /// The blob does not exist.
    Absent,
    /// The blob has this ETag.
    Is(Etag),
}

impl AzBlob {
    pub(super) async fn swap_all(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        let deadline = self.deadline();
        let answers: Vec<_> = stream::iter(writes)
            .map(|write| async move { self.swap_one(&write, deadline).await })
            .buffered(MAX_CONCURRENT)
            .collect()
            .await;
        let stamps = answers.iter().filter_map(|answer| answer.as_ref().ok());
        let stamp = stamps.fold(None, |stamp, (_, own)| later(stamp, Some(*own)));
        let Some(stamp) = stamp else {
            return Err(batch_error(answers.into_iter().filter_map(Result::err)));
        };
        let value = answers.into_iter().map(|answer| match answer {
            Ok((swapped, _)) => swapped,
            Err(error) => Swapped::Failed(error),
        });
        Ok(Answer {
            value: value.collect(),
            stamp,
        })
    }

    /// Swaps one record. Returns its result and time; an error concerns this write only.
    async fn swap_one(&self, write: &Write, deadline: Instant) -> Result<(Swapped, Stamp)> {
        if Instant::now() >= deadline {
            let late = "Azure is too slow: this write was not sent".to_owned();
            return Err(Error::Unavailable(late));
        }
        let name = &write.name;
        let condition = match &write.expect {
            None if write.put.is_none() => {
                let (current, stamp) = self.record(name, deadline).await?;
                return Ok(match current {
                    None => (Swapped::Written { tag: None }, stamp),
                    current => (Swapped::Conflict(current), stamp),
                });
            }
            None => Condition::Absent,
            Some(version) => match self.etag(name, version, deadline).await? {
                Ok(etag) => Condition::Is(etag),
                Err(lost) => return Ok(lost),
            },
        };
        let answer = match &write.put {
            Some((id, record)) => self.upload(name, *id, record, condition, deadline).await?,
            None => self.delete(name, condition, deadline).await?,
        };
        let TimedAnswer { value, stamp } = answer;
        match value {
            Ok(tag) => Ok((Swapped::Written { tag }, stamp)),
            Err(refusal) if refusal.is_conflict() => {
                // Nothing was written, so this is only a read.
                let (current, stamp) = self.record(name, deadline).await?;
                Ok((Swapped::Conflict(current), stamp))
            }
            Err(refusal) => {
                let error = refusal.into_error(Ambiguity::MayHaveWritten);
                Ok((Swapped::Failed(error), stamp))
            }
        }
    }

    /// Returns the ETag of a version. A version without one comes from another store or was made up, and is looked
    /// up.
    async fn etag(
        &self,
        name: &Name,
        version: &Version,
        deadline: Instant,
    ) -> Result<std::result::Result<Etag, (Swapped, Stamp)>> {
        if let Some(tag) = &version.tag {
            return Ok(Ok(Etag::from(tag.to_string())));
        }
        let (current, stamp) = self.record(name, deadline).await?;
        let matching = current
            .as_ref()
            .filter(|current| current.version.write == version.write);
        let tag = matching.and_then(|current| current.version.tag.as_ref());
        Ok(match tag {
            Some(tag) => Ok(Etag::from(tag.to_string())),
            None => Err((Swapped::Conflict(current), stamp)),
        })
    }

    async fn upload(
        &self,
        name: &Name,
        id: WriteId,
        record: &Record,
        condition: Condition,
        deadline: Instant,
    ) -> Result<TimedAnswer<Option<Text>>> {
        let content = content::write(name, id, record)?;
        let metadata = content::metadata(name, record, &content);
        let blob = self.clients.container.blob_client(&names::blob(name));
        send(
            deadline,
            Ambiguity::MayHaveWritten,
            |method_options| async move {
                let mut options = BlobClientUploadOptions {
                    blob_content_type: Some("application/json".into()),
                    metadata: Some(metadata),
                    method_options,
                    ..BlobClientUploadOptions::default()
                };
                match condition {
                    Condition::Absent => options.if_none_match = Some("*".into()),
                    Condition::Is(etag) => options.if_match = Some(etag),
                }
                let content = RequestContent::from(content.into_bytes());
                let answer = blob.upload(content, Some(options)).await?;
                Ok(answer.etag.as_ref().map(content::quoted))
            },
        )
        .await
    }

    async fn delete(
        &self,
        name: &Name,
        condition: Condition,
        deadline: Instant,
    ) -> Result<TimedAnswer<Option<Text>>> {
        let blob = self.clients.container.blob_client(&names::blob(name));
        send(
            deadline,
            Ambiguity::MayHaveWritten,
            |method_options| async move {
                let mut options = BlobClientDeleteOptions {
                    // Snapshots that were created manually would prevent the deletion.
                    delete_snapshots: Some(DeleteSnapshotsOptionType::Include),
                    method_options,
                    ..BlobClientDeleteOptions::default()
                };
                if let Condition::Is(etag) = condition {
                    options.if_match = Some(etag);
                }
                blob.delete(Some(options)).await?;
                Ok(None)
            },
        )
        .await
    }
}

/// Returns the error for a batch without any answer: an indeterminate one if there is one.
fn batch_error(errors: impl Iterator<Item = Error>) -> Error {
    errors
        .max_by_key(|error| matches!(error, Error::Indeterminate(_)))
        .unwrap_or_else(|| Error::Unavailable("no request was sent to Azure".into()))
}
