//! The protocols of the contestants, each implemented with the least overhead.

pub(crate) mod etcd;
pub(crate) mod http;
pub(crate) mod postgres;
pub(crate) mod redis;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns a unique nonce.
pub(crate) fn nonce() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{:08x}{number:016x}", std::process::id())
}

/// Returns the error for an answer that is not a success.
fn unexpected(answer: &[u8]) -> io::Error {
    let answer = String::from_utf8_lossy(answer);
    io::Error::other(format!("unexpected answer: {answer}"))
}
