//! Loads blobs.

use azure_storage_blob::models::BlobClientDownloadOptions;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use leasehold_core::{Name, Stamp, Text};
use tokio::time::Instant;

use super::AzBlob;
use super::client::{TimedAnswer, later, send};
use super::content;
use super::failure::Ambiguity;
use super::names;
use crate::store::Stored;
use crate::{Error, Result};

/// How many requests of one call run concurrently, each on its own connection.
pub(super) const MAX_CONCURRENT: usize = 32;

/// A blob that no name has. Reading it returns the time, and shows whether the container exists.
pub(super) const NO_RECORD: &str = "time";

impl AzBlob {
    /// Loads the records under these names, in order. Returns no time without names.
    pub(super) async fn records(
        &self,
        names: impl IntoIterator<Item = Name>,
        deadline: Instant,
    ) -> Result<(Vec<Option<Stored>>, Option<Stamp>)> {
        let answers: Vec<_> = stream::iter(names)
            .map(|name| async move { self.record(&name, deadline).await })
            .buffered(MAX_CONCURRENT)
            .try_collect()
            .await?;
        let stamp = answers
            .iter()
            .fold(None, |stamp, (_, own)| later(stamp, Some(*own)));
        let records = answers.into_iter().map(|(record, _)| record).collect();
        Ok((records, stamp))
    }

    /// Loads the record under a name.
    pub(super) async fn record(
        &self,
        name: &Name,
        deadline: Instant,
    ) -> Result<(Option<Stored>, Stamp)> {
        let answer = self.download(&names::blob(name), deadline).await?;
        let TimedAnswer { value, stamp } = answer;
        let record = match value {
            Ok((body, etag)) => Some(content::read(name, &body, etag)?),
            Err(refusal) if refusal.is_not_found() => None,
            Err(refusal) => return Err(refusal.into_error(Ambiguity::None)),
        };
        Ok((record, stamp))
    }

    /// Reads only the time.
    pub(super) async fn time(&self, deadline: Instant) -> Result<Stamp> {
        let TimedAnswer { value, stamp } = self.download(NO_RECORD, deadline).await?;
        match value {
            Err(refusal) if !refusal.is_not_found() => Err(refusal.into_error(Ambiguity::None)),
            _ => Ok(stamp),
        }
    }

    pub(super) async fn download(
        &self,
        blob: &str,
        deadline: Instant,
    ) -> Result<TimedAnswer<(Vec<u8>, Option<Text>)>> {
        let blob = self.clients.container.blob_client(blob);
        send(deadline, Ambiguity::None, |method_options| async move {
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

/// Returns the time of an answer, or an error if there was none.
pub(super) fn require_stamp(stamp: Option<Stamp>) -> Result<Stamp> {
    stamp.ok_or_else(|| Error::Unavailable("no request was sent to Azure".into()))
}
