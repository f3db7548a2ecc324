//! Azure Blob Storage: a blob's metadata contains the fence of its last writer, and writes are conditional on its
//! ETag.
//!
//! ```no_run
//! # #[cfg(feature = "azblob")] {
//! use azure_core::http::RequestContent;
//! use azure_storage_blob::{BlobClient, models::BlobClientUploadOptions};
//! use leasehold::{Lease, fence};
//!
//! # async fn example(blob: BlobClient, lease: &Lease, change: fn(&[u8]) -> Vec<u8>) -> Result<(), Box<dyn std::error::Error>> {
//! let found = blob.download(None).await?;
//! let metadata = fence::azblob::guard(lease).metadata(found.properties.metadata)?; // `Error::Fenced`: write nothing
//! let content = change(&found.body.collect().await?);
//! let options = BlobClientUploadOptions {
//!     if_match: found.properties.etag,
//!     metadata: Some(metadata),
//!     ..BlobClientUploadOptions::default()
//! };
//! blob.upload(RequestContent::from(content), Some(options)).await?; // 412: it has changed since, download it again
//! # Ok(()) }
//! # }
//! ```
//!
//! There is no `check`: Azure Storage writes one blob at a time, so a condition on a lease's blob cannot be part of a
//! write to another blob.

use std::collections::HashMap;

use leasehold_core::Fence;

use super::{Bearer, admit};
use crate::{Error, Result};

/// The metadata entry with the fence of the blob's last writer, in decimal digits.
pub const METADATA: &str = "leasehold_fence";

/// A condition on a blob's metadata, and the metadata of the next write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    fence: Fence,
}

/// Returns the guard for a write that is refused if a higher fence was written before, wherever the leases are. For
/// exclusive leases.
pub fn guard<'a>(lease: impl Into<Bearer<'a>>) -> Guard {
    Guard {
        fence: lease.into().fence,
    }
}

impl Guard {
    /// Returns the metadata to write, given the metadata that was read. Other entries are kept.
    ///
    /// Write it with `If-Match` and the ETag of the same read. If there is no blob yet, start from empty metadata and
    /// write with `If-None-Match: *`. The condition is essential: without it, a process that is paused after this
    /// call still overwrites its successor's data.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if a higher fence was written before: write nothing.
    pub fn metadata(self, mut read: HashMap<String, String>) -> Result<HashMap<String, String>> {
        // Metadata names are header names, whose case some clients change.
        let stored = read.extract_if(|name, _| name.eq_ignore_ascii_case(METADATA));
        for (_, highest) in stored {
            admit(self.fence, parse(&highest)?)?;
        }
        read.insert(METADATA.to_owned(), self.fence.to_string());
        Ok(read)
    }
}

fn parse(text: &str) -> Result<Fence> {
    let fence: Option<u64> = text.parse().ok();
    fence.and_then(Fence::new).ok_or_else(|| {
        Error::Corrupt(format!(
            "the metadata `{METADATA}` of the blob is not a fence: {text:?}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::Name;

    use super::*;

    fn guarded(fence: u64, read: &[(&str, &str)]) -> Result<Vec<(String, String)>> {
        let name = Name::lock("x").expect("a valid name");
        let fence = Fence::new(fence).expect("a valid fence");
        let read = read
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let written = guard((&name, fence)).metadata(read.collect())?;
        let mut written: Vec<_> = written.into_iter().collect();
        written.sort();
        Ok(written)
    }

    #[test]
    fn only_lower_fences_are_refused_and_other_metadata_is_kept() {
        let stamped = |fence: &str| (METADATA.to_owned(), fence.to_owned());
        assert_eq!(guarded(9, &[]), Ok(vec![stamped("9")]));
        assert_eq!(guarded(9, &[(METADATA, "9")]), Ok(vec![stamped("9")]));
        // Compared as numbers: as text, 10 is less than 9.
        let written = guarded(10, &[("Leasehold_Fence", "9"), ("author", "ada")]);
        let author = ("author".to_owned(), "ada".to_owned());
        assert_eq!(written, Ok(vec![author, stamped("10")]));
        assert_eq!(guarded(9, &[(METADATA, "10")]), Err(Error::Fenced));
        for invalid in ["", "x", "-1", "9007199254740993"] {
            let written = guarded(9, &[(METADATA, invalid)]);
            assert!(matches!(written, Err(Error::Corrupt(_))), "{written:?}");
        }
    }
}
