//! The record of one name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::limits;
use crate::{Invalid, Name, Time};

/// Shared, immutable text, such as a body, an owner or a state. Cheap to clone.
pub type Text = Arc<str>;

/// A fencing token. Each grant of a name has a higher fence than every grant before it. A resource that remembers the
/// highest fence it has seen can therefore refuse a zombie. Zero is never granted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Fence(u64);

impl Fence {
    /// The highest fence, 2^53 − 1. JSON, Lua and doubles represent it exactly.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// Creates a fence; `None` if the number is above [`MAX`](Self::MAX).
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX.0 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Returns the base of the fences of a record created at this time. The first grant is one above it, unless the
    /// process has already granted higher fences.
    pub fn starting_at(time: Time) -> Self {
        Self(time.as_millis().saturating_mul(1_000).min(Self::MAX.0))
    }

    /// Returns the next fence; `None` after [`MAX`](Self::MAX).
    pub(crate) fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }

    /// Returns the fence as a number.
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
    /// Hashes these parts, in this order. The boundaries between the parts are part of the input.
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

    /// Creates a hash from its bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the hash.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Parses the form written by [`Display`](fmt::Display).
    pub fn parse(hex: &str) -> Option<Self> {
        if hex.len() != 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        u128::from_str_radix(hex, 16)
            .ok()
            .map(|number| Self(number.to_be_bytes()))
    }

    /// Returns the hexadecimal digits. Written by hand because every stored record contains hashes.
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

/// Identifies one acquisition, so that it can be repeated: 1–64 characters. A nonce is a **secret**: any process that
/// knows it can take the lease over. Only its [`hash`](Self::hash) under a name is stored, and it is never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct Nonce(Box<str>);

impl Nonce {
    /// The longest nonce, in characters.
    pub const MAX_CHARS: usize = 64;

    /// Creates a nonce of 1 to 64 characters.
    pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
        let text = text.as_ref();
        match text.chars().count() {
            0 => Err(Invalid::new(
                "the nonce is empty: give 1 to 64 characters that no other process uses",
            )),
            1..=Self::MAX_CHARS => Ok(Self(text.into())),
            n => Err(Invalid::new(format!(
                "the nonce has {n} characters: at most 64 are allowed"
            ))),
        }
    }

    /// Returns the hash that is stored under this name.
    ///
    /// The hash covers the name and its kind, which act as a salt: precomputed guesses apply to one name only, and equal
    /// nonces of two names have different hashes.
    pub fn hash(&self, name: &Name) -> Hash {
        let (kind, name) = (name.kind().as_str(), name.as_str());
        Hash::of(&[
            b"nonce",
            kind.as_bytes(),
            name.as_bytes(),
            self.0.as_bytes(),
        ])
    }

    /// Returns the secret itself. Send it to a service and nowhere else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(…)")
    }
}

/// How a lease is held. This one rule provides a mutex, a reader-writer lock and a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// No other holder of any mode.
    Exclusive,
    /// No exclusive holder, and fewer than `limit` shared holders.
    Shared {
        /// The most holders at once; `None` for as many as a record can have. All live holders have the same limit: an
        /// acquisition with another one is refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u16>,
    },
}

impl Mode {
    /// Returns the most holders of this mode at once.
    pub(crate) fn capacity(self) -> usize {
        match self {
            Self::Exclusive => 1,
            Self::Shared { limit } => limit.map_or(limits::MAX_HOLDERS, usize::from),
        }
    }
}

/// One live holder.
///
/// In JSON, the entry of a holder with a valid fence begins with `{"fence":N,`. No other text in a list of holders
/// does: the entry of a broken holder begins with the reason, and quotes within strings are escaped. A resource can
/// therefore check a fence by a text search.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holder {
    /// The reason, if the holder was broken. Its fence is refused from then on, but it blocks others until it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<Text>,
    /// Its fencing token.
    pub fence: Fence,
    /// A description for people: `host:pid` by default.
    pub owner: Text,
    /// The authenticated caller, where access control is on. The lease belongs to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Text>,
    /// The hash of the nonce of its acquisition.
    pub nonce: Hash,
    /// Exclusive or shared.
    pub mode: Mode,
    /// The ttl of each renewal.
    #[serde(rename = "ttl_us", with = "as_micros")]
    pub ttl: Duration,
    /// When it was granted.
    pub acquired_at: Time,
    /// When it was last renewed. Each renewal is at least a microsecond later than the previous one.
    pub renewed_at: Time,
    /// It expires once the store's clock has certainly passed this.
    pub expires_at: Time,
}

/// How a holder ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndReason {
    /// It released the lease.
    Released,
    /// It wrote its result and released the lease in one write. The hash identifies a repetition of that call.
    Completed(Hash),
    /// It did not renew for its whole ttl.
    Expired,
    /// It was broken.
    Broken,
}

/// The last exclusive holder that ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LastHolder {
    /// Its fence.
    pub fence: Fence,
    /// Its owner.
    pub owner: Text,
    /// How it ended.
    pub how: EndReason,
    /// When it ended.
    pub at: Time,
}

/// A waiter's short reservation of the next grant. Until it lapses, no other caller is granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reservation {
    /// The hash of the waiter's nonce.
    pub nonce: Hash,
    /// The mode it waits for.
    pub mode: Mode,
    /// When the waiter first reserved. It may refresh the reservation for 30 s and is then barred for as long.
    pub since: Time,
    /// When the reservation lapses unless it is refreshed.
    pub until: Time,
}

/// A work item's state, and when it entered that state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct State {
    /// The label, at most 64 bytes.
    pub label: Text,
    /// When it was entered: later than the previous state, and later than every state the same process wrote before.
    pub since: Time,
}

/// The record of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// The highest fence ever granted under this name.
    pub fence: Fence,
    /// The holders. The next write removes expired ones.
    pub holders: Vec<Holder>,
    /// The last exclusive holder that ended.
    pub last: Option<LastHolder>,
    /// A waiter's reservation.
    pub next: Option<Reservation>,
    /// Text that survives a change of holder, so that the next holder can resume from it.
    pub body: Text,
    /// The state of a work item.
    pub state: Option<State>,
    /// The hash of the nonce of this item's last put, so that repeating that put changes nothing.
    pub put: Option<Hash>,
}

impl Record {
    /// Creates a record without holders. Its first grant is one above this fence.
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

    /// Returns whether this fence belongs to a holder that was not broken. A resource checks this before it accepts a
    /// write. A grant removes every holder that it replaces, so a holder in the record has no successor.
    pub fn has_holder(&self, fence: Fence) -> bool {
        self.holders
            .iter()
            .any(|holder| holder.fence == fence && holder.broken.is_none())
    }

    /// Returns whether the record's numbers are consistent. A store reports any other record as corrupt.
    pub fn is_sound(&self) -> bool {
        self.fence <= Fence::MAX
            && self.holders.len() <= limits::MAX_HOLDERS
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
