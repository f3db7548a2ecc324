//! Concurrent futures in one task.

use std::future::poll_fn;
use std::task::Poll;

/// Runs futures concurrently in one task, and returns their outputs in order.
pub async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(move |context| {
        let mut is_done = true;
        for (future, output) in &mut pending {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *output = Some(value),
                    Poll::Pending => is_done = false,
                }
            }
        }
        if !is_done {
            return Poll::Pending;
        }
        Poll::Ready(pending.drain(..).filter_map(|(_, output)| output).collect())
    })
    .await
}
