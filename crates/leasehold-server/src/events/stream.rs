//! Sends events and heartbeats to one subscriber.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::Bytes;
use leasehold::wire::EventMessage;
use tokio::time::{Instant, Sleep};

use super::ring::{ReadResult, encode};
use super::{Filter, Hub, RETRY_MILLIS, SubscriptionGuard};

/// The body of one subscriber's answer. It keeps a position in the ring, and no events.
pub(crate) struct Stream {
    hub: Arc<Hub>,
    number: u64,
    filter: Filter,
    position: u64,
    /// The first bytes, until they are sent.
    greeting: Option<Bytes>,
    heartbeat: Duration,
    next_heartbeat: Pin<Box<Sleep>>,
    /// Completes when the subscriber's rights end or change.
    rights_ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    _guard: SubscriptionGuard,
}

impl Stream {
    /// Returns a stream from a position in the ring. `Err` is the position of a subscriber that missed events.
    pub(super) fn new(
        hub: Arc<Hub>,
        number: u64,
        filter: Filter,
        position: Result<u64, u64>,
        id: &str,
        heartbeat: Duration,
        guard: SubscriptionGuard,
    ) -> Self {
        if position.is_err() {
            hub.count_missed();
        }
        // An id without data is no event, but a subscriber that loses its connection now resumes after it.
        let mut greeting = format!("retry: {RETRY_MILLIS}\n");
        greeting.push_str(&match position {
            Ok(_) => format!("id: {id}\n\n"),
            Err(_) => encode(id, &EventMessage::missed()),
        });
        let rights_ended = Box::pin(filter.rights_ended());
        Self {
            hub,
            number,
            filter,
            position: position.unwrap_or_else(|now| now),
            greeting: Some(greeting.into()),
            rights_ended,
            heartbeat,
            next_heartbeat: Box::pin(tokio::time::sleep(heartbeat)),
            _guard: guard,
        }
    }

    /// Returns the next bytes to send; `None` when the service ends or the subscriber's rights have changed.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(greeting) = self.greeting.take() {
            return Poll::Ready(Some(greeting));
        }
        if self.rights_ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        // Before reading, so that an event that is published after it wakes this task.
        self.hub.register(self.number, context.waker());
        match self.read() {
            None => return Poll::Ready(None),
            Some(bytes) if !bytes.is_empty() => {
                self.schedule_heartbeat();
                return Poll::Ready(Some(bytes));
            }
            Some(_) => {}
        }
        ready!(self.next_heartbeat.as_mut().poll(context));
        self.schedule_heartbeat();
        // Its id lets a subscriber whose filter admits few events reconnect without having missed any.
        let position = self.position;
        let id = self.hub.with_ring(|ring| ring.id_before(position));
        Poll::Ready(id.map(|id| format!(": alive\nid: {id}\n\n").into()))
    }

    fn schedule_heartbeat(&mut self) {
        let next = Instant::now() + self.heartbeat;
        self.next_heartbeat.as_mut().reset(next);
    }

    /// Returns the next events that the filter admits; `None` when the service ends.
    fn read(&mut self) -> Option<Bytes> {
        let Self {
            hub,
            position,
            filter,
            ..
        } = self;
        hub.with_ring(|ring| {
            loop {
                match ring.read(*position, filter) {
                    ReadResult::Empty => return Bytes::new(),
                    ReadResult::Events(bytes, next) => {
                        *position = next;
                        if !bytes.is_empty() {
                            return bytes;
                        }
                    }
                    ReadResult::Evicted => {
                        hub.count_missed();
                        *position = ring.next();
                        return encode(&ring.id_before(*position), &EventMessage::missed()).into();
                    }
                }
            }
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.hub.unsubscribe(self.number);
    }
}
