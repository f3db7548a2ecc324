//! A thread for calls that wait for a disk, so that others are heard and answered meanwhile.
//!
//! It calls the store for all who are ready, and then for all who have come by then, until nobody has. So it takes along
//! whoever came while it was busy, and needs no waking while there is much to do.
//!
//! Whom it has an answer for is told by the runtime, all of a call at once: to wake a task on another thread takes a system
//! call, and sends that thread through its loop for one answer.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;

use tokio::sync::oneshot;

use super::{Engine, Inner, Reply};
use crate::Result;

/// The thread, where there is one.
#[derive(Default)]
pub(super) struct Caller {
    thread: OnceLock<Thread>,
    /// Whether it is at a call.
    busy: AtomicBool,
}

impl Caller {
    pub(super) fn thread(&self) -> Option<&Thread> {
        self.thread.get()
    }
}

impl Engine {
    /// Whether a thread of its own is at a call of the store, and may need any processor that there is. A hint.
    pub fn calls_apart(&self) -> bool {
        self.inner.caller.busy.load(Ordering::Relaxed)
    }
}

/// An answer, and where it goes.
type Letter = (oneshot::Sender<Result<Reply>>, Result<Reply>);

thread_local! {
    /// On a thread that calls a store: what is to be told once the call is over.
    static OUTBOX: RefCell<Option<Vec<Letter>>> = const { RefCell::new(None) };
}

/// Starts it. It ends with the engine. Should there be no room for another thread, whoever asks calls the store.
pub(super) fn start(inner: &Arc<Inner>) {
    let engine = Arc::downgrade(inner);
    let started = std::thread::Builder::new()
        .name("leasehold-calls".into())
        .spawn(move || call(&engine));
    match started {
        Ok(thread) => drop(inner.caller.thread.set(thread.thread().clone())),
        Err(error) => tracing::warn!(%error, "no thread to call the store from"),
    }
}

fn call(engine: &Weak<Inner>) {
    OUTBOX.set(Some(Vec::new()));
    while let Some(inner) = engine.upgrade() {
        inner.caller.busy.store(true, Ordering::Relaxed);
        while inner.call_gathered(inner.table()) {}
        inner.caller.busy.store(false, Ordering::Relaxed);
        drop(inner);
        std::thread::park();
    }
}

/// Tells a caller: at once, or on this thread [together](send_outbox) with others. `Err` is an answer that nobody waits for.
pub(super) fn tell(
    sender: oneshot::Sender<Result<Reply>>,
    reply: Result<Reply>,
) -> Result<(), Result<Reply>> {
    let mut letter = Some((sender, reply));
    OUTBOX.with_borrow_mut(|outbox| {
        if let Some(outbox) = outbox {
            outbox.extend(letter.take());
        }
    });
    match letter {
        Some((sender, reply)) => sender.send(reply),
        None => Ok(()),
    }
}

/// Has all told who are to be told together.
pub(super) fn send_outbox(inner: &Inner) {
    let letters = OUTBOX.with_borrow_mut(|outbox| outbox.as_mut().map(std::mem::take));
    if let Some(letters) = letters.filter(|letters| !letters.is_empty()) {
        inner.runtime.spawn(async move {
            for (sender, reply) in letters {
                // What nobody takes undoes itself.
                let _ = sender.send(reply);
            }
        });
    }
}
