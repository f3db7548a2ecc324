//! Fills the ring with events, and wakes the subscribers that read it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use leasehold::engine::{Engine, EngineEvent, Events, EventsMissed};
use leasehold::measure::Counter;
use leasehold::wire::EventMessage;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::ring::Ring;
use super::{Filter, Stream, SubscriptionGuard};
use crate::history::History;

/// How many subscribers are woken at once. Requests are served between these groups.
const WAKE_GROUP: usize = 2;
/// The pause between two groups.
const WAKE_PAUSE: Duration = Duration::from_millis(1);
/// The shortest time between two rounds: the events of a round are sent in one write, because writes cost most. With
/// many subscribers a round takes longer, and its writes become larger.
const MIN_ROUND: Duration = Duration::from_millis(25);
/// How long events are kept without subscribers: one that reconnects within it has missed nothing.
const LINGER: Duration = Duration::from_secs(60);

/// Publishes events to all subscribers. It costs nothing while there are none.
pub(crate) struct Hub {
    engine: Engine,
    /// Recent hold periods, updated by events too.
    pub(crate) history: History,
    state: Mutex<State>,
    /// The wakers of subscribers that have read everything.
    wakers: Mutex<HashMap<u64, Waker>>,
    /// Notified when the ring has a new event.
    new_event: Arc<Notify>,
    published: Counter,
    missed: Counter,
}

/// Counters for the metrics.
pub(crate) struct Counts {
    pub(crate) subscribers: usize,
    pub(crate) published: u64,
    pub(crate) missed: u64,
}

struct State {
    ring: Ring,
    /// The number of the latest subscriber.
    last_number: u64,
    subscribers: usize,
    /// When the last subscriber left.
    idle_since: Instant,
    /// The task that fills the ring, if it runs.
    filling: Option<AbortHandle>,
    closed: bool,
}

impl Hub {
    pub(crate) fn new(engine: Engine) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                ring: Ring::new(0),
                last_number: 0,
                subscribers: 0,
                idle_since: Instant::now(),
                filling: None,
                closed: false,
            }),
            wakers: Mutex::default(),
            new_event: Arc::default(),
            published: Counter::default(),
            missed: Counter::default(),
            history: History::new(engine.clone()),
            engine,
        })
    }

    /// Adds a subscriber. `last_event_id` is the id of the last event that it has received, if it sent one.
    pub(crate) fn subscribe(
        hub: &Arc<Self>,
        filter: Filter,
        last_event_id: Option<&str>,
        heartbeat: Duration,
        guard: SubscriptionGuard,
    ) -> Stream {
        let mut state = hub.state();
        if state.filling.is_none() && !state.closed {
            state.ring = Ring::new(hub.engine.host().random() as u64);
            let filling = fill(
                Arc::downgrade(hub),
                hub.new_event.clone(),
                hub.engine.subscribe(),
            );
            state.filling = Some(tokio::spawn(filling).abort_handle());
        }
        state.last_number += 1;
        state.subscribers += 1;
        let next = state.ring.next();
        let position = match last_event_id {
            None => Some(next),
            Some(id) => state.ring.position_after(id),
        };
        let id = state.ring.id_before(position.unwrap_or(next));
        let number = state.last_number;
        drop(state);
        Stream::new(
            Arc::clone(hub),
            number,
            filter,
            position.ok_or(next),
            &id,
            heartbeat,
            guard,
        )
    }

    /// Ends all streams. A subscriber that reconnects elsewhere is sent `missed`.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        if let Some(filling) = state.filling.take() {
            filling.abort();
        }
        drop(state);
        let wakers = std::mem::take(&mut *self.wakers());
        wakers.into_values().for_each(Waker::wake);
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            subscribers: self.state().subscribers,
            published: self.published.get(),
            missed: self.missed.get(),
        }
    }

    /// Counts a `missed` message.
    pub(super) fn count_missed(&self) {
        self.missed.count();
    }

    /// Runs `read` on the ring. Returns `None` if the hub is closed.
    pub(super) fn with_ring<T>(&self, read: impl FnOnce(&mut Ring) -> T) -> Option<T> {
        let mut state = self.state();
        (!state.closed).then(|| read(&mut state.ring))
    }

    /// Registers a subscriber's waker for the next round.
    pub(super) fn register(&self, number: u64, waker: &Waker) {
        self.wakers().insert(number, waker.clone());
    }

    pub(super) fn unsubscribe(&self, number: u64) {
        self.wakers().remove(&number);
        let mut state = self.state();
        state.subscribers -= 1;
        state.idle_since = Instant::now();
    }

    fn wakers(&self) -> MutexGuard<'_, HashMap<u64, Waker>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the filling task as stopped if there were no subscribers for [`LINGER`]. Returns whether it did.
    fn stop_if_idle(&self) -> bool {
        let mut state = self.state();
        let is_idle = state.subscribers == 0 && state.idle_since.elapsed() >= LINGER;
        if is_idle {
            state.filling = None;
        }
        is_idle
    }

    /// Publishes new events in rounds, and wakes the subscribers in small groups.
    async fn publish(hub: Weak<Self>, new_event: Arc<Notify>) {
        let mut next_round = Instant::now();
        loop {
            new_event.notified().await;
            tokio::time::sleep_until(next_round).await;
            next_round = Instant::now() + MIN_ROUND;
            let Some(hub) = hub.upgrade() else { return };
            hub.state().ring.publish();
            // Each waker stays registered until its turn, so that `close` during a round wakes it too.
            let numbers: Vec<u64> = hub.wakers().keys().copied().collect();
            for group in numbers.chunks(WAKE_GROUP) {
                for number in group {
                    let waker = hub.wakers().remove(number);
                    waker.into_iter().for_each(Waker::wake);
                }
                tokio::time::sleep(WAKE_PAUSE).await;
            }
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if let Some(filling) = self.state().filling.take() {
            filling.abort();
        }
    }
}

/// Adds the engine's events to the ring, until there were no subscribers for [`LINGER`].
async fn fill(hub: Weak<Hub>, new_event: Arc<Notify>, mut events: Events) {
    let publishing = Hub::publish(hub.clone(), new_event.clone());
    let filling = async {
        while let Some(event) = events.next().await {
            let Some(hub) = hub.upgrade() else { return };
            let (name, message) = match event {
                Ok(EngineEvent { name, event, at }) => {
                    hub.history.record_event(&name, &event, at);
                    let message = EventMessage::new(&name, &event, at);
                    (Some(name), message)
                }
                Err(EventsMissed) => (None, EventMessage::missed()),
            };
            hub.state().ring.push(name, &message);
            hub.published.count();
            new_event.notify_one();
        }
    };
    let idle = async {
        loop {
            tokio::time::sleep(LINGER / 4).await;
            match hub.upgrade() {
                Some(hub) if !hub.stop_if_idle() => {}
                _ => return,
            }
        }
    };
    tokio::select! {
        () = publishing => {}
        () = filling => {}
        () = idle => {}
    }
}

#[cfg(test)]
mod tests {
    use leasehold::core::{Acquire, Fence, Hash, Mode, Name, Operation};
    use leasehold::engine::WaitLimit;
    use leasehold::store;
    use tokio::sync::mpsc;
    use tokio::task::JoinSet;

    use super::*;
    use crate::access::caller::Caller;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[tokio::test]
    async fn closing_the_hub_during_a_round_ends_all_streams() {
        let store = store::open("memory:").await.unwrap();
        let engine = Engine::start(store).await.unwrap();
        let hub = Hub::new(engine.clone());
        let (sender, mut received) = mpsc::unbounded_channel();
        let mut reading = JoinSet::new();
        for _ in 0..200 {
            let filter = Filter::new(Caller::default(), "").unwrap();
            let guard = SubscriptionGuard::default();
            let mut stream = Hub::subscribe(&hub, filter, None, HOUR, guard);
            let sender = sender.clone();
            reading.spawn(async move {
                while let Some(bytes) = std::future::poll_fn(|cx| stream.poll_next(cx)).await {
                    sender.send(bytes).unwrap();
                }
            });
        }
        for _ in 0..200 {
            received.recv().await.expect("a greeting");
        }
        let name = Name::lock("a").unwrap();
        let acquire = Operation::Acquire(Acquire {
            nonce: Hash::of(&[b"nonce"]),
            owner: "me".into(),
            principal: None,
            ttl: HOUR,
            mode: Mode::Exclusive,
            fence: None,
            floor: Fence::default(),
            in_state: None,
        });
        let _granted = engine.perform(&name, acquire, WaitLimit::NONE).await;
        received.recv().await.expect("the event");
        hub.close();
        tokio::time::timeout(Duration::from_secs(10), reading.join_all())
            .await
            .expect("all streams end");
    }
}
