//! Closes connections whose client does not read what it is sent.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A connection that fails when a write has made no progress for so long.
pub(crate) struct Unstalled<S> {
    stream: S,
    timeout: Duration,
    /// Set while the client does not read.
    stalled: Option<Pin<Box<Sleep>>>,
    /// What is read again before anything else.
    unread: Vec<u8>,
}

impl<S> Unstalled<S> {
    pub(crate) fn new(stream: S, timeout: Duration) -> Self {
        Self {
            stream,
            timeout,
            stalled: None,
            unread: Vec::new(),
        }
    }

    /// Has these bytes read again: nothing may have been read since.
    pub(crate) fn put_back(&mut self, bytes: Vec<u8>) {
        self.unread = bytes;
    }

    /// What came of a write, unless the client has not read for too long.
    fn progress<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let timeout = self.timeout;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        let over = "the client does not read";
        stalled
            .as_mut()
            .poll(context)
            .map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, over)))
    }
}

/// Whether this is why a connection ended.
pub(crate) fn is_why(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>().or_else(|| {
        let source = error.source();
        source.and_then(|source| source.downcast_ref())
    });
    error.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unstalled<S> {
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
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Unstalled<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let count = self.unread.len().min(buffer.remaining());
            buffer.put_slice(&self.unread[..count]);
            self.unread.drain(..count);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn what_was_put_back_is_read_first() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut near = Unstalled::new(near, TIMEOUT);
        near.put_back(b"GET /".to_vec());
        far.write_all(b"locks").await.unwrap();
        drop(far);
        let (mut few, mut all) = ([0; 2], String::new());
        near.read_exact(&mut few).await.unwrap();
        near.read_to_string(&mut all).await.unwrap();
        assert_eq!((&few, &*all), (b"GE", "T /locks"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_given_up() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut near = Unstalled::new(near, TIMEOUT);
        // As long as it reads something now and then it may take its time.
        let slow = tokio::spawn(async move {
            let mut byte = [0];
            for _ in 0..10 {
                tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
                far.read_exact(&mut byte).await.unwrap();
            }
            far
        });
        near.write_all(&[1; 74]).await.unwrap();
        let _far = slow.await.unwrap();
        let started = tokio::time::Instant::now();
        let stalled = near.write_all(&[1; 64]).await.unwrap_err();
        assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed().as_secs(), TIMEOUT.as_secs());
    }
}
