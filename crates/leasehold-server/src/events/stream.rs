//! One subscriber: what is sent, and when.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::Bytes;
use leasehold::wire::Told;
use tokio::time::{Instant, Sleep};

use super::ring::{Read, written};
use super::{Counted, Filter, Hub, RETRY_MILLIS};

/// What one subscriber is sent. It costs its place in the ring, and nothing for what it has not read.
pub(crate) struct Stream {
    hub: Arc<Hub>,
    number: u64,
    filter: Filter,
    place: u64,
    /// What is sent first.
    greeting: Option<Bytes>,
    heartbeat: Duration,
    alive: Pin<Box<Sleep>>,
    /// Ready once the subscriber's rights end or change.
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
    _counted: Counted,
}

impl Stream {
    /// A subscriber at a place in the ring; `Err`: at this one, having missed some.
    pub(super) fn new(
        hub: Arc<Hub>,
        number: u64,
        filter: Filter,
        place: Result<u64, u64>,
        id: &str,
        heartbeat: Duration,
        counted: Counted,
    ) -> Self {
        if place.is_err() {
            hub.missed();
        }
        // An id without data is no event, but it is where a subscriber goes on that loses its connection now.
        let mut greeting = format!("retry: {RETRY_MILLIS}\n");
        greeting.push_str(&match place {
            Ok(_) => format!("id: {id}\n\n"),
            Err(_) => written(id, &Told::missed()),
        });
        let over = Box::pin(filter.over());
        Self {
            hub,
            number,
            filter,
            place: place.unwrap_or_else(|now| now),
            greeting: Some(greeting.into()),
            over,
            heartbeat,
            alive: Box::pin(tokio::time::sleep(heartbeat)),
            _counted: counted,
        }
    }

    /// The next bytes to send; `None` when the service ends, or the subscriber's rights have changed.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(greeting) = self.greeting.take() {
            return Poll::Ready(Some(greeting));
        }
        if self.over.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        // From before the look, so that nothing falls between the two.
        self.hub.wake_later(self.number, context.waker());
        match self.read() {
            None => return Poll::Ready(None),
            Some(bytes) if !bytes.is_empty() => {
                self.alive.as_mut().reset(Instant::now() + self.heartbeat);
                return Poll::Ready(Some(bytes));
            }
            Some(_) => {}
        }
        ready!(self.alive.as_mut().poll(context));
        self.alive.as_mut().reset(Instant::now() + self.heartbeat);
        // Moves a subscriber on that hears of little: it has missed nothing of what it may not hear.
        let place = self.place;
        let id = self.hub.ring(|ring| ring.id_before(place));
        Poll::Ready(id.map(|id| format!(": alive\nid: {id}\n\n").into()))
    }

    /// What it has not seen and may hear of. `None` when the service ends.
    fn read(&mut self) -> Option<Bytes> {
        let Self {
            hub, place, filter, ..
        } = self;
        hub.ring(|ring| {
            loop {
                match ring.read(*place, filter) {
                    Read::Nothing => return Bytes::new(),
                    Read::Events(bytes, next) => {
                        *place = next;
                        if !bytes.is_empty() {
                            return bytes;
                        }
                    }
                    Read::Missed => {
                        hub.missed();
                        *place = ring.next();
                        return written(&ring.id_before(*place), &Told::missed()).into();
                    }
                }
            }
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.hub.leave(self.number);
    }
}
