//! Events that subscribers receive.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::Result;
use leasehold::core::{EndReason, Event, Name};
use leasehold::engine::{Config, Engine, Events};
use leasehold::host::Machine;
use leasehold::store::memory::Memory;
use leasehold::store::{Answer, Changes, Facts, Page, Query, Store, Stored, Swapped, Write};
use tokio::sync::mpsc;

use crate::support::{acquire, engine, memory, name, outcome, release, take};

/// A store that hints at every write.
struct HintingStore {
    memory: Memory,
    listeners: std::sync::Mutex<Vec<mpsc::Sender<Name>>>,
}

impl HintingStore {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            memory: Memory::new(),
            listeners: std::sync::Mutex::default(),
        })
    }
}

#[async_trait]
impl Store for HintingStore {
    fn facts(&self) -> Facts {
        self.memory.facts()
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        self.memory.load(names).await
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        let names: Vec<_> = writes.iter().map(|write| write.name.clone()).collect();
        let swapped = self.memory.swap(writes).await;
        for listener in &*self.listeners.lock().unwrap() {
            for name in &names {
                listener.try_send(name.clone()).unwrap();
            }
        }
        swapped
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        self.memory.find(query).await
    }

    fn changes(&self) -> Option<Changes> {
        let (sender, changes) = mpsc::channel(1_024);
        self.listeners.lock().unwrap().push(sender);
        Some(changes)
    }
}

async fn next(events: &mut Events) -> (Name, Event) {
    let event = tokio::time::timeout(Duration::from_secs(30), events.next());
    let event = event.await.expect("in time").unwrap().expect("none missed");
    (event.name, event.event)
}

fn fence(event: &Event) -> (&'static str, u64) {
    match event {
        Event::Granted(holder) => ("granted", holder.fence.get()),
        Event::Renewed(holder) => ("renewed", holder.fence.get()),
        Event::Ended { fence, how, .. } => match how {
            Some(EndReason::Released) => ("released", fence.get()),
            Some(EndReason::Expired) => ("expired", fence.get()),
            _ => ("ended", fence.get()),
        },
        Event::Updated { .. } => ("updated", 0),
        Event::Purged => ("purged", 0),
    }
}

#[tokio::test]
async fn changes_by_another_engine_are_published_if_the_store_hints() {
    let store = HintingStore::new();
    let (here, there) = (engine(store.clone()).await, engine(store).await);
    let mut events = here.subscribe();
    for turn in ["first", "second"] {
        let job = name("job");
        let grant = take(&there, &job, turn).await;
        let (event_name, event) = next(&mut events).await;
        assert_eq!(event_name, job);
        assert_eq!(fence(&event), ("granted", grant.fence.get()));
        outcome(&there, &job, release(grant.fence)).await;
        let (_, event) = next(&mut events).await;
        assert_eq!(fence(&event), ("released", grant.fence.get()));
    }
    // An engine's own write comes back as a hint, but is published once.
    let own = take(&here, &name("own"), "me").await;
    let other = take(&here, &name("other"), "me").await;
    for grant in [own, other] {
        let (_, event) = next(&mut events).await;
        assert_eq!(fence(&event), ("granted", grant.fence.get()));
    }
}

#[tokio::test]
async fn expiry_is_published_once_without_any_operation() {
    let engine = memory().await;
    let mut events = engine.subscribe();
    let job = name("job");
    let short = acquire("me", Duration::from_millis(100));
    outcome(&engine, &job, short).await;
    let (_, granted) = next(&mut events).await;
    let (_, expired) = next(&mut events).await;
    assert_eq!(fence(&expired), ("expired", fence(&granted).1));
    let grant = take(&engine, &job, "next").await;
    let (_, event) = next(&mut events).await;
    assert_eq!(fence(&event), ("granted", grant.fence.get()));
}

#[tokio::test]
async fn scan_publishes_changes_by_another_engine_without_hints() {
    let store = Arc::new(Memory::new());
    let (here, there) = (engine(store.clone()).await, engine(store).await);
    take(&there, &name("old"), "me").await;
    let mut events = here.subscribe();
    here.scan_for_changes("", true).await.unwrap();
    let grant = take(&there, &name("new"), "me").await;
    here.scan_for_changes("", false).await.unwrap();
    here.scan_for_changes("", false).await.unwrap();
    let (event_name, event) = next(&mut events).await;
    assert_eq!(event_name, name("new"));
    assert_eq!(fence(&event), ("granted", grant.fence.get()));
    outcome(&there, &event_name, release(grant.fence)).await;
    here.scan_for_changes("", false).await.unwrap();
    let (_, event) = next(&mut events).await;
    assert_eq!(fence(&event), ("released", grant.fence.get()));
}

#[tokio::test]
async fn lagging_subscriber_is_notified_and_continues() {
    let mut config = Config::default();
    config.events = 4;
    let store = Arc::new(Memory::new());
    let engine = Engine::start_with(store, Machine::shared(), config).await;
    let engine = engine.unwrap();
    let mut events = engine.subscribe();
    for number in 0..100 {
        take(&engine, &name(&format!("{number}")), "me").await;
    }
    while events.next().await.unwrap().is_ok() {}
    let last = take(&engine, &name("last"), "me").await;
    let last_event = async {
        loop {
            if let Ok(event) = events.next().await.unwrap()
                && event.name == name("last")
            {
                return event.event;
            }
        }
    };
    assert_eq!(fence(&last_event.await), ("granted", last.fence.get()));
}
