//! A page of a list as JSON of bounded size.

use leasehold::core::Kind;
use leasehold::wire::LockView;

use crate::budget::PAGE_BYTES;

/// A page in progress.
pub(crate) struct Page {
    json: Vec<u8>,
    count: usize,
}

/// The views did not fit; only this many of them would have.
pub(crate) struct Overflow(pub(crate) usize);

impl Page {
    pub(crate) fn new(kind: Kind) -> Self {
        let json = match kind {
            Kind::Lock => b"{\"locks\":[",
            Kind::Gate => b"{\"gates\":[",
        };
        Self {
            json: json.to_vec(),
            count: 0,
        }
    }

    /// Returns the number of views.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn is_full(&self) -> bool {
        self.json.len() >= PAGE_BYTES
    }

    /// Adds all of these views, or none if they do not fit. A page can always hold one view.
    pub(crate) fn add(&mut self, views: impl Iterator<Item = LockView>) -> Result<(), Overflow> {
        let (length, count) = (self.json.len(), self.count);
        for (number, view) in views.enumerate() {
            if self.count > 0 {
                self.json.push(b',');
            }
            serde_json::to_writer(&mut self.json, &view).expect("text keys, into memory");
            self.count += 1;
            if self.json.len() > PAGE_BYTES && self.count > 1 {
                self.json.truncate(length);
                self.count = count;
                return Err(Overflow(number));
            }
        }
        Ok(())
    }

    /// Returns the page as JSON, with the cursor of the next page.
    pub(crate) fn finish(mut self, cursor: Option<&str>) -> Vec<u8> {
        self.json.extend_from_slice(b"],\"cursor\":");
        serde_json::to_writer(&mut self.json, &cursor).expect("text, into memory");
        self.json.push(b'}');
        self.json.shrink_to_fit();
        self.json
    }
}
