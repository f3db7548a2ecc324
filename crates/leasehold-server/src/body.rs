//! Reads the body of a request, within limits of size and time.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use leasehold::Error;
use leasehold::wire::Trouble;
use serde::Deserialize;

use crate::connections::ConnectionSlot;
use crate::refused::Refused;

/// How much of a body beyond its limit is read and discarded, so that a client that is still sending gets the answer.
const MAX_DISCARDED: usize = 1024 * 1024;

/// The body of a request.
pub(crate) enum Body {
    /// Not read yet. Its connection counts as busy when it has been read.
    Coming(Incoming, Arc<ConnectionSlot>),
    /// Read completely.
    Here(Vec<u8>),
}

impl Body {
    /// Reads the whole body of at most `limit` bytes.
    pub(crate) async fn read(self, limit: usize, timeout: Duration) -> Result<Vec<u8>, Refused> {
        match self {
            Self::Here(bytes) if bytes.len() <= limit => Ok(bytes),
            Self::Here(_) => Err(too_large(limit)),
            Self::Coming(body, slot) => {
                let bytes = Box::pin(tokio::time::timeout(timeout, collect(body, limit)))
                    .await
                    .unwrap_or_else(|_| {
                        Err(Refused::new(
                            Trouble::RequestTimeout,
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
    ) -> Result<String, Refused> {
        let bytes = self.read(limit, timeout).await?;
        String::from_utf8(bytes).map_err(|_| {
            Error::invalid("the request's body is not UTF-8: encode it as UTF-8").into()
        })
    }
}

async fn collect(mut body: Incoming, limit: usize) -> Result<Vec<u8>, Refused> {
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

fn too_large(limit: usize) -> Refused {
    let detail = format!("the request's body is too large: send at most {limit} bytes");
    Refused::new(Trouble::TooLarge, detail)
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
