//! A thread for calls that wait for a disk, so that others are heard and answered meanwhile.
//!
//! It calls the store for all who are ready, and then for all who have come by then, until nobody has. So it takes along
//! whoever came while it was busy, and needs no waking while there is much to do.

use std::sync::{Arc, Weak};

use super::Inner;

/// Starts it. It ends with the engine. Should there be no room for another thread, whoever asks calls the store.
pub(super) fn start(inner: &Arc<Inner>) {
    let engine = Arc::downgrade(inner);
    let started = std::thread::Builder::new()
        .name("leasehold-calls".into())
        .spawn(move || call(&engine));
    match started {
        Ok(thread) => drop(inner.caller.set(thread.thread().clone())),
        Err(error) => tracing::warn!(%error, "no thread to call the store from"),
    }
}

fn call(engine: &Weak<Inner>) {
    while let Some(inner) = engine.upgrade() {
        while inner.call_gathered(inner.table()) {}
        drop(inner);
        std::thread::park();
    }
}
