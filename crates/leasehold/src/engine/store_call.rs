//! A timeout for store calls. A panic of the store becomes an error.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::store::Answer;
use crate::{Error, Result};

/// Runs a read with a timeout. A read that is not answered, or panics, is unavailable.
pub(super) async fn with_timeout<T>(
    timeout: Duration,
    call: impl Future<Output = Result<Answer<T>>>,
) -> Result<Answer<T>> {
    match tokio::time::timeout(timeout, catch_panic(call)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panicked)) => Err(Error::Unavailable(panicked.0)),
        Err(_) => Err(Error::Unavailable(no_answer_message(timeout))),
    }
}

/// The message of a store call that panicked.
pub(super) struct Panicked(pub(super) String);

/// Catches a panic of the store, so that the operations of every call are completed.
pub(super) async fn catch_panic<T>(call: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut call = pin!(call);
    let caught = poll_fn(|context| {
        // The panicked future is not polled again.
        let poll = AssertUnwindSafe(|| call.as_mut().poll(context));
        match catch_unwind(poll) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    });
    caught.await.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Panicked(format!(
            "the store panicked: {}",
            text.unwrap_or("no message")
        ))
    })
}

pub(super) fn no_answer_message(timeout: Duration) -> String {
    format!("the store did not answer within {timeout:?}")
}
