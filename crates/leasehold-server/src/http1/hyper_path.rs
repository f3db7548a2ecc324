//! Serves a connection with hyper, from the first request on that is not plain.

use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use http_body::Body as _;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::futures::Notified;

use super::hyper_stream::HyperStream;
use super::read_ahead::{ReadAhead, until_hang_up};
use super::write_timeout::WriteTimeout;
use super::{Failure, MAX_BUFFER};
use crate::answer::AnswerBody;
use crate::body::Body;
use crate::serve::Client;
use crate::service::Head;

/// Serves the rest of a connection, which begins with the bytes in `unread`.
pub(super) async fn serve<S>(
    client: Client,
    stream: WriteTimeout<S>,
    unread: Vec<u8>,
    closing: Pin<&mut Notified<'_>>,
) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let config = client.service.config.clone();
    let stream = HyperStream::new(stream, unread, client.service.metrics.clone());
    let (client, shared) = (&client, &stream);
    let service = service_fn(async move |request| answer(client, shared, request).await);
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(config.head_timeout)
            .max_header_size(config.max_head)
            .max_buf_size(MAX_BUFFER.max(config.max_head))
            .serve_connection(TokioIo::new(stream.clone()), service)
    );
    if !client.closing.is_set() {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return Ok(ended?),
            () = closing => {}
        }
    }
    connection.as_mut().graceful_shutdown();
    Ok(connection.await?)
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    client: &Client,
    stream: &HyperStream<S>,
    request: Request<Incoming>,
) -> io::Result<Response<AnswerBody>> {
    let (parts, body) = request.into_parts();
    let head = Head::of(&parts);
    let slot = client.connection.slot();
    if let Err(answer) = client.admit(head.path).await {
        return Ok(closing(answer.into_response()));
    }
    let is_last = client.connection.is_reserved();
    let body = if body.is_end_stream() {
        client.begin().await;
        Body::Buffered(Vec::new())
    } else {
        slot.mark_idle(client.service.engine.host().boot_time());
        Body::Unread(body, slot.clone())
    };
    let answering = client.service.answer(head, body, &client.peer);
    let mut ahead = ReadAhead::default();
    let answered = until_hang_up(answering, |context| match slot.is_busy() {
        true => stream.poll_hang_up(&mut ahead, context),
        // The rest of the request was not received yet.
        false => Poll::Pending,
    });
    let (mut answer, answered) = { answered.await? }.ok_or(io::ErrorKind::ConnectionAborted)?;
    if let Some(counted) = client.count(&answer.body, answer.body.length())? {
        answer.body.set_permit(counted);
    }
    if !answer.body.is_stream() {
        slot.mark_idle(answered);
    }
    let response = answer.into_response();
    Ok(if is_last { closing(response) } else { response })
}

/// Marks the last response of a connection.
fn closing(mut response: Response<AnswerBody>) -> Response<AnswerBody> {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}
