//! Answers: JSON whose grant becomes the caller's only when its first byte is about to be written.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use hyper::body::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use leasehold::engine::Reply;
use leasehold::wire::{Problem, Trouble};
use serde::Serialize;

use crate::route::Refused;

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    json: Bytes,
    /// The reply that the answer tells. Dropped with an answer that nobody reads, it gives a fresh grant back.
    reply: Option<Reply>,
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(reply) = self.reply.take() {
            let _ = reply.take();
        }
        let json = std::mem::take(&mut self.json);
        Poll::Ready((!json.is_empty()).then(|| Ok(Frame::data(json))))
    }

    fn is_end_stream(&self) -> bool {
        self.json.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.json.len() as u64)
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

pub(crate) type Answer = Response<AnswerBody>;

/// An answer that rests on nothing.
pub(crate) fn ok(value: &impl Serialize) -> Answer {
    json(StatusCode::OK, JSON, value)
}

/// An answer that tells a reply, and takes it only when it is written.
pub(crate) fn telling(reply: Reply, value: &impl Serialize) -> Answer {
    let mut answer = ok(value);
    answer.body_mut().reply = Some(reply);
    answer
}

/// A problem document.
pub(crate) fn problem(refused: &Refused) -> Answer {
    match refused {
        Refused::Error(error) => problem_document(&error.into()),
        Refused::Problem(problem) => problem_document(problem),
        Refused::Method(allow) => {
            let detail = format!("this route takes {allow}");
            let mut answer = problem_document(&Problem::new(Trouble::MethodNotAllowed, detail));
            answer
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static(allow));
            answer
        }
    }
}

fn problem_document(problem: &Problem) -> Answer {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = json(status, PROBLEM_JSON, problem);
    let retry_after = match problem.trouble {
        Trouble::StoreUnavailable => Some(1),
        _ => problem.retry_after.map(|millis| millis.div_ceil(1_000)),
    };
    if let Some(seconds) = retry_after {
        answer.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    answer
}

fn json(status: StatusCode, content_type: HeaderValue, value: &impl Serialize) -> Answer {
    let mut bytes = Vec::with_capacity(256);
    serde_json::to_writer(&mut bytes, value).expect("answers have text keys and do not fail");
    let mut answer = Response::new(AnswerBody {
        json: bytes.into(),
        reply: None,
    });
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, NO_STORE);
    answer
}
