//! Answers plain requests, one after the other, without hyper.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use leasehold::core::BootTime;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::futures::Notified;
use tokio::time::{Instant, Sleep};

use super::MAX_BUFFER;
use super::head::{Parsed, RequestHead};
use super::read_ahead::{ReadAhead, until_hang_up};
use super::write_timeout::WriteTimeout;
use crate::answer::{Answer, AnswerBody, Date};
use crate::body::Body;
use crate::budget::MAX_UNRESERVED_BYTES;
use crate::events;
use crate::serve::Client;
use crate::service::Head;

/// The free capacity of the input buffer before each read.
const MIN_READ: usize = 512;
/// The capacity that each buffer keeps between requests.
const KEPT_CAPACITY: usize = 8 * 1024;
/// How long to wait for the body of a plain request before hyper serves it.
const BODY_TIMEOUT: Duration = Duration::from_millis(100);

/// What happens after the plain requests of a connection.
pub(super) enum Next {
    /// The connection is closed.
    Close,
    /// hyper serves the rest, which begins with these bytes.
    Hyper(Vec<u8>),
}

pub(super) struct FastPath<'c, 't, S> {
    client: &'c Client,
    stream: &'c mut WriteTimeout<S>,
    /// Completes when the service ends.
    closing: Pin<&'c mut Notified<'t>>,
    /// Received bytes that are not answered yet.
    input: Vec<u8>,
    /// Replaces `input` while a request is being answered.
    spare: Vec<u8>,
    output: Vec<u8>,
    date: Date,
    /// When the last request was answered.
    idle_since: BootTime,
    /// Whether the idle timeout and the end of the service wake this task.
    is_registered: bool,
}

impl<'c, 't, S: AsyncRead + AsyncWrite + Unpin> FastPath<'c, 't, S> {
    pub(super) fn new(
        client: &'c Client,
        stream: &'c mut WriteTimeout<S>,
        closing: Pin<&'c mut Notified<'t>>,
    ) -> Self {
        Self {
            client,
            stream,
            closing,
            input: Vec::new(),
            spare: Vec::new(),
            output: Vec::new(),
            date: Date::default(),
            idle_since: client.service.engine.host().boot_time(),
            is_registered: false,
        }
    }

    fn now(&self) -> BootTime {
        self.client.service.engine.host().boot_time()
    }

    pub(super) async fn run(mut self) -> io::Result<Next> {
        let config = &self.client.service.config;
        let mut idle = pin!(tokio::time::sleep(config.head_timeout));
        loop {
            let parsed = match self.input.is_empty() {
                true => Parsed::Partial,
                false => RequestHead::parse(&self.input),
            };
            match parsed {
                Parsed::Partial if self.input.len() > config.max_head => break,
                Parsed::Partial => {
                    if !self.receive(idle.as_mut()).await? {
                        return Ok(Next::Close);
                    }
                }
                Parsed::Plain(request) if self.receive_body(&request).await? => {
                    if !self.answer(&request).await? {
                        return Ok(Next::Close);
                    }
                }
                Parsed::Plain(_) | Parsed::Other => break,
            }
        }
        Ok(Next::Hyper(self.input))
    }

    /// Waits for more bytes of a request. Returns whether there were any before the timeout.
    async fn receive(&mut self, mut idle: Pin<&mut Sleep>) -> io::Result<bool> {
        let timeout = self.client.service.config.head_timeout;
        // At least doubles the buffer.
        self.input.reserve(self.input.len().max(MIN_READ));
        poll_fn(|context| {
            if let Poll::Ready(read) = pin!(self.stream.read_buf(&mut self.input)).poll(context) {
                return Poll::Ready(read.map(|read| read > 0));
            }
            if self.client.closing.is_set() {
                return Poll::Ready(Ok(false));
            }
            // Register once only, because the task stays the same.
            if !self.is_registered || idle.is_elapsed() {
                self.is_registered = true;
                if self.closing.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Ok(false));
                }
                while idle.as_mut().poll(context).is_ready() {
                    // The timer was set for an earlier request.
                    let left = timeout.saturating_sub(self.now().since(self.idle_since));
                    if left.is_zero() {
                        return Poll::Ready(Ok(false));
                    }
                    idle.as_mut().reset(Instant::now() + left);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Receives the rest of a request. Returns whether it can be answered on the fast path.
    async fn receive_body(&mut self, request: &RequestHead) -> io::Result<bool> {
        // Streams and large requests are left to hyper.
        if request.head_length() > self.client.service.config.max_head
            || request.length() > MAX_BUFFER
            || request.path(&self.input) == events::PATH
        {
            return Ok(false);
        }
        if self.input.len() >= request.length() {
            return Ok(true);
        }
        self.client.connection.slot().mark_idle(self.now());
        let missing = request.length() - self.input.len();
        self.input.reserve(missing);
        let rest = async {
            while self.input.len() < request.length() {
                if self.stream.read_buf(&mut self.input).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Ok(())
        };
        match tokio::time::timeout(BODY_TIMEOUT, rest).await {
            Ok(read) => read.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Answers a request. Returns whether the connection stays open.
    async fn answer(&mut self, request: &RequestHead) -> io::Result<bool> {
        if let Err(refusal) = self.client.admit(request.path(&self.input)).await {
            self.idle_since = self.now();
            self.send(refusal, false).await?;
            return Ok(false);
        }
        let keep_alive = request.keep_alive && self.client.keeps_alive();
        self.client.begin().await;
        let received = std::mem::replace(&mut self.input, std::mem::take(&mut self.spare));
        self.input.extend_from_slice(&received[request.length()..]);
        let Some((answer, answered)) = self.perform(request, &received).await? else {
            return Ok(false);
        };
        self.idle_since = answered;
        self.send(answer, keep_alive).await?;
        self.spare = received;
        self.spare.clear();
        if self.input.is_empty() {
            std::mem::swap(&mut self.input, &mut self.spare);
        }
        self.input.shrink_to(KEPT_CAPACITY);
        self.spare.shrink_to(KEPT_CAPACITY);
        Ok(keep_alive)
    }

    /// Returns the service's answer to a request; `None` if the caller hangs up first.
    async fn perform(
        &mut self,
        request: &RequestHead,
        received: &[u8],
    ) -> io::Result<Option<(Answer, BootTime)>> {
        let Client { service, peer, .. } = self.client;
        let head = Head {
            method: &request.method,
            path: request.path(received),
            query: request.query(received),
            host: request.host(received),
            headers: request.headers(),
        };
        let body = Body::Buffered(request.body(received).to_vec());
        let answering = service.answer(head, body, peer);
        let mut ahead = ReadAhead::default();
        let Self { stream, input, .. } = self;
        until_hang_up(answering, |context| {
            ahead.poll_hang_up(*stream, input, context)
        })
        .await
    }

    async fn send(&mut self, answer: Answer, keep_alive: bool) -> io::Result<()> {
        let (date, output) = (self.date.at(self.idle_since), &mut self.output);
        let is_large = answer.body.length() > MAX_UNRESERVED_BYTES;
        match is_large {
            true => answer.write_head(date, keep_alive, output),
            false => answer.write(date, keep_alive, output),
        }
        let mut body = answer.body;
        // Idle from now on, because the client may not read the answer.
        let slot = self.client.connection.slot();
        slot.mark_idle(self.idle_since);
        let sent = self.stream.write(&self.output).await?;
        // Once the first byte is sent, a grant in the answer must not be released.
        body.take();
        if sent < self.output.len() || is_large {
            self.stream.write_all(&self.output[sent..]).await?;
            if is_large {
                self.send_text(&mut body).await?;
            }
            self.idle_since = self.now();
            self.client.connection.slot().mark_idle(self.idle_since);
        }
        self.stream.flush().await?;
        self.output.clear();
        self.output.shrink_to(KEPT_CAPACITY);
        Ok(())
    }

    /// Sends a large text without copying it.
    async fn send_text(&mut self, body: &mut AnswerBody) -> io::Result<()> {
        let text = body.text();
        let sent = self.stream.write(text).await?;
        if sent < text.len() {
            // The text stays in memory until the client has read it, so it counts toward the budget.
            let _counted = self.client.count(body, text.len())?;
            self.stream.write_all(&text[sent..]).await?;
        }
        Ok(())
    }
}
