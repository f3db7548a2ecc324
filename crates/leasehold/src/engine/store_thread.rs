//! A thread for store calls that wait for a disk, so that callers can be received and answered meanwhile.
//!
//! It sends one batch after another until nothing is ready. A batch has all operations that arrived during the commit
//! before it, so the thread needs no wake-up under load.
//!
//! The answers of a batch are delivered by one task of the runtime. Waking a task from another thread takes a system
//! call, so waking one for each answer would be expensive.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;

use tokio::sync::oneshot;

use super::{Engine, Inner, Reply};
use crate::Result;

/// The thread that calls the store, if the store needs one.
#[derive(Default)]
pub(super) struct StoreThread {
    thread: OnceLock<Thread>,
    /// Whether a call is in flight.
    busy: AtomicBool,
}

impl StoreThread {
    pub(super) fn thread(&self) -> Option<&Thread> {
        self.thread.get()
    }
}

impl Engine {
    /// Returns whether the engine's store thread is in a call, and may need a processor. A hint.
    pub fn is_store_thread_busy(&self) -> bool {
        self.inner.store_thread.busy.load(Ordering::Relaxed)
    }
}

/// An answer, and the channel to its caller.
type Delivery = (oneshot::Sender<Result<Reply>>, Result<Reply>);

thread_local! {
    /// On a store thread: answers to deliver after the call.
    static OUTBOX: RefCell<Option<Vec<Delivery>>> = const { RefCell::new(None) };
}

/// Starts the thread. It ends with the engine. If it cannot be started, tasks of the runtime call the store.
pub(super) fn start(inner: &Arc<Inner>) {
    let engine = Arc::downgrade(inner);
    let started = std::thread::Builder::new()
        .name("leasehold-calls".into())
        .spawn(move || run(&engine));
    match started {
        Ok(thread) => drop(inner.store_thread.thread.set(thread.thread().clone())),
        Err(error) => {
            tracing::warn!(%error, "cannot start the store thread: the runtime's threads call the store");
        }
    }
}

fn run(engine: &Weak<Inner>) {
    OUTBOX.set(Some(Vec::new()));
    while let Some(inner) = engine.upgrade() {
        inner.store_thread.busy.store(true, Ordering::Relaxed);
        while inner.run_batch(inner.table()) {}
        inner.store_thread.busy.store(false, Ordering::Relaxed);
        drop(inner);
        std::thread::park();
    }
}

/// Delivers an answer at once, or on a store thread [with the batch](flush_outbox). Returns the answer as `Err` if its
/// caller has gone away.
pub(super) fn deliver(
    sender: oneshot::Sender<Result<Reply>>,
    reply: Result<Reply>,
) -> Result<(), Result<Reply>> {
    let mut delivery = Some((sender, reply));
    OUTBOX.with_borrow_mut(|outbox| {
        if let Some(outbox) = outbox {
            outbox.extend(delivery.take());
        }
    });
    match delivery {
        Some((sender, reply)) => sender.send(reply),
        None => Ok(()),
    }
}

/// Delivers the answers that were collected on this thread, in one task.
pub(super) fn flush_outbox(inner: &Inner) {
    let deliveries = OUTBOX.with_borrow_mut(|outbox| outbox.as_mut().map(std::mem::take));
    if let Some(deliveries) = deliveries.filter(|deliveries| !deliveries.is_empty()) {
        inner.runtime.spawn(async move {
            for (sender, reply) in deliveries {
                // If the caller has gone away, dropping the reply undoes a grant.
                let _ = sender.send(reply);
            }
        });
    }
}
