//! The event stream of a service.

use std::time::Duration;

use hyper::header::{ACCEPT, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};

use super::connection::{Connection, ExchangeError, Streaming};
use super::{ANSWER_TIMEOUT, Remote, ServiceCall, ServiceResponse};
use crate::wire::EventMessage;
use crate::{Error, Result};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How long a service may send nothing. It sends keep-alive comments more often.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(45);
/// The maximum size of an event.
const MAX_EVENT_BYTES: usize = 64 * 1024;

/// The events of a service, from the first [`next`](Self::next) on. After a lost connection, `next` reconnects and
/// resumes after the last event if the service still has the later ones. Otherwise the next event reports that some
/// were missed.
///
/// ```no_run
/// # async fn example() -> leasehold::Result<()> {
/// let service = leasehold::Remote::connect("http://localhost:12345")?;
/// let mut events = service.events("backups/");
/// loop {
///     let message = events.next().await?;
///     println!("{:?} {:?}", message.event, message.name);
/// }
/// # }
/// ```
pub struct RemoteEvents {
    remote: Remote,
    prefix: String,
    /// The id of the last event that was received.
    last_event_id: Option<String>,
    stream: Option<Streaming>,
    unread: Vec<u8>,
}

impl Remote {
    /// Returns the events of names that start with `prefix`.
    pub fn events(&self, prefix: &str) -> RemoteEvents {
        RemoteEvents {
            remote: self.clone(),
            prefix: prefix.to_owned(),
            last_event_id: None,
            stream: None,
            unread: Vec::new(),
        }
    }
}

impl RemoteEvents {
    /// Returns the next event. After [`Error::Unavailable`], which reports a lost or failed connection, the next call
    /// reconnects.
    pub async fn next(&mut self) -> Result<EventMessage> {
        loop {
            if let Some(event) = self.take_event()? {
                match event {
                    Some(message) => return Ok(message),
                    None => continue,
                }
            }
            if self.stream.is_none() {
                self.connect().await?;
            }
            let Some(stream) = &mut self.stream else {
                continue;
            };
            match tokio::time::timeout(SILENCE_TIMEOUT, stream.next()).await {
                Ok(Some(bytes)) => self.unread.extend_from_slice(&bytes),
                lost => {
                    (self.stream, self.unread) = (None, Vec::new());
                    let reason = if lost.is_ok() {
                        "the service closed it"
                    } else {
                        "the service sent nothing for too long"
                    };
                    let url = &self.remote.inner.url;
                    return Err(Error::Unavailable(format!(
                        "the event stream of {url} has ended: {reason}"
                    )));
                }
            }
        }
    }

    /// Returns whether an event was received before, so that a new connection resumes after it.
    pub fn is_resuming(&self) -> bool {
        self.last_event_id.is_some()
    }

    async fn connect(&mut self) -> Result<()> {
        let Remote { inner } = &self.remote;
        let mut target = inner.url.route("/events");
        if !self.prefix.is_empty() {
            target = target.with("prefix", &self.prefix);
        }
        let call = ServiceCall::new(Method::GET, target);
        let connecting = async {
            let mut request = self.remote.request(call)?;
            let headers = request.headers_mut();
            headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
            if let Some(id) = self.last_event_id.as_deref().map(HeaderValue::from_str) {
                let id = id.map_err(|error| ExchangeError::NotSent(error.to_string()))?;
                headers.insert(LAST_EVENT_ID, id);
            }
            let connection: Connection = inner.pool.open(&inner.url).await?;
            connection.stream(request).await
        };
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, connecting).await;
        let answer =
            answer.unwrap_or_else(|_| Err(ExchangeError::Ambiguous("no answer in time".into())));
        let (status, mut stream) = answer.map_err(|lost| match lost {
            ExchangeError::Untrusted(why) => Error::Denied(why),
            ExchangeError::NotSent(why) => Error::Unavailable(why),
            ExchangeError::Ambiguous(why) => {
                Error::Unavailable(format!("{} gave no answer: {why}", inner.url))
            }
        })?;
        if status == StatusCode::OK {
            self.stream = Some(stream);
            return Ok(());
        }
        let mut body = Vec::new();
        while let Some(bytes) = stream.next().await
            && body.len() < MAX_EVENT_BYTES
        {
            body.extend_from_slice(&bytes);
        }
        let refused = ServiceResponse {
            status,
            body: body.into(),
            sent: inner.host.boot_time(),
            repeated: false,
        };
        Err(refused
            .problem(&inner.url)
            .map_or_else(|error| error, Error::from))
    }

    /// Takes the next complete block out of the unread bytes. Returns `Some(None)` if it is not an event.
    fn take_event(&mut self) -> Result<Option<Option<EventMessage>>> {
        let Some(end) = self.unread.windows(2).position(|two| two == b"\n\n") else {
            if self.unread.len() > MAX_EVENT_BYTES {
                self.stream = None;
                return Err(Error::Unavailable(format!(
                    "an event of {} is longer than {MAX_EVENT_BYTES} bytes",
                    self.remote.inner.url
                )));
            }
            return Ok(None);
        };
        let block: Vec<u8> = self.unread.drain(..end + 2).collect();
        let text = String::from_utf8_lossy(&block);
        let mut message = None;
        for line in text.lines() {
            if let Some(id) = line.strip_prefix("id: ") {
                self.last_event_id = Some(id.to_owned());
            } else if let Some(data) = line.strip_prefix("data: ") {
                // Events that this version does not know are skipped.
                message = serde_json::from_str(data).ok();
            }
        }
        Ok(Some(message))
    }
}
