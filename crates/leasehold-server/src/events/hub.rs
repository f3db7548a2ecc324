//! Fills the ring, and wakes those who read it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use leasehold::engine::{Engine, Events, Happened, Missed};
use leasehold::measure::Counter;
use leasehold::wire::Told;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::ring::Ring;
use super::{Counted, Filter, Stream};
use crate::history::History;

/// So many subscribers are woken at once, and then the next, so that requests find their way between them.
const AT_ONCE: usize = 2;
/// The pause between them.
const STEP: Duration = Duration::from_millis(1);
/// The shortest time between two rounds: what happens meanwhile is sent together. With many subscribers a round takes
/// longer by itself, and they get more at a time: it is the writes that cost most.
const ROUND: Duration = Duration::from_millis(25);
/// For how long events are kept once nobody subscribes: whoever comes back within it has missed nothing.
const LINGER: Duration = Duration::from_secs(60);

/// Where subscribers meet. It costs nothing while there are none.
pub(crate) struct Hub {
    engine: Engine,
    /// What was. It is told what happens too.
    pub(crate) history: History,
    state: Mutex<State>,
    /// Subscribers that have seen everything, to be woken when there is more.
    waiting: Mutex<HashMap<u64, Waker>>,
    /// Told when the ring has something new.
    fresh: Arc<Notify>,
    told: Counter,
    missed: Counter,
}

/// What it has done, in numbers.
pub(crate) struct Counts {
    pub(crate) subscribers: usize,
    pub(crate) told: u64,
    pub(crate) missed: u64,
}

struct State {
    ring: Ring,
    joined: u64,
    subscribers: usize,
    /// When the last one left.
    left: Instant,
    /// The task that fills the ring, while there is one.
    filling: Option<AbortHandle>,
    closed: bool,
}

impl Hub {
    pub(crate) fn new(engine: Engine) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                ring: Ring::new(0),
                joined: 0,
                subscribers: 0,
                left: Instant::now(),
                filling: None,
                closed: false,
            }),
            waiting: Mutex::default(),
            fresh: Arc::default(),
            told: Counter::default(),
            missed: Counter::default(),
            history: History::new(engine.clone()),
            engine,
        })
    }

    /// One more subscriber, that has seen the event with the id `last`, if it says so.
    pub(crate) fn join(
        hub: &Arc<Self>,
        filter: Filter,
        last: Option<&str>,
        heartbeat: Duration,
        counted: Counted,
    ) -> Stream {
        let mut state = hub.state();
        if state.filling.is_none() && !state.closed {
            state.ring = Ring::new(hub.engine.host().random() as u64);
            let filling = fill(
                Arc::downgrade(hub),
                hub.fresh.clone(),
                hub.engine.subscribe(),
            );
            state.filling = Some(tokio::spawn(filling).abort_handle());
        }
        state.joined += 1;
        state.subscribers += 1;
        let next = state.ring.next();
        let place = match last {
            None => Some(next),
            Some(id) => state.ring.after(id),
        };
        let id = state.ring.id_before(place.unwrap_or(next));
        let number = state.joined;
        drop(state);
        Stream::new(
            Arc::clone(hub),
            number,
            filter,
            place.ok_or(next),
            &id,
            heartbeat,
            counted,
        )
    }

    /// Ends all streams. Whoever comes back is told what it has missed.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        if let Some(filling) = state.filling.take() {
            filling.abort();
        }
        drop(state);
        let waiting = std::mem::take(&mut *self.waiting());
        waiting.into_values().for_each(Waker::wake);
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            subscribers: self.state().subscribers,
            told: self.told.get(),
            missed: self.missed.get(),
        }
    }

    /// A subscriber is told that it has missed some.
    pub(super) fn missed(&self) {
        self.missed.count();
    }

    /// The ring; `None` once everything has ended.
    pub(super) fn ring<T>(&self, read: impl FnOnce(&mut Ring) -> T) -> Option<T> {
        let mut state = self.state();
        (!state.closed).then(|| read(&mut state.ring))
    }

    /// Has a subscriber woken when there is something new.
    pub(super) fn wake_later(&self, number: u64, waker: &Waker) {
        self.waiting().insert(number, waker.clone());
    }

    pub(super) fn leave(&self, number: u64) {
        self.waiting().remove(&number);
        let mut state = self.state();
        state.subscribers -= 1;
        state.left = Instant::now();
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops listening if nobody has subscribed for a while.
    fn stop_if_idle(&self) -> bool {
        let mut state = self.state();
        let idle = state.subscribers == 0 && state.left.elapsed() >= LINGER;
        if idle {
            state.filling = None;
        }
        idle
    }

    /// Tells everybody, a few at a time, whenever there is something new.
    async fn tell(hub: Weak<Self>, fresh: Arc<Notify>) {
        let mut round = Instant::now();
        loop {
            fresh.notified().await;
            tokio::time::sleep_until(round).await;
            round = Instant::now() + ROUND;
            let Some(hub) = hub.upgrade() else { return };
            hub.state().ring.publish();
            // They stay where they are until it is their turn: whoever closes the hub meanwhile wakes them too.
            let waiting: Vec<u64> = hub.waiting().keys().copied().collect();
            for some in waiting.chunks(AT_ONCE) {
                for number in some {
                    let waker = hub.waiting().remove(number);
                    waker.into_iter().for_each(Waker::wake);
                }
                tokio::time::sleep(STEP).await;
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

/// Takes down what the engine tells, until nobody has subscribed for a while.
async fn fill(hub: Weak<Hub>, fresh: Arc<Notify>, mut events: Events) {
    let telling = Hub::tell(hub.clone(), fresh.clone());
    let filling = async {
        while let Some(told) = events.next().await {
            let Some(hub) = hub.upgrade() else { return };
            let (name, told) = match told {
                Ok(Happened { name, event, at }) => {
                    hub.history.happened(&name, &event, at);
                    let told = Told::new(&name, &event, at);
                    (Some(name), told)
                }
                Err(Missed) => (None, Told::missed()),
            };
            hub.state().ring.push(name, &told);
            hub.told.count();
            fresh.notify_one();
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
        () = telling => {}
        () = filling => {}
        () = idle => {}
    }
}

#[cfg(test)]
mod tests {
    use leasehold::core::{Acquire, Fence, Hash, Mode, Name, Operation};
    use leasehold::engine::Patience;
    use leasehold::store;
    use tokio::sync::mpsc;
    use tokio::task::JoinSet;

    use super::*;
    use crate::access::caller::Caller;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[tokio::test]
    async fn a_hub_that_is_closed_in_the_middle_of_a_round_ends_all_streams() {
        let store = store::open("memory:").await.unwrap();
        let engine = Engine::start(store).await.unwrap();
        let hub = Hub::new(engine.clone());
        let (heard, mut first) = mpsc::unbounded_channel();
        let mut reading = JoinSet::new();
        for _ in 0..200 {
            let filter = Filter::new(Caller::default(), "").unwrap();
            let mut stream = Hub::join(&hub, filter, None, HOUR, Counted::default());
            let heard = heard.clone();
            reading.spawn(async move {
                while let Some(bytes) = std::future::poll_fn(|cx| stream.poll_next(cx)).await {
                    heard.send(bytes).unwrap();
                }
            });
        }
        for _ in 0..200 {
            first.recv().await.expect("a greeting");
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
        let _granted = engine.perform(&name, acquire, Patience::NONE).await;
        first.recv().await.expect("the first hears of it");
        hub.close();
        tokio::time::timeout(Duration::from_secs(10), reading.join_all())
            .await
            .expect("all of them end");
    }
}
