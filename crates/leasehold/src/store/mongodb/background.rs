//! The runtime on which the driver keeps its own tasks: connection pools, monitors, change streams.

use std::convert::Infallible;
use std::io;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::{Error, Result};

/// A runtime with a thread of its own. It ends when this is dropped.
///
/// The driver panics if a connection pool ends while a command asks it for a connection. A runtime that shuts down ends
/// its tasks in any order, so the pools must not live on the runtime of a caller that sends commands.
pub(super) struct Background {
    handle: Handle,
    _ends_when_dropped: oneshot::Sender<Infallible>,
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
        // One thread: as it shuts down, it drops its tasks and polls none of them.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (sender, dropped) = oneshot::channel();
        std::thread::Builder::new()
            .name("leasehold-mongo".into())
            .spawn(move || runtime.block_on(dropped))?;
        Ok(Self {
            handle,
            _ends_when_dropped: sender,
        })
    }

    /// Calls a function whose tasks are to be spawned here.
    pub(super) fn within<T>(&self, spawning: impl FnOnce() -> T) -> T {
        let _entered = self.handle.enter();
        spawning()
    }
}
