//! Notices that a caller hangs up while its request is being answered, even if it has sent more requests.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::Sleep;

/// The maximum number of bytes that are read while a request is being answered.
const MAX_AHEAD: usize = 16 * 1024;
/// How long a request may stay unanswered if its caller sends more than that. Unread bytes hide the end of the connection,
/// so a caller that has hung up would look like one that waits.
const MAX_TIME_BEYOND: Duration = Duration::from_secs(1);

/// Reads bytes behind a request, in order to notice when the caller hangs up.
#[derive(Default)]
pub(super) struct ReadAhead {
    /// Runs while more was sent than may be read.
    beyond: Option<Pin<Box<Sleep>>>,
}

impl ReadAhead {
    /// Completes when the caller has hung up, or has sent so much that a hang-up cannot be noticed.
    pub(super) fn poll_hang_up(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        buffer: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while buffer.len() < MAX_AHEAD {
            let Poll::Ready(read) = pin!(stream.read_buf(buffer)).poll(context) else {
                self.beyond = None;
                return Poll::Pending;
            };
            if read? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        let beyond = self
            .beyond
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(MAX_TIME_BEYOND)));
        beyond.as_mut().poll(context).map(Ok)
    }
}

/// Runs `answering` until it completes, or returns `None` if the caller hangs up first.
pub(super) async fn until_hang_up<T>(
    answering: impl Future<Output = T>,
    mut poll_hang_up: impl FnMut(&mut Context<'_>) -> Poll<io::Result<()>>,
) -> io::Result<Option<T>> {
    let mut answering = pin!(answering);
    let mut polls = 0;
    poll_fn(|context| {
        // A woken waiter is about to be granted the lease: check first whether its caller has hung up.
        polls += 1;
        if polls > 2 && poll_hang_up(context)?.is_ready() {
            return Poll::Ready(Ok(None));
        }
        match answering.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Ok(Some(answer))),
            Poll::Pending => poll_hang_up(context).map_ok(|()| None),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::io::AsyncWriteExt as _;
    use tokio::time::Instant;

    use super::*;

    /// Returns how long it takes to notice that a caller has hung up after sending this many bytes.
    async fn time_to_notice(sent: usize) -> Duration {
        let (mut near, mut far) = tokio::io::duplex(2 * MAX_AHEAD);
        far.write_all(&vec![b'x'; sent]).await.unwrap();
        drop(far);
        let (mut ahead, mut buffer) = (ReadAhead::default(), Vec::new());
        let started = Instant::now();
        let waited = until_hang_up(pending::<()>(), |context| {
            ahead.poll_hang_up(&mut near, &mut buffer, context)
        });
        assert_eq!(waited.await.unwrap(), None);
        assert_eq!(buffer.len(), sent.min(MAX_AHEAD));
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn hang_up_is_noticed_behind_any_number_of_bytes() {
        for sent in [0, 1, MAX_AHEAD - 1] {
            assert_eq!(time_to_notice(sent).await, Duration::ZERO, "{sent}");
        }
        for sent in [MAX_AHEAD, MAX_AHEAD + 1, 2 * MAX_AHEAD] {
            let took = time_to_notice(sent).await;
            assert!(
                (MAX_TIME_BEYOND..2 * MAX_TIME_BEYOND).contains(&took),
                "{sent}: {took:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn caller_that_sends_ahead_is_answered() {
        let (mut near, mut far) = tokio::io::duplex(2 * MAX_AHEAD);
        far.write_all(&[b'x'; MAX_AHEAD - 1]).await.unwrap();
        let (mut ahead, mut buffer) = (ReadAhead::default(), Vec::new());
        let answer = tokio::time::sleep(10 * MAX_TIME_BEYOND);
        let answered = until_hang_up(answer, |context| {
            ahead.poll_hang_up(&mut near, &mut buffer, context)
        });
        assert_eq!(answered.await.unwrap(), Some(()));
    }
}
