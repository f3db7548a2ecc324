//! Reads the body of a request, within limits of size and time.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use leasehold::Error;
use leasehold::wire::ProblemType;
use serde::Deserialize;

use crate::connections::ConnectionSlot;
use crate::rejection::Rejection;

/// How much of a body beyond its limit is read and discarded, so that a client that is still sending gets the answer.
const MAX_DISCARDED: usize = 1024 * 1024;

/// The body of a request.
pub(crate) enum Body {
    /// Not read yet. Its connection counts as busy when it has been read.
    Unread(Incoming, Arc<ConnectionSlot>),
    /// Read completely.
    Buffered(Vec<u8>),
}

impl Body {
    /// Reads the whole body of at most `limit` bytes.
    pub(crate) async fn read(self, limit: usize, timeout: Duration) -> Result<Vec<u8>, Rejection> {
        match self {
            Self::Buffered(bytes) if bytes.len() <= limit => Ok(bytes),
            Self::Buffered(_) => Err(too_large(limit)),
            Self::Unread(body, slot) => {
                let bytes = Box::pin(tokio::time::timeout(timeout, collect(body, limit)))
                    .await
                    .unwrap_or_else(|_| {
                        Err(Rejection::new(
                            ProblemType::RequestTimeout,
                            "the request's body did not arrive in time: send the request again",
                        ))
                    })?;
                slot.begin().await;
                Ok(bytes)
            }
        }
    }

    /// Reads the whole body as text.
    pub(crate) async fn read_text(
        self,
        limit: usize,
        timeout: Duration,
    ) -> Result<String, Rejection> {
        let bytes = self.read(limit, timeout).await?;
        String::from_utf8(bytes).map_err(|_| {
            Error::invalid("the request's body is not UTF-8: encode it as UTF-8").into()
        })
    }
}

async fn collect(mut body: Incoming, limit: usize) -> Result<Vec<u8>, Rejection> {
    let mut bytes = Vec::new();
    let mut total = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            Error::invalid("the request's body is incomplete: send the request again")
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        total += data.len();
        if total <= limit {
            bytes.extend_from_slice(&data);
        } else if total > limit + MAX_DISCARDED {
            break;
        }
    }
    if total > limit {
        return Err(too_large(limit));
    }
    Ok(bytes)
}

fn too_large(limit: usize) -> Rejection {
    let detail = format!("the request's body is too large: send at most {limit} bytes");
    Rejection::new(ProblemType::TooLarge, detail)
}

/// Parses a body as JSON.
pub(crate) fn parse_json<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Error> {
    serde_json::from_str(text)
        .map_err(|error| {
            Error::invalid(format!(
                "the request's body is not the JSON that this route takes: {error}; see `/docs` of the service"
            ))
        })
}
