//! The runtime for the driver's own tasks: connection pools, monitors, change streams.

use std::convert::Infallible;
use std::io;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::{Error, Result};

/// A runtime with a thread of its own, which ends when this is dropped.
///
/// The driver panics if a connection pool ends while a command waits for a connection. A runtime that shuts down ends
/// its tasks in any order, so the pools must not run on the runtime of a caller.
pub(super) struct Background {
    handle: Handle,
    _shutdown: oneshot::Sender<Infallible>,
}

impl Background {
    pub(super) fn start() -> Result<Self> {
        Self::spawn().map_err(|error| {
            Error::Unavailable(format!(
                "cannot start a thread for the MongoDB driver: {error}"
            ))
        })
    }

    fn spawn() -> io::Result<Self> {
        // Single-threaded: on shutdown it drops its tasks without polling them.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (sender, dropped) = oneshot::channel();
        std::thread::Builder::new()
            .name("leasehold-mongo".into())
            .spawn(move || runtime.block_on(dropped))?;
        Ok(Self {
            handle,
            _shutdown: sender,
        })
    }

    /// Calls a function whose tasks are spawned on this runtime.
    pub(super) fn enter<T>(&self, spawning: impl FnOnce() -> T) -> T {
        let _entered = self.handle.enter();
        spawning()
    }
}
