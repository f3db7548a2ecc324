//! A connection: one ordinary request after another is read, answered and forgotten, with nothing in between. As soon as
//! something else comes, hyper has the connection, from that request on and for good.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use leasehold::core::BootTime;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::futures::Notified;
use tokio::time::{Instant, Sleep};

use crate::answer::{Answer, Date};
use crate::body::Body;
use crate::events;
use crate::ordinary::{Ordinary, Read};
use crate::serve::Client;
use crate::service::Head;
use crate::stalled::Unstalled;

/// Bytes of an ordinary request, and those that hyper reads ahead of one or keeps for a client that does not read.
const ROOM: usize = 64 * 1024;
/// Bytes for which there is always room when something is read.
const LITTLE: usize = 512;
/// Bytes that a connection keeps for its next request, and for its next answer.
const KEPT: usize = 8 * 1024;
/// Bytes that are read while a request is being answered.
const AHEAD: usize = 4 * 1024;
/// How long the body of an ordinary request may take to follow its head.
const BODY_FOLLOWS: Duration = Duration::from_millis(100);

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Serves a connection to its end.
pub(crate) async fn serve<S>(client: Client, stream: S) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut stream = Unstalled::new(stream, client.service.config.write_timeout);
    let closing = client.closing.clone();
    let mut told = pin!(closing.told());
    let next = Conversation::new(&client, &mut stream, told.as_mut())
        .go_on()
        .await?;
    match next {
        Next::Over => {
            // The other side may have gone, or not listen: then there is nobody to say good-bye to.
            let timeout = client.service.config.write_timeout;
            let _ = tokio::time::timeout(timeout, stream.shutdown()).await;
            Ok(())
        }
        Next::Hyper(unread) => {
            stream.put_back(unread);
            // On the heap: most connections never need it.
            Box::pin(serve_all(client, stream, told)).await
        }
    }
}

/// The same for whatever is HTTP/1.
async fn serve_all<S>(
    client: Client,
    stream: Unstalled<S>,
    told: Pin<&mut Notified<'_>>,
) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let config = client.service.config.clone();
    let client = &client;
    let answer = service_fn(async move |request: hyper::Request<_>| {
        client.begin().await;
        let (parts, body) = request.into_parts();
        let body = Body::Coming(body);
        let (answer, answered) = client
            .service
            .answer(Head::of(&parts), body, &client.peer)
            .await;
        if !answer.body.is_stream() {
            client.end(answered);
        }
        Ok::<_, std::convert::Infallible>(answer.into_response())
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(config.head_timeout)
            .max_header_size(config.max_head)
            .max_buf_size(ROOM.max(config.max_head))
            .serve_connection(TokioIo::new(stream), answer)
    );
    if !client.closing.is_set() {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return Ok(ended?),
            () = told => {}
        }
    }
    connection.as_mut().graceful_shutdown();
    Ok(connection.await?)
}

/// What comes after the ordinary requests of a connection.
enum Next {
    /// Nothing.
    Over,
    /// Something that begins like this.
    Hyper(Vec<u8>),
}

struct Conversation<'c, 't, S> {
    client: &'c Client,
    stream: &'c mut Unstalled<S>,
    /// Ready when the service ends.
    closing: Pin<&'c mut Notified<'t>>,
    /// What has come and was not answered yet.
    input: Vec<u8>,
    /// Takes its place while a request is being answered.
    spare: Vec<u8>,
    output: Vec<u8>,
    date: Date,
    /// When the last request was answered.
    idle_since: BootTime,
    /// Whether it is to be woken when nothing comes for too long, or the service ends.
    listens: bool,
}

impl<'c, 't, S: AsyncRead + AsyncWrite + Unpin> Conversation<'c, 't, S> {
    fn new(
        client: &'c Client,
        stream: &'c mut Unstalled<S>,
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
            listens: false,
        }
    }

    fn now(&self) -> BootTime {
        self.client.service.engine.host().boot_time()
    }

    async fn go_on(mut self) -> io::Result<Next> {
        let config = &self.client.service.config;
        let mut idle = pin!(tokio::time::sleep(config.head_timeout));
        loop {
            let read = match self.input.is_empty() {
                true => Read::Part,
                false => Ordinary::read(&self.input),
            };
            match read {
                Read::Part if self.input.len() > config.max_head => break,
                Read::Part => {
                    if !self.listen(idle.as_mut()).await? {
                        return Ok(Next::Over);
                    }
                }
                Read::Ordinary(request) if self.is_whole(&request).await? => {
                    let goes_on = request.goes_on && !self.client.closing.is_set();
                    if !self.answer(&request, goes_on).await? || !goes_on {
                        return Ok(Next::Over);
                    }
                }
                Read::Ordinary(_) | Read::Other => break,
            }
        }
        Ok(Next::Hyper(self.input))
    }

    /// Waits for more of a request; whether any came before it took too long.
    async fn listen(&mut self, mut idle: Pin<&mut Sleep>) -> io::Result<bool> {
        let patience = self.client.service.config.head_timeout;
        // As much room again as was needed so far.
        self.input.reserve(self.input.len().max(LITTLE));
        poll_fn(|context| {
            if let Poll::Ready(read) = pin!(self.stream.read_buf(&mut self.input)).poll(context) {
                return Poll::Ready(read.map(|read| read > 0));
            }
            if self.client.closing.is_set() {
                return Poll::Ready(Ok(false));
            }
            // Both know whom to wake since the first time: it is always the same task.
            if !self.listens || idle.is_elapsed() {
                self.listens = true;
                if self.closing.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Ok(false));
                }
                while idle.as_mut().poll(context).is_ready() {
                    // Set when something was asked for longer ago.
                    let left = patience.saturating_sub(self.now().since(self.idle_since));
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

    /// Whether all of a request that is to be answered here has come, or comes at once.
    async fn is_whole(&mut self, request: &Ordinary) -> io::Result<bool> {
        // Only hyper streams.
        if request.head_length() > self.client.service.config.max_head
            || request.length() > ROOM
            || request.is_for(events::PATH, &self.input)
        {
            return Ok(false);
        }
        if self.input.len() >= request.length() {
            return Ok(true);
        }
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
        match tokio::time::timeout(BODY_FOLLOWS, rest).await {
            Ok(read) => read.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Answers a request; whether there was still somebody to answer to.
    async fn answer(&mut self, request: &Ordinary, goes_on: bool) -> io::Result<bool> {
        self.client.begin().await;
        let asked = std::mem::replace(&mut self.input, std::mem::take(&mut self.spare));
        self.input.extend_from_slice(&asked[request.length()..]);
        let Some((answer, answered)) = self.ask(request, &asked).await? else {
            return Ok(false);
        };
        self.idle_since = answered;
        self.send(answer, goes_on).await?;
        self.client.end(self.idle_since);
        self.spare = asked;
        self.spare.clear();
        if self.input.is_empty() {
            std::mem::swap(&mut self.input, &mut self.spare);
        }
        self.input.shrink_to(KEPT);
        self.spare.shrink_to(KEPT);
        Ok(true)
    }

    /// Has the service answer, as long as somebody is there.
    async fn ask(
        &mut self,
        request: &Ordinary,
        asked: &[u8],
    ) -> io::Result<Option<(Answer, BootTime)>> {
        let Client { service, peer, .. } = self.client;
        let head = Head {
            method: &request.method,
            path: request.path(asked),
            query: request.query(asked),
            host: request.host(asked),
            headers: request.headers(),
        };
        let body = Body::Here(request.body(asked).to_vec());
        let mut answering = pin!(service.answer(head, body, peer));
        let mut turns = 0;
        poll_fn(|context| {
            // Whoever has been waiting may have gone meanwhile, and then wants no answer.
            turns += 1;
            if turns > 2 && self.has_gone(context)? {
                return Poll::Ready(Ok(None));
            }
            match answering.as_mut().poll(context) {
                Poll::Ready(answered) => Poll::Ready(Ok(Some(answered))),
                Poll::Pending if self.has_gone(context)? => Poll::Ready(Ok(None)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Whether nobody is there any more; reads a little of what comes next, to see that.
    fn has_gone(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        while self.input.len() < AHEAD
            && let Poll::Ready(read) = pin!(self.stream.read_buf(&mut self.input)).poll(context)
        {
            if read? == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn send(&mut self, answer: Answer, goes_on: bool) -> io::Result<()> {
        answer.write(self.date.at(self.idle_since), goes_on, &mut self.output);
        let mut body = answer.body;
        let sent = self.stream.write(&self.output).await?;
        // From its first byte on, what it tells is the caller's.
        body.take();
        if sent < self.output.len() {
            self.stream.write_all(&self.output[sent..]).await?;
        }
        self.stream.flush().await?;
        self.output.clear();
        self.output.shrink_to(KEPT);
        Ok(())
    }
}
