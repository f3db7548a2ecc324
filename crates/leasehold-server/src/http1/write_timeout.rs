//! Closes connections whose client does not read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold::core::BootTime;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::connections::ConnectionSlot;

/// A connection that fails when a write has made no progress for this long, and that is not busy until then.
pub(crate) struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    slot: Arc<ConnectionSlot>,
    /// Set while the client does not read.
    stalled: Option<Stalled>,
}

struct Stalled {
    timeout: Pin<Box<Sleep>>,
    /// Since when, if the connection was busy until then.
    busy_until: Option<BootTime>,
}

impl<S> WriteTimeout<S> {
    pub(crate) fn new(stream: S, timeout: Duration, slot: Arc<ConnectionSlot>) -> Self {
        Self {
            stream,
            timeout,
            slot,
            stalled: None,
        }
    }

    /// The result of a write, or an error if the client has not read for too long.
    fn progress<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            if let Some(since) = self.stalled.take().and_then(|stalled| stalled.busy_until) {
                self.slot.resume(since);
            }
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Stalled {
            timeout: Box::pin(tokio::time::sleep(self.timeout)),
            busy_until: self.slot.stall(),
        });
        stalled.timeout.as_mut().poll(context).map(|()| {
            Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client does not read",
            ))
        })
    }
}

/// Whether this error is one of a write timeout.
pub(crate) fn is_timeout(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>().or_else(|| {
        let source = error.source();
        source.and_then(|source| source.downcast_ref())
    });
    error.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.progress(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.progress(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.progress(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut_down = Pin::new(&mut self.stream).poll_shutdown(context);
        self.progress(shut_down, context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use leasehold::host::Machine;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufWriter};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_disconnected() {
        let (near, mut far) = tokio::io::duplex(64);
        let slot = ConnectionSlot::new(Machine::shared(), BootTime::default(), false);
        let slot = Arc::new(slot);
        let mut near = WriteTimeout::new(near, TIMEOUT, slot.clone());
        // A slow client may take its time as long as it reads something now and then.
        let slow = tokio::spawn(async move {
            let mut byte = [0];
            for _ in 0..10 {
                tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
                far.read_exact(&mut byte).await.unwrap();
            }
            far
        });
        slot.begin().await;
        near.write_all(&[1; 74]).await.unwrap();
        assert!(slot.is_busy(), "it reads again");
        let _far = slow.await.unwrap();
        let started = tokio::time::Instant::now();
        let stalled = near.write_all(&[1; 64]).await.unwrap_err();
        assert!(is_timeout(&stalled) && !slot.is_busy());
        assert_eq!(started.elapsed().as_secs(), TIMEOUT.as_secs());
    }
    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_the_end_is_disconnected() {
        let (mut near, _far) = tokio::io::duplex(1);
        near.write_all(&[1]).await.unwrap();
        let slot = ConnectionSlot::new(Machine::shared(), BootTime::default(), false);
        // As TLS does, this has something to write before it ends.
        let mut near = WriteTimeout::new(BufWriter::new(near), TIMEOUT, Arc::new(slot));
        near.write_all(&[1]).await.unwrap();
        let started = tokio::time::Instant::now();
        let stalled = near.shutdown().await.unwrap_err();
        assert!(is_timeout(&stalled));
        assert_eq!(started.elapsed().as_secs(), TIMEOUT.as_secs());
    }
}
