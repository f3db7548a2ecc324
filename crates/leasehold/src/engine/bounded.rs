//! Bounds a call of the store: it ends in time, and with an answer also when the store panics.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::store::Answer;
use crate::{Error, Result};

/// Bounds a read: one that does not answer, or panics, has done nothing.
pub(super) async fn bounded<T>(
    timeout: Duration,
    call: impl Future<Output = Result<Answer<T>>>,
) -> Result<Answer<T>> {
    match tokio::time::timeout(timeout, caught(call)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panicked)) => Err(Error::Unavailable(panicked.0)),
        Err(_) => Err(no_answer(timeout)),
    }
}

/// A call of the store panicked.
pub(super) struct Panicked(pub(super) String);

/// Catches a panic of the store, so that every call of it is concluded.
pub(super) async fn caught<T>(call: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut call = pin!(call);
    let caught = poll_fn(|context| {
        // What the store was at is dropped and not used again.
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

pub(super) fn silence(timeout: Duration) -> String {
    format!("the store did not answer within {timeout:?}")
}

fn no_answer(timeout: Duration) -> Error {
    Error::Unavailable(silence(timeout))
}
