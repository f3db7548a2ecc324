//! What happens at a service.

use std::time::Duration;

use hyper::header::{ACCEPT, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};

use super::connection::{Connection, Lost, Streaming};
use super::{ANSWER, Answered, Ask, Remote};
use crate::wire::Told;
use crate::{Error, Result};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How long a service may be silent: it has something to say more often, even when nothing happens.
const SILENCE: Duration = Duration::from_secs(45);
/// The longest event.
const EVENT_BYTES: usize = 64 * 1024;

/// What happens at a service, from the first [`next`](Self::next) on. A lost connection is made again, and goes on
/// where the last one ended, if the service still knows what came since; otherwise the next event says that some were
/// missed.
///
/// ```no_run
/// # async fn example() -> leasehold::Result<()> {
/// let service = leasehold::Remote::connect("http://localhost:12345")?;
/// let mut events = service.events("backups/");
/// loop {
///     let told = events.next().await?;
///     println!("{:?} {:?}", told.event, told.name);
/// }
/// # }
/// ```
pub struct RemoteEvents {
    remote: Remote,
    prefix: String,
    /// The id of the last event that was heard.
    last: Option<String>,
    stream: Option<Streaming>,
    unread: Vec<u8>,
}

impl Remote {
    /// What happens under names that start with `prefix`.
    pub fn events(&self, prefix: &str) -> RemoteEvents {
        RemoteEvents {
            remote: self.clone(),
            prefix: prefix.to_owned(),
            last: None,
            stream: None,
            unread: Vec::new(),
        }
    }
}

impl RemoteEvents {
    /// The next event. [`Error::Unavailable`] when the connection is lost or cannot be made: whoever asks again
    /// connects again.
    pub async fn next(&mut self) -> Result<Told> {
        loop {
            if let Some(event) = self.take_event()? {
                match event {
                    Some(told) => return Ok(told),
                    None => continue,
                }
            }
            if self.stream.is_none() {
                self.connect().await?;
            }
            let Some(stream) = &mut self.stream else {
                continue;
            };
            match tokio::time::timeout(SILENCE, stream.next()).await {
                Ok(Some(bytes)) => self.unread.extend_from_slice(&bytes),
                lost => {
                    (self.stream, self.unread) = (None, Vec::new());
                    let how = if lost.is_ok() {
                        "has ended"
                    } else {
                        "is silent"
                    };
                    let url = &self.remote.inner.url;
                    return Err(Error::Unavailable(format!("the connection to {url} {how}")));
                }
            }
        }
    }

    /// Whether it was connected before, so that it can go on from there.
    pub fn is_resuming(&self) -> bool {
        self.last.is_some()
    }

    async fn connect(&mut self) -> Result<()> {
        let Remote { inner } = &self.remote;
        let mut target = inner.url.route("/events");
        if !self.prefix.is_empty() {
            target = target.with("prefix", &self.prefix);
        }
        let ask = Ask::new(Method::GET, target);
        let connecting = async {
            let mut request = self.remote.request(ask)?;
            let headers = request.headers_mut();
            headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
            if let Some(last) = self.last.as_deref().map(HeaderValue::from_str) {
                let last = last.map_err(|error| Lost::Unsent(error.to_string()))?;
                headers.insert(LAST_EVENT_ID, last);
            }
            let connection: Connection = inner.pool.open(&inner.url).await?;
            connection.stream(request).await
        };
        let answer = tokio::time::timeout(ANSWER, connecting).await;
        let answer = answer.unwrap_or_else(|_| Err(Lost::Sent("no answer in time".into())));
        let (status, mut stream) = answer.map_err(|lost| match lost {
            Lost::Distrusted(why) => Error::Denied(why),
            Lost::Unsent(why) => Error::Unavailable(why),
            Lost::Sent(why) => Error::Unavailable(format!("{} gave no answer: {why}", inner.url)),
        })?;
        if status == StatusCode::OK {
            self.stream = Some(stream);
            return Ok(());
        }
        let mut body = Vec::new();
        while let Some(bytes) = stream.next().await
            && body.len() < EVENT_BYTES
        {
            body.extend_from_slice(&bytes);
        }
        let refused = Answered {
            status,
            body: body.into(),
            sent: inner.host.boot_time(),
            repeated: false,
        };
        Err(refused
            .problem(&inner.url)
            .map_or_else(|foreign| foreign, Error::from))
    }

    /// Takes one whole block out of what is unread: `Some(None)` if it is no event.
    fn take_event(&mut self) -> Result<Option<Option<Told>>> {
        let Some(end) = self.unread.windows(2).position(|two| two == b"\n\n") else {
            if self.unread.len() > EVENT_BYTES {
                self.stream = None;
                return Err(Error::Unavailable("an event that is too long".into()));
            }
            return Ok(None);
        };
        let block: Vec<u8> = self.unread.drain(..end + 2).collect();
        let text = String::from_utf8_lossy(&block);
        let mut told = None;
        for line in text.lines() {
            if let Some(id) = line.strip_prefix("id: ") {
                self.last = Some(id.to_owned());
            } else if let Some(data) = line.strip_prefix("data: ") {
                // One that this version does not know is none.
                told = serde_json::from_str(data).ok();
            }
        }
        Ok(Some(told))
    }
}
