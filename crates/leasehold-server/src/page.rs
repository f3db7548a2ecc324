//! A page of a list, written as JSON and bounded in bytes.

use leasehold::core::Kind;
use leasehold::wire::LockView;

use crate::budget::PAGE_BYTES;

/// A page that is being written.
pub(crate) struct Page {
    json: Vec<u8>,
    count: usize,
}

/// The first so many views of some would have fitted.
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

    /// How many views it has.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn is_full(&self) -> bool {
        self.json.len() >= PAGE_BYTES
    }

    /// Adds all of these or, if they are too many, none. A lone view always fits.
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

    /// The page as JSON, with where to go on.
    pub(crate) fn finish(mut self, cursor: Option<&str>) -> Vec<u8> {
        self.json.extend_from_slice(b"],\"cursor\":");
        serde_json::to_writer(&mut self.json, &cursor).expect("text, into memory");
        self.json.push(b'}');
        self.json.shrink_to_fit();
        self.json
    }
}
