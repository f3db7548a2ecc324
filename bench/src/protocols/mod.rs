//! The protocols, each at its leanest.

pub(crate) mod etcd;
pub(crate) mod http;
pub(crate) mod postgres;
pub(crate) mod redis;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Something that nobody else has: which acquisition this is.
pub(crate) fn nonce() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{:08x}{number:016x}", std::process::id())
}

/// An answer that is none of those that were hoped for.
fn unexpected(answer: &[u8]) -> io::Error {
    io::Error::other(String::from_utf8_lossy(answer).into_owned())
}
