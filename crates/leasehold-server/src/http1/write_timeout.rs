//! Closes connections whose client does not read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use leasehold::core::BootTime;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::budget::AnswerBudget;
use crate::connections::{ConnectionSlot, GRACE};

/// A stream whose writes time out if the client does not read. The timeout is shorter, [`GRACE`], while other answers wait
/// for memory. A connection counts as idle while its client does not read.
pub(crate) struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    slot: Arc<ConnectionSlot>,
    answers: Arc<AnswerBudget>,
    /// Set while the client does not read.
    stalled: Option<Stalled>,
}

struct Stalled {
    since: Instant,
    next_check: Pin<Box<Sleep>>,
    /// When the connection was marked idle, if it was busy before.
    busy_until: Option<BootTime>,
}

impl<S> WriteTimeout<S> {
    pub(crate) fn new(
        stream: S,
        timeout: Duration,
        slot: Arc<ConnectionSlot>,
        answers: Arc<AnswerBudget>,
    ) -> Self {
        Self {
            stream,
            timeout,
            slot,
            answers,
            stalled: None,
        }
    }

    /// Returns the result of a write, or an error if the client has not read for too long.
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
            since: Instant::now(),
            next_check: Box::pin(tokio::time::sleep(GRACE.min(self.timeout))),
            busy_until: self.slot.stall(),
        });
        loop {
            ready!(stalled.next_check.as_mut().poll(context));
            let left = self.timeout.saturating_sub(stalled.since.elapsed());
            if left.is_zero() || self.answers.is_short() {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the client does not read",
                )));
            }
            let next = Instant::now() + left.min(GRACE);
            stalled.next_check.as_mut().reset(next);
        }
    }
}

/// Whether this error is a write timeout.
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
    use std::net::IpAddr;

    use leasehold::host::Machine;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufWriter};

    use super::*;
    use crate::budget::PAGE_BYTES;
    use crate::connections::ConnectionLimits;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn budget() -> Arc<AnswerBudget> {
        let limits = ConnectionLimits::new(&crate::Config::default());
        AnswerBudget::new(PAGE_BYTES, limits)
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_does_not_read_is_disconnected() {
        let (near, mut far) = tokio::io::duplex(64);
        let slot = ConnectionSlot::new(Machine::shared(), BootTime::default(), false);
        let slot = Arc::new(slot);
        let mut near = WriteTimeout::new(near, TIMEOUT, slot.clone(), budget());
        // A slow client is not disconnected as long as it reads something within each timeout.
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
    async fn client_that_does_not_read_is_disconnected_sooner_while_answers_wait_for_memory() {
        let (near, _far) = tokio::io::duplex(64);
        let slot = ConnectionSlot::new(Machine::shared(), BootTime::default(), false);
        let budget = budget();
        let mut near = WriteTimeout::new(near, TIMEOUT, slot.into(), budget.clone());
        let client = IpAddr::from([127, 0, 0, 1]).into();
        let unread = budget.reserve(client, PAGE_BYTES).await;
        let started = Instant::now();
        let (stalled, waiting) = tokio::join!(near.write_all(&[1; 65]), async {
            budget.reserve(client, PAGE_BYTES).await.is_err()
        });
        assert!(is_timeout(&stalled.unwrap_err()) && waiting);
        assert!(started.elapsed() < 3 * GRACE);
        drop(unread);
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_does_not_read_the_end_of_a_stream_is_disconnected() {
        let (mut near, _far) = tokio::io::duplex(1);
        near.write_all(&[1]).await.unwrap();
        let slot = ConnectionSlot::new(Machine::shared(), BootTime::default(), false);
        // Like TLS, this stream has bytes to write when it is shut down.
        let mut near = WriteTimeout::new(BufWriter::new(near), TIMEOUT, Arc::new(slot), budget());
        near.write_all(&[1]).await.unwrap();
        let started = tokio::time::Instant::now();
        let stalled = near.shutdown().await.unwrap_err();
        assert!(is_timeout(&stalled));
        assert_eq!(started.elapsed().as_secs(), TIMEOUT.as_secs());
    }
}
