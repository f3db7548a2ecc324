//! Loading blobs as they are now.

use azure_storage_blob::models::BlobClientDownloadOptions;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use leasehold_core::{Name, Stamp, Text};
use tokio::time::Instant;

use super::AzBlob;
use super::client::{Answered, ask, later};
use super::content;
use super::failure::Doubt;
use super::names;
use crate::store::Stored;
use crate::{Error, Result};

/// How many requests of one call are under way at once, each on a connection of its own.
pub(super) const AT_ONCE: usize = 32;

/// A blob that no name has: whoever looks for it learns the time, and whether there is a container.
pub(super) const NO_RECORD: &str = "time";

impl AzBlob {
    /// The records under these names, in their order, and the time; no time where there are no names.
    pub(super) async fn records(
        &self,
        names: impl IntoIterator<Item = Name>,
        deadline: Instant,
    ) -> Result<(Vec<Option<Stored>>, Option<Stamp>)> {
        let answers: Vec<_> = stream::iter(names)
            .map(|name| async move { self.record(&name, deadline).await })
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        let stamp = answers
            .iter()
            .fold(None, |stamp, (_, own)| later(stamp, Some(*own)));
        let records = answers.into_iter().map(|(record, _)| record).collect();
        Ok((records, stamp))
    }

    /// The record under a name.
    pub(super) async fn record(
        &self,
        name: &Name,
        deadline: Instant,
    ) -> Result<(Option<Stored>, Stamp)> {
        let answered = self.download(&names::blob(name), deadline).await?;
        let Answered { value, stamp } = answered;
        let record = match value {
            Ok((body, etag)) => Some(content::read(name, &body, etag)?),
            Err(refusal) if refusal.is_absence() => None,
            Err(refusal) => return Err(refusal.into_error(Doubt::None)),
        };
        Ok((record, stamp))
    }

    /// Only the time.
    pub(super) async fn time(&self, deadline: Instant) -> Result<Stamp> {
        let Answered { value, stamp } = self.download(NO_RECORD, deadline).await?;
        match value {
            Err(refusal) if !refusal.is_absence() => Err(refusal.into_error(Doubt::None)),
            _ => Ok(stamp),
        }
    }

    pub(super) async fn download(
        &self,
        blob: &str,
        deadline: Instant,
    ) -> Result<Answered<(Vec<u8>, Option<Text>)>> {
        let blob = self.clients.container.blob_client(blob);
        ask(deadline, Doubt::None, |method_options| async move {
            let options = BlobClientDownloadOptions {
                method_options,
                ..BlobClientDownloadOptions::default()
            };
            let answer = blob.download(Some(options)).await?;
            let etag = answer.properties.etag.as_ref().map(content::quoted);
            Ok((answer.body.collect().await?.to_vec(), etag))
        })
        .await
    }
}

/// The time that an answer must tell.
pub(super) fn told(stamp: Option<Stamp>) -> Result<Stamp> {
    stamp.ok_or_else(|| Error::Unavailable("Azure was asked nothing".into()))
}
