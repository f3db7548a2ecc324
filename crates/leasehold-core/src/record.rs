//! What one name holds.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::limits;
use crate::{Invalid, Name, Time};

/// Shared, immutable text: bodies, owners, states. Cheap to clone.
pub type Text = Arc<str>;

/// A fencing token. Each grant under a name has a higher one than every grant before it, so a resource that
/// remembers the highest it has seen can refuse a zombie. Zero is never granted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Fence(u64);

impl Fence {
    /// The highest fence, 2^53 − 1: JSON, Lua and doubles hold it exactly.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// This fence, unless it is above [`MAX`](Self::MAX).
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX.0 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Where the fences of a record that is created at this time start, unless the process has granted higher ones:
    /// the first grant is one above.
    pub fn starting_at(time: Time) -> Self {
        Self(time.as_millis().saturating_mul(1_000).min(Self::MAX.0))
    }

    /// The one after this; `None` at the end of all fences.
    pub(crate) fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }

    /// As a number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A 128-bit hash, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 16]);

impl Hash {
    /// The hash of these parts, in this order; where one part ends matters.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut sha = Sha256::new();
        for part in parts {
            sha.update((part.len() as u64).to_le_bytes());
            sha.update(part);
        }
        let mut short = [0; 16];
        short.copy_from_slice(&sha.finalize()[..16]);
        Self(short)
    }

    /// The hash with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The hash that [`Display`](fmt::Display) wrote like this.
    pub fn parse(hex: &str) -> Option<Self> {
        if hex.len() != 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        u128::from_str_radix(hex, 16)
            .ok()
            .map(|number| Self(number.to_be_bytes()))
    }

    /// Its digits. Every record that is written has some of them.
    fn hex(self) -> [u8; 32] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 32];
        for (pair, byte) in hex.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            *pair = [
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ];
        }
        hex
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(str::from_utf8(&self.hex()).expect("digits are text"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(str::from_utf8(&self.hex()).expect("digits are text"))
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let hex = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&hex)
            .ok_or_else(|| serde::de::Error::custom("not a hash of 32 hexadecimal digits"))
    }
}

/// What identifies one acquisition, so that it can be repeated: 1–64 characters. A **secret**: whoever knows it can
/// take the lease over. Only its [`hash`](Self::hash) under a name is ever stored, and it never shows in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Nonce(Box<str>);

impl Nonce {
    /// The longest nonce, in characters.
    pub const MAX_CHARS: usize = 64;

    /// A nonce of 1 to 64 characters.
    pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
        let text = text.as_ref();
        match text.chars().count() {
            0 => Err(Invalid::new(
                "the nonce is empty: give 1 to 64 characters that nobody else uses",
            )),
            1..=Self::MAX_CHARS => Ok(Self(text.into())),
            n => Err(Invalid::new(format!(
                "the nonce has {n} characters: at most 64 are allowed"
            ))),
        }
    }

    /// Returns the hash that is stored under this name.
    ///
    /// It covers the name and its kind. So a table of guesses fits one name only, and equal nonces of two names do not
    /// show.
    pub fn hash(&self, name: &Name) -> Hash {
        let (kind, name) = (name.kind().as_str(), name.as_str());
        Hash::of(&[
            b"nonce",
            kind.as_bytes(),
            name.as_bytes(),
            self.0.as_bytes(),
        ])
    }

    /// The secret itself, to be sent to a service and nowhere else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(…)")
    }
}

/// How a lease is held: one rule that is a mutex, a reader-writer lock and a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// No other holder of any mode.
    Exclusive,
    /// No exclusive holder, and fewer than `limit` shared ones (`None`: as many as a record can hold).
    Shared {
        /// How many may hold at once. The live holders fix it: another limit is refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u16>,
    },
}

impl Mode {
    /// How many holders of this mode there may be at once.
    pub(crate) fn capacity(self) -> usize {
        match self {
            Self::Exclusive => 1,
            Self::Shared { limit } => limit.map_or(limits::HOLDERS, usize::from),
        }
    }
}

/// One live holder.
///
/// As JSON, the entry of a holder whose fence may act begins `{"fence":N,`, and no other text in a list of holders
/// does: one that was broken begins with the reason, and within a string the quotes are escaped. So whoever can look
/// for a text can check a fence.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holder {
    /// Why it was broken, if it was: its fence acts no more, but it stays in the way until it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<Text>,
    /// Its fencing token.
    pub fence: Fence,
    /// Who it is, for people: `host:pid` by default.
    pub owner: Text,
    /// Who authenticated, where access control is on. The lease belongs to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Text>,
    /// The hash of the nonce that it was acquired with.
    pub nonce: Hash,
    /// Exclusive or shared.
    pub mode: Mode,
    /// How long each renewal lasts.
    #[serde(rename = "ttl_us", with = "as_micros")]
    pub ttl: Duration,
    /// When it was granted.
    pub acquired_at: Time,
    /// When it was last renewed. Each renewal is later than the one before, by a microsecond at least.
    pub renewed_at: Time,
    /// It is over once the store's clock has surely passed this.
    pub expires_at: Time,
}

/// How a holder ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// It let go.
    Released,
    /// It wrote its result and let go in one write. The hash tells a repeated call that it had succeeded.
    Completed(Hash),
    /// It was not heard of for its whole ttl.
    Expired,
    /// Somebody with the right to do so ended it.
    Broken,
}

/// How the last exclusive holder ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ended {
    /// Its fence.
    pub fence: Fence,
    /// Who it was.
    pub owner: Text,
    /// What became of it.
    pub how: How,
    /// When.
    pub at: Time,
}

/// A waiter's short claim to be next: until it lapses nobody else is granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reservation {
    /// The hash of the waiter's nonce.
    pub nonce: Hash,
    /// What it waits for.
    pub mode: Mode,
    /// When it first reserved: a waiter may refresh for 30 s, then it lapses for as long.
    pub since: Time,
    /// When it lapses unless refreshed.
    pub until: Time,
}

/// A work item's state, and since when it has been in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct State {
    /// The label, at most 64 bytes.
    pub label: Text,
    /// When it was entered: later than the state before it, and than every state that the same process wrote before.
    pub since: Time,
}

/// What one name holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// The highest fence ever granted under this name.
    pub fence: Fence,
    /// Who holds it. Those that are over are pruned by the next write.
    pub holders: Vec<Holder>,
    /// How the last exclusive holder ended.
    pub last: Option<Ended>,
    /// Who is next.
    pub next: Option<Reservation>,
    /// Text that survives every change of holder: the next one resumes from it.
    pub body: Text,
    /// The state of a work item.
    pub state: Option<State>,
    /// The hash of the nonce that last put this item, so that repeating its last put changes nothing.
    pub put: Option<Hash>,
}

impl Record {
    /// A new record without holders, whose fences start here.
    pub(crate) fn created(fence: Fence) -> Self {
        Self {
            fence,
            holders: Vec::new(),
            last: None,
            next: None,
            body: Text::default(),
            state: None,
            put: None,
        }
    }

    /// Whether this fence is that of a holder that was not broken. A resource asks this before it accepts a write: a
    /// grant removes every holder that it replaces, so such a holder has no successor.
    pub fn has_holder(&self, fence: Fence) -> bool {
        self.holders
            .iter()
            .any(|holder| holder.fence == fence && holder.broken.is_none())
    }

    /// Whether the numbers in it can be true; a store that reads anything else reports it as corrupt.
    pub fn is_sound(&self) -> bool {
        self.fence <= Fence::MAX
            && self.holders.len() <= limits::HOLDERS
            && self
                .holders
                .iter()
                .all(|holder| holder.fence <= self.fence && holder.fence > Fence::default())
    }
}

mod as_micros {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        span: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(crate::time::micros(*span))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_micros)
    }
}
