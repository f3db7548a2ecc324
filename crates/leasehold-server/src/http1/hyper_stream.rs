//! The stream below hyper, which replaces hyper's own error answers.
//!
//! hyper itself answers requests that it cannot parse, with a head and no body, and has no hook for that. Such an answer is
//! the last one that it writes, and differs from all answers of the service. So it is recognized here, and replaced by a
//! problem document.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use leasehold::core::BootTime;
use leasehold::wire::{Problem, ProblemType};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::read_ahead::ReadAhead;
use super::write_timeout::WriteTimeout;
use crate::answer::{self, Date};
use crate::metrics::{Metrics, RequestKind};
use crate::rejection::Rejection;

/// The maximum size of an answer by hyper itself.
const MAX_BARE_ANSWER: usize = 256;

/// A stream that hyper shares with the request that it serves. Both run in one task.
pub(super) struct HyperStream<S>(Arc<Mutex<Inner<S>>>);

struct Inner<S> {
    stream: WriteTimeout<S>,
    /// Bytes that were received but not read by hyper yet.
    unread: Vec<u8>,
    /// The unsent rest of the problem document that replaces hyper's own answer.
    document: Vec<u8>,
    metrics: Arc<Metrics>,
}

impl<S> HyperStream<S> {
    pub(super) fn new(stream: WriteTimeout<S>, unread: Vec<u8>, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            stream,
            unread,
            document: Vec::new(),
            metrics,
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Clone for HyperStream<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: AsyncRead + Unpin> HyperStream<S> {
    /// Completes when the caller hangs up while its request is being answered.
    pub(super) fn poll_hang_up(
        &self,
        ahead: &mut ReadAhead,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut inner = self.inner();
        let Inner { stream, unread, .. } = &mut *inner;
        let was_empty = unread.is_empty();
        let hang_up = ahead.poll_hang_up(stream, unread, context);
        if was_empty && !unread.is_empty() {
            // hyper waits until the connection is readable, and does not know that these bytes were received.
            context.waker().wake_by_ref();
        }
        hang_up
    }
}

impl<S: AsyncWrite + Unpin> Inner<S> {
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let rest = match bare_answer(bytes) {
            None => bytes,
            Some((0, status)) => {
                self.document = document(status, &self.metrics);
                return Poll::Ready(Ok(bytes.len()));
            }
            Some((start, _)) => &bytes[..start],
        };
        Pin::new(&mut self.stream).poll_write(context, rest)
    }

    fn poll_document(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.document.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(context, &self.document);
            let written = ready!(written)?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.document.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HyperStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.inner().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.inner();
        match slices {
            // hyper writes its own answers as one slice, because they have no body.
            [slice] => inner.poll_write(context, slice),
            slices => Pin::new(&mut inner.stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner().stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.inner();
        ready!(inner.poll_document(context))?;
        Pin::new(&mut inner.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.inner();
        ready!(inner.poll_document(context))?;
        Pin::new(&mut inner.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HyperStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut inner = self.inner();
        if !inner.unread.is_empty() {
            let count = inner.unread.len().min(buffer.remaining());
            buffer.put_slice(&inner.unread[..count]);
            inner.unread.drain(..count);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut inner.stream).poll_read(context, buffer)
    }
}

/// The status lines of hyper's own answers.
const BARE_STATUSES: [(&str, u16); 3] = [
    (" 400 Bad Request\r\n", 400),
    (" 414 URI Too Long\r\n", 414),
    (" 431 Request Header Fields Too Large\r\n", 431),
];

/// Returns where an answer by hyper itself begins in these bytes, and its status. An answer of the service has a content
/// type, and its body does not end with an empty line.
fn bare_answer(bytes: &[u8]) -> Option<(usize, u16)> {
    if !bytes.ends_with(b"\r\n\r\n") {
        return None;
    }
    let window = bytes.len().saturating_sub(MAX_BARE_ANSWER);
    let start = window + memchr::memmem::rfind(&bytes[window..], b"HTTP/1.")?;
    let head = str::from_utf8(&bytes[start..]).ok()?;
    let line = &head["HTTP/1.x".len().min(head.len())..];
    let (_, status) = { BARE_STATUSES.iter() }.find(|(bare, _)| line.starts_with(bare))?;
    (!head.contains("content-type:")).then_some((start, *status))
}

/// Returns the answer that replaces hyper's own.
fn document(status: u16, metrics: &Metrics) -> Vec<u8> {
    let (problem_type, detail) = match status {
        414 => (
            ProblemType::TooLarge,
            "the target of the request is too long: send a shorter path and query",
        ),
        431 => (
            ProblemType::TooLarge,
            "the head of the request is too large: send fewer or shorter headers",
        ),
        _ => (
            ProblemType::BadRequest,
            "the request is not valid HTTP: check its first line, its headers and the length of its body",
        ),
    };
    metrics.answered(RequestKind::Other, Some(problem_type), Duration::ZERO);
    let problem = Problem {
        status,
        ..Problem::new(problem_type, detail)
    };
    let mut bytes = Vec::new();
    let answer = answer::problem(&Rejection::from(problem));
    answer.write(Date::default().at(BootTime::default()), false, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_hyper_are_recognized_behind_other_answers() {
        let bare =
            "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\ndate: x\r\n\r\n";
        assert_eq!(bare_answer(bare.as_bytes()), Some((0, 400)));
        let other =
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        let both = format!(
            "{other}{}",
            bare.replace("400 Bad Request", "414 URI Too Long")
        );
        assert_eq!(bare_answer(both.as_bytes()), Some((other.len(), 414)));
        let old = bare.replace("HTTP/1.1", "HTTP/1.0");
        assert_eq!(bare_answer(old.as_bytes()), Some((0, 400)));
    }

    #[test]
    fn answers_of_the_service_are_not_replaced() {
        for answer in [
            "",
            "\r\n\r\n",
            "HTTP/1.",
            "HTTP/1.\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "10\r\ndata: HTTP/1.1 400 Bad Request\n\n\r\n0\r\n\r\n",
        ] {
            assert_eq!(bare_answer(answer.as_bytes()), None, "{answer:?}");
        }
    }
}
