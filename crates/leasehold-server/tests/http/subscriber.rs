//! A subscriber of `/events`.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::{Server, TIMEOUT};

/// A subscriber that reads the raw stream.
pub(crate) struct Subscriber {
    stream: TcpStream,
    text: String,
}

/// One event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) event: String,
    pub(crate) data: Value,
}

impl Subscriber {
    /// Subscribes, and returns once the answer has begun.
    pub(crate) async fn new(server: &Server, query: &str, last: Option<&str>) -> Self {
        let last = last.map_or(String::new(), |id| format!("Last-Event-ID: {id}\r\n"));
        Self::with(server, query, &last).await
    }

    /// Subscribes with header lines, each ended by `\r\n`.
    pub(crate) async fn with(server: &Server, query: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // A client of HTTP/1.0 receives the body without chunks.
        let head = format!("GET /events{query} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let text = String::new();
        let mut subscriber = Self { stream, text };
        let head = subscriber.until("\r\n\r\n").await.expect("an answer");
        assert!(head.starts_with("HTTP/1.0 200"), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        assert!(head.contains("cache-control: no-store"), "{head}");
        subscriber
    }

    /// Reads up to and including `end`. `None` if the stream ends before.
    async fn until(&mut self, end: &str) -> Option<String> {
        let read = async {
            loop {
                if let Some(at) = self.text.find(end) {
                    let rest = self.text.split_off(at + end.len());
                    return Some(std::mem::replace(&mut self.text, rest));
                }
                let mut bytes = vec![0; 64 * 1024];
                let count = self.stream.read(&mut bytes).await.unwrap_or(0);
                if count == 0 {
                    return None;
                }
                self.text
                    .push_str(std::str::from_utf8(&bytes[..count]).unwrap());
            }
        };
        tokio::time::timeout(TIMEOUT, read).await.expect("in time")
    }

    /// Reads the next block. Returns its text, and the event in it.
    pub(crate) async fn block(&mut self) -> Option<(String, Event)> {
        let text = self.until("\n\n").await?;
        let field = |name: &str| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value.unwrap_or_default().to_owned()
        };
        let data = serde_json::from_str(&field("data")).unwrap_or(Value::Null);
        let (id, event) = (field("id"), field("event"));
        Some((text.clone(), Event { id, event, data }))
    }

    /// Returns the next event. `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            match self.block().await {
                Some((_, event)) if event.event.is_empty() => {}
                other => return other.map(|(_, event)| event),
            }
        }
    }

    /// Checks that the next event is of this kind and name.
    #[track_caller]
    pub(crate) fn expect(
        &mut self,
        event: &str,
        name: &str,
    ) -> impl Future<Output = Event> + use<'_> {
        let (event, name) = (event.to_owned(), name.to_owned());
        let caller = std::panic::Location::caller();
        async move {
            let next = self.next().await.expect("the stream continues");
            let actual = (&*next.event, next.data["name"].as_str());
            assert_eq!(actual, (&*event, Some(&*name)), "{caller}: {next:?}");
            assert_eq!(next.data["event"], next.event);
            next
        }
    }
}
