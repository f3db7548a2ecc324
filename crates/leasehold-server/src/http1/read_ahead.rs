//! Notices that a caller hangs up while its request is being answered, whatever it has sent behind the request.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::Sleep;

/// Bytes that a caller may send behind a request that is being answered.
const MAX_AHEAD: usize = 16 * 1024;
/// How long a request may stay unanswered when more were sent. Unread bytes hide the end of the connection, so a caller that
/// has gone could not be told from one that waits.
const MAX_TIME_BEYOND: Duration = Duration::from_secs(1);

/// Reads what a caller sends behind one request, in order to notice when it hangs up.
#[derive(Default)]
pub(super) struct ReadAhead {
    /// Set while more was sent than may be read.
    beyond: Option<Pin<Box<Sleep>>>,
}

impl ReadAhead {
    /// Ready when the caller has hung up, or has sent so much that this cannot be seen any more.
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

/// Runs `answering` for as long as its caller is there; `None` if it hangs up first.
pub(super) async fn until_hang_up<T>(
    answering: impl Future<Output = T>,
    mut poll_hang_up: impl FnMut(&mut Context<'_>) -> Poll<io::Result<()>>,
) -> io::Result<Option<T>> {
    let mut answering = pin!(answering);
    let mut polls = 0;
    poll_fn(|context| {
        // A waiter may have left at the very moment of its turn: look before it is granted anything.
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

    /// How long it takes to notice that a caller has hung up that sent so many bytes before.
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
    async fn a_hang_up_is_noticed_whatever_is_queued() {
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
    async fn a_caller_that_sends_ahead_and_stays_is_answered() {
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
