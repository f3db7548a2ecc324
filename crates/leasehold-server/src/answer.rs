//! Answers to requests. A grant becomes the caller's when the first byte of its answer is about to be written.

use std::borrow::Cow;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use leasehold::core::{BootTime, Name, Outcome};
use leasehold::engine::{CallTimes, Reply};
use leasehold::wire::{Problem, ProblemType};
use serde::Serialize;

use crate::budget::BudgetPermit;
use crate::events::Stream;
use crate::rejection::Rejection;

/// The body of an answer.
pub(crate) struct AnswerBody {
    json: Cow<'static, [u8]>,
    /// The reply that the answer reports, if it reports one.
    reply: Option<(Name, Reply)>,
    /// The replies, if it reports several. A reply that is dropped before it is sent releases its new grant.
    replies: Vec<(Name, Reply)>,
    /// Sent instead of the JSON, until the client disconnects.
    stream: Option<Box<Stream>>,
    /// The answer's share of the budget, if it is large.
    permit: Option<BudgetPermit>,
    /// Bytes of the text that hyper has taken.
    sent: usize,
}

impl AnswerBody {
    /// Returns when the store was called for this answer, from the first call to the last.
    pub(crate) fn call_times(&self) -> Option<CallTimes> {
        let calls = self.replies().filter_map(|(_, reply)| reply.call_times());
        calls.reduce(|one, other| CallTimes {
            sent: one.sent.min(other.sent),
            received: one.received.max(other.received),
        })
    }

    /// Returns the names of the leases that it grants.
    pub(crate) fn granted(&self) -> impl Iterator<Item = &Name> {
        let is_grant = |reply: &Reply| matches!(reply.outcome(), Outcome::Granted(_));
        let grants = self.replies().filter(move |(_, reply)| is_grant(reply));
        grants.map(|(name, _)| name)
    }

    fn replies(&self) -> impl Iterator<Item = &(Name, Reply)> {
        self.reply.iter().chain(&self.replies)
    }

    /// Delivers the grants: called when the first byte is about to be written, or was just written.
    pub(crate) fn take(&mut self) {
        for (_, reply) in self.reply.take().into_iter().chain(self.replies.drain(..)) {
            let _ = reply.take();
        }
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.json
    }

    /// Returns the length of its text in bytes.
    pub(crate) fn length(&self) -> usize {
        self.json.len()
    }

    /// Returns whether it has a share of the budget.
    pub(crate) fn has_permit(&self) -> bool {
        self.permit.is_some()
    }

    pub(crate) fn set_permit(&mut self, permit: BudgetPermit) {
        self.permit = Some(permit);
    }

    /// Returns the next part of the text. Parts of a large text are copied: its permit is released when all of it has been
    /// sent, and a part that shared its memory would keep that alive.
    fn next_part(&mut self) -> Bytes {
        if self.json.len() <= MAX_PART {
            return match std::mem::take(&mut self.json) {
                Cow::Owned(bytes) => bytes.into(),
                Cow::Borrowed(bytes) => Bytes::from_static(bytes),
            };
        }
        let rest = &self.json[self.sent..];
        let part = Bytes::copy_from_slice(&rest[..rest.len().min(MAX_PART)]);
        self.sent += part.len();
        if self.sent == self.json.len() {
            (self.json, self.sent) = (Cow::default(), 0);
        }
        part
    }

    /// Returns whether it is an endless stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.stream.is_some()
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.take();
        if let Some(stream) = &mut self.stream {
            return stream
                .poll_next(context)
                .map(|next| Some(Ok(Frame::data(next?))));
        }
        let part = self.next_part();
        Poll::Ready((!part.is_empty()).then(|| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.json.is_empty() && self.stream.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.stream {
            None => SizeHint::with_exact((self.json.len() - self.sent) as u64),
            Some(_) => SizeHint::default(),
        }
    }
}

/// The maximum number of bytes of a text that hyper gets at once.
const MAX_PART: usize = 64 * 1024;

/// Enough bytes for the head of most answers.
const HEAD_BYTES: usize = 192;

const JSON: &str = "application/json";
const PROBLEM_JSON: &str = "application/problem+json";
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// An answer before it is encoded as HTTP. In a batch, it becomes a part of another answer instead.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    content_type: &'static str,
    /// Additional headers.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: AnswerBody,
}

impl Answer {
    fn new(json: Cow<'static, [u8]>, content_type: &'static str) -> Self {
        Self {
            status: StatusCode::OK,
            content_type,
            headers: Vec::new(),
            body: AnswerBody {
                json,
                reply: None,
                replies: Vec::new(),
                stream: None,
                permit: None,
                sent: 0,
            },
        }
    }

    /// Adds a share of the budget, if one is required.
    pub(crate) fn with_permit(mut self, permit: Option<BudgetPermit>) -> Self {
        self.body.permit = permit;
        self
    }

    /// Writes the head and the text. Not for streams.
    pub(crate) fn write(&self, date: &str, keep_alive: bool, to: &mut Vec<u8>) {
        to.reserve(HEAD_BYTES + self.body.json.len());
        self.write_head(date, keep_alive, to);
        to.extend_from_slice(&self.body.json);
    }

    /// Writes the head.
    pub(crate) fn write_head(&self, date: &str, keep_alive: bool, to: &mut Vec<u8>) {
        let json = &self.body.json;
        if self.status == StatusCode::OK && self.content_type == JSON && self.headers.is_empty() {
            // The usual case, in one copy.
            to.extend_from_slice(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncache-control: no-store",
            );
        } else {
            self.write_status_and_headers(to);
        }
        if self.status != StatusCode::NOT_MODIFIED {
            let mut digits = itoa::Buffer::new();
            write_header("content-length", digits.format(json.len()).as_bytes(), to);
        }
        if !keep_alive {
            write_header("connection", b"close", to);
        }
        write_header("date", date.as_bytes(), to);
        to.extend_from_slice(b"\r\n\r\n");
    }

    fn write_status_and_headers(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(b"HTTP/1.1 ");
        to.extend_from_slice(self.status.as_str().as_bytes());
        to.push(b' ');
        let reason = self.status.canonical_reason().unwrap_or_default();
        to.extend_from_slice(reason.as_bytes());
        write_header("content-type", self.content_type.as_bytes(), to);
        for (name, value) in &self.headers {
            write_header(name.as_str(), value.as_bytes(), to);
        }
        if self.lacks_cache_control() {
            write_header("cache-control", NO_STORE.as_bytes(), to);
        }
    }

    /// Returns whether it says nothing about caches, which must then not store it.
    fn lacks_cache_control(&self) -> bool {
        self.headers.iter().all(|(name, _)| name != CACHE_CONTROL)
    }

    /// Converts it into a response for hyper.
    pub(crate) fn into_response(self) -> Response<AnswerBody> {
        let lacks_cache_control = self.lacks_cache_control();
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.extend(self.headers);
        if lacks_cache_control {
            headers.insert(CACHE_CONTROL, NO_STORE);
        }
        response
    }
}

fn write_header(name: &str, value: &[u8], to: &mut Vec<u8>) {
    to.extend_from_slice(b"\r\n");
    to.extend_from_slice(name.as_bytes());
    to.extend_from_slice(b": ");
    to.extend_from_slice(value);
}

/// The `Date` header, formatted once a second.
#[derive(Default)]
pub(crate) struct Date {
    text: String,
    /// When the text has to be formatted again.
    until: BootTime,
}

impl Date {
    pub(crate) fn at(&mut self, now: BootTime) -> &str {
        if self.text.is_empty() || now >= self.until {
            let wall = Timestamp::now();
            let fraction = Duration::from_nanos(u64::from(wall.subsec_nanosecond().unsigned_abs()));
            self.until = now + Duration::from_secs(1).saturating_sub(fraction);
            let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&wall);
            self.text = text.unwrap_or_default();
        }
        &self.text
    }
}

/// Returns a successful answer without a reply of the engine.
pub(crate) fn ok(value: &impl Serialize) -> Answer {
    json(StatusCode::OK, JSON, value)
}

/// Returns a successful answer with JSON for which budget was reserved.
pub(crate) fn reserved_json(permit: BudgetPermit, json: Vec<u8>) -> Answer {
    Answer::new(json.into(), JSON).with_permit(Some(permit))
}

/// Returns an answer that delivers a reply of the engine when it is written.
pub(crate) fn with_reply(name: &Name, reply: Reply, json: impl Into<Cow<'static, [u8]>>) -> Answer {
    let mut answer = Answer::new(json.into(), JSON);
    answer.body.reply = Some((name.clone(), reply));
    answer
}

/// Returns an answer that delivers several replies when it is written.
pub(crate) fn with_replies(replies: Vec<(Name, Reply)>, value: &impl Serialize) -> Answer {
    let mut answer = ok(value);
    answer.body.replies = replies;
    answer
}

/// Combines the answers to a batch into one, each with its status.
pub(crate) fn batch(answers: Vec<Answer>) -> Answer {
    let length: usize = answers
        .iter()
        .map(|answer| answer.body.json.len() + 32)
        .sum();
    let mut bytes = Vec::with_capacity(16 + length);
    let mut replies = Vec::with_capacity(answers.len());
    let mut permit: Option<BudgetPermit> = None;
    bytes.extend_from_slice(b"{\"answers\":[");
    for (number, answer) in answers.into_iter().enumerate() {
        if number > 0 {
            bytes.push(b',');
        }
        bytes.extend_from_slice(b"{\"status\":");
        bytes.extend_from_slice(answer.status.as_str().as_bytes());
        bytes.extend_from_slice(b",\"body\":");
        bytes.extend_from_slice(&answer.body.json);
        bytes.push(b'}');
        replies.extend(answer.body.reply);
        replies.extend(answer.body.replies);
        match (&mut permit, answer.body.permit) {
            (Some(permit), Some(more)) => permit.add(more),
            (None, more) => permit = more,
            (_, None) => {}
        }
    }
    bytes.extend_from_slice(b"]}");
    let mut answer = Answer::new(bytes.into(), JSON);
    answer.body.replies = replies;
    answer.body.permit = permit;
    answer
}

/// Returns an answer with other text than JSON. Browsers must not guess another content type.
pub(crate) fn text(content_type: &'static str, text: impl Into<Cow<'static, str>>) -> Answer {
    let bytes = match text.into() {
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
    };
    let mut answer = Answer::new(bytes, content_type);
    let nosniff = HeaderValue::from_static("nosniff");
    answer.headers.push((X_CONTENT_TYPE_OPTIONS, nosniff));
    answer
}

/// Returns an answer that streams events until the client disconnects.
pub(crate) fn event_stream(stream: Stream) -> Answer {
    let mut answer = Answer::new(Cow::default(), "text/event-stream");
    answer.body.stream = Some(Box::new(stream));
    answer
}

/// Returns the problem document of a refused request.
pub(crate) fn problem(refused: &Rejection) -> Answer {
    let mut answer = problem_document(&refused.document());
    if let Rejection::Method(allow) = refused {
        let allow = HeaderValue::from_static(allow);
        answer.headers.push((ALLOW, allow));
    }
    answer
}

fn problem_document(problem: &Problem) -> Answer {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = json(status, PROBLEM_JSON, problem);
    let retry_after = match problem.problem_type {
        ProblemType::StoreUnavailable => Some(1),
        _ => problem.retry_after.map(|millis| millis.div_ceil(1_000)),
    };
    if problem.problem_type == ProblemType::Unauthorized {
        let bearer = HeaderValue::from_static("Bearer");
        answer.headers.push((WWW_AUTHENTICATE, bearer));
    }
    if let Some(seconds) = retry_after {
        answer.headers.push((RETRY_AFTER, seconds.into()));
    }
    answer
}

fn json(status: StatusCode, content_type: &'static str, value: &impl Serialize) -> Answer {
    Answer {
        status,
        ..Answer::new(to_json(value).into(), content_type)
    }
}

/// Serializes a value.
pub(crate) fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("answers have text keys and do not fail")
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use leasehold::core::{Acquire, Fence, Hash, Mode, Operation};
    use leasehold::engine::{Engine, WaitLimit};
    use leasehold::store;

    use super::*;

    async fn granted(engine: &Engine, names: &[Name]) -> Answer {
        let acquire = Operation::Acquire(Acquire {
            nonce: Hash::of(&[b"nonce"]),
            owner: "me".into(),
            principal: None,
            ttl: std::time::Duration::from_secs(60),
            mode: Mode::Exclusive,
            fence: None,
            floor: Fence::default(),
            in_state: None,
        });
        let mut replies = Vec::new();
        for name in names {
            let reply = engine.perform(name, acquire.clone(), WaitLimit::NONE).await;
            replies.push((name.clone(), reply.unwrap()));
        }
        with_replies(replies, &"granted")
    }

    /// Returns how many of two names are held after the engine has finished its work.
    async fn held_after(answer: impl AsyncFnOnce(Answer)) -> usize {
        let store = store::open("memory:").await.unwrap();
        let engine = Engine::start(store).await.unwrap();
        let names = ["a", "b"].map(|name| Name::lock(name).unwrap());
        answer(granted(&engine, &names).await).await;
        engine.close().await;
        let mut held = 0;
        for name in &names {
            let view = engine.show(name).await.unwrap().unwrap();
            held += view.record.holders.len();
        }
        held
    }

    #[tokio::test]
    async fn grants_are_kept_when_their_answer_is_written() {
        let written = async |answer: Answer| {
            let body = answer.body.collect().await.unwrap();
            assert_eq!(body.to_bytes(), "\"granted\"");
        };
        assert_eq!(held_after(written).await, 2);
    }

    #[tokio::test]
    async fn grants_whose_answer_is_never_written_are_released() {
        assert_eq!(held_after(async |answer| drop(answer)).await, 0);
    }
}
