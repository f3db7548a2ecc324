//! Sends what is answered at one time together.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that is written to once everybody else who has something to do has done it.
///
/// A write to a client that waits wakes it, which costs more than all else in the write when it sleeps on another
/// processor. When all answers are written one after the other, a program that awaits many of them is woken once.
pub struct Together<S> {
    stream: S,
    /// The others have had their turn.
    yielded: bool,
}

impl<S> Together<S> {
    /// Over another connection.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            yielded: false,
        }
    }

    /// Lets the others go first.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.yielded {
            self.yielded = true;
            return pin!(tokio::task::yield_now()).poll(context);
        }
        Poll::Ready(())
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Together<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_turn(context));
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_turn(context));
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.yielded = false;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Together<S> {
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_write_lets_the_others_go_first_and_the_next_one_too() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut near = Together::new(near);
        for _ in 0..2 {
            let writing = async {
                near.write_all(b"answer").await.unwrap();
                near.flush().await.unwrap();
            };
            let others = async {
                let mut byte = [0];
                let nothing = std::future::poll_fn(|context| {
                    let mut room = ReadBuf::new(&mut byte);
                    Poll::Ready(
                        Pin::new(&mut far)
                            .poll_read(context, &mut room)
                            .is_pending(),
                    )
                });
                assert!(
                    nothing.await,
                    "it was written before the others had their turn"
                );
            };
            tokio::join!(writing, others);
            let mut answer = [0; 6];
            far.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"answer");
        }
    }
}
