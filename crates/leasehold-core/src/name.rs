//! Names of leases.

use std::fmt;
use std::sync::Arc;

use crate::Invalid;

/// What a name stands for. Each kind has its own namespace: a gate and a lock called `device-42` are two records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A lock, or a work item (an item is a lock with a state).
    Lock,
    /// A throttled gate.
    Gate,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Lock, Self::Gate];

    /// Returns the word for this kind in URLs and in stores: `lock` or `gate`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Gate => "gate",
        }
    }

    /// Parses the word returned by [`as_str`](Self::as_str).
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// The name of a lease: 1–512 bytes of UTF-8 without control characters. Every other character is legal and kept
/// unchanged: `/`, spaces, `#`, `..`, emoji. Cheap to clone.
///
/// ```
/// use leasehold_core::Name;
/// assert_eq!(Name::lock("backups/émoji 🔒")?.as_str(), "backups/émoji 🔒");
/// assert!(Name::lock("line\nbreak").is_err());
/// # Ok::<(), leasehold_core::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    kind: Kind,
    text: Arc<str>,
}

impl Name {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// Creates a name of this kind.
    pub fn new(kind: Kind, text: impl AsRef<str>) -> Result<Self, Invalid> {
        let text = text.as_ref();
        if text.is_empty() {
            return Err(Invalid::new(
                "the name is empty: give 1 to 512 bytes of UTF-8",
            ));
        }
        if text.len() > Self::MAX_BYTES {
            return Err(Invalid::new(format!(
                "the name has {} bytes: at most {} are allowed",
                text.len(),
                Self::MAX_BYTES
            )));
        }
        let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if !plain && let Some(bad) = text.chars().find(|c| c.is_control()) {
            return Err(Invalid::new(format!(
                "the name contains the control character U+{:04X}: every other character is allowed",
                u32::from(bad)
            )));
        }
        Ok(Self {
            kind,
            text: text.into(),
        })
    }

    /// Creates the name of a lock or a work item.
    pub fn lock(text: impl AsRef<str>) -> Result<Self, Invalid> {
        Self::new(Kind::Lock, text)
    }

    /// Creates the name of a gate.
    pub fn gate(text: impl AsRef<str>) -> Result<Self, Invalid> {
        Self::new(Kind::Gate, text)
    }

    /// Returns what the name stands for.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:?}", self.kind.as_str(), &*self.text)
    }
}
