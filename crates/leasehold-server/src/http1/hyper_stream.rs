//! What hyper reads and writes.
//!
//! hyper answers a request that it cannot parse by itself, with a head and no body, and has no hook for that. This answer
//! is the last thing that it writes, and no answer of the service looks like it; so it is recognised here, and a problem
//! document is sent in its place.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use leasehold::core::BootTime;
use leasehold::wire::{Problem, Trouble};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::read_ahead::ReadAhead;
use super::write_timeout::WriteTimeout;
use crate::answer::{self, Date};
use crate::metrics::{Asked, Metrics};
use crate::refused::Refused;

/// The most bytes of an answer of hyper's own.
const MAX_BARE_ANSWER: usize = 256;

/// A connection that is shared by hyper and by the request that it serves, both in one task.
pub(super) struct HyperStream<S>(Arc<Mutex<Inner<S>>>);

struct Inner<S> {
    stream: WriteTimeout<S>,
    /// What was read and hyper has not had yet.
    unread: Vec<u8>,
    /// The rest of the problem document that is sent in place of hyper's own answer.
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
    /// Ready when the caller has hung up, whose request is complete and being answered.
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
            // hyper waits for the connection to have more, and will not learn otherwise that it is here.
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
            // An answer of its own comes in one slice: it has no body.
            [one] => inner.poll_write(context, one),
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

/// The statuses with which hyper answers what it cannot parse.
const BARE: [(&str, u16); 3] = [
    (" 400 Bad Request\r\n", 400),
    (" 414 URI Too Long\r\n", 414),
    (" 431 Request Header Fields Too Large\r\n", 431),
];

/// Where in these bytes an answer of hyper's own begins, and its status. An answer of the service has a content type, and
/// no line break as it is in its body.
fn bare_answer(bytes: &[u8]) -> Option<(usize, u16)> {
    if !bytes.ends_with(b"\r\n\r\n") {
        return None;
    }
    let window = bytes.len().saturating_sub(MAX_BARE_ANSWER);
    let start = window + memchr::memmem::rfind(&bytes[window..], b"HTTP/1.")?;
    let head = str::from_utf8(&bytes[start..]).ok()?;
    let line = &head["HTTP/1.x".len().min(head.len())..];
    let (_, status) = { BARE.iter() }.find(|(bare, _)| line.starts_with(bare))?;
    (!head.contains("content-type:")).then_some((start, *status))
}

/// The answer that is sent instead.
fn document(status: u16, metrics: &Metrics) -> Vec<u8> {
    let (trouble, detail) = match status {
        414 => (Trouble::TooLarge, "the target of the request is too long"),
        431 => (
            Trouble::TooLarge,
            "the head of the request is too large: send fewer or shorter headers",
        ),
        _ => (
            Trouble::BadRequest,
            "the request is not valid HTTP: check its first line, its headers and the length of its body",
        ),
    };
    metrics.answered(Asked::Other, Some(trouble), Duration::ZERO);
    let problem = Problem {
        status,
        ..Problem::new(trouble, detail)
    };
    let mut bytes = Vec::new();
    let answer = answer::problem(&Refused::from(problem));
    answer.write(Date::default().at(BootTime::default()), false, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_hyper_are_recognised_behind_others() {
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
    fn answers_of_the_service_are_left_alone() {
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
