//! Who shares a commit with whom.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::Result;
use leasehold::core::{BootTime, Fence, Name, Operation, Outcome, Renew, Time};
use leasehold::engine::{Config, Engine, Patience, Stats};
use leasehold::host::{Host, Machine};
use leasehold::store::memory::Memory;
use leasehold::store::{Answer, Facts, Page, Query, Store, Stored, Swapped, Write};
use tokio::task::JoinHandle;

use crate::support::{self, LONG, acquire, granted, name, outcome, release};

/// A clock that moves when it is told to.
struct Still(AtomicU64);

impl Still {
    fn pass(&self, span: Duration) {
        let micros = u64::try_from(span.as_micros()).unwrap();
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Host for Still {
    fn boot_time(&self) -> BootTime {
        BootTime::from_micros(self.0.load(Ordering::SeqCst))
    }

    fn random(&self) -> u128 {
        Machine.random()
    }
}

/// How long a disk waits to be told to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A store whose commits are dear.
struct Dear {
    memory: Arc<Memory>,
    /// What each commit waits for, unless it waits for nothing.
    disk: Option<Mutex<mpsc::Receiver<()>>>,
}

impl Dear {
    fn on(memory: Memory) -> Self {
        let memory = Arc::new(memory);
        Self { memory, disk: None }
    }
}

#[async_trait]
impl Store for Dear {
    fn facts(&self) -> Facts {
        self.memory.facts()
    }

    fn blocks(&self) -> bool {
        true
    }

    fn is_dear(&self) -> bool {
        true
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        self.memory.load(names).await
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        if let Some(disk) = &self.disk {
            let told = disk.lock().unwrap().recv_timeout(PATIENCE);
            told.expect("whoever is to tell it is heard meanwhile");
        }
        self.memory.swap(writes).await
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        self.memory.find(query).await
    }
}

async fn start() -> (Arc<Still>, Engine) {
    let host = Arc::new(Still(AtomicU64::new(3_600_000_000)));
    let epoch = Time::from_micros(1_800_000_000_000_000);
    let store = Arc::new(Dear::on(Memory::with_clock(host.clone(), epoch)));
    let engine = Engine::start_with(store, host.clone(), Config::default()).await;
    (host, engine.unwrap())
}

async fn take(engine: &Engine, name: &Name, ttl: Duration) -> Fence {
    let reply = engine.perform(name, acquire("me", ttl), Patience::NONE);
    granted(reply.await).fence
}

fn renew(engine: &Engine, name: &Name, fence: Fence) -> JoinHandle<Outcome> {
    let renew = Renew {
        fence,
        principal: None,
        ttl: None,
    };
    ask(engine, name, Operation::Renew(renew))
}

async fn queued(engine: &Engine, count: u64) {
    until(engine, |stats| stats.queued == count).await;
}

fn is_renewed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Renewed(_))
}

#[tokio::test]
async fn renewals_that_come_soon_after_one_another_share_a_commit() {
    let (host, engine) = start().await;
    let names = ["a", "b", "c"].map(name);
    let mut fences = Vec::new();
    for name in &names {
        fences.push(take(&engine, name, LONG).await);
    }
    // The first has nobody to wait for.
    assert!(is_renewed(
        &renew(&engine, &names[0], fences[0]).await.unwrap()
    ));
    let before = engine.stats().swaps;
    let second = renew(&engine, &names[1], fences[1]);
    queued(&engine, 1).await;
    let third = renew(&engine, &names[2], fences[2]);
    queued(&engine, 2).await;
    assert_eq!(engine.stats().swaps, before);
    host.pass(Duration::from_millis(10));
    for renewal in [second, third] {
        assert!(is_renewed(&renewal.await.unwrap()));
    }
    assert_eq!(engine.stats().swaps, before + 1);
}

#[tokio::test]
async fn renewals_come_along_with_whatever_is_in_a_hurry() {
    let (_host, engine) = start().await;
    let names = ["a", "b"].map(name);
    let mut fences = Vec::new();
    for name in &names {
        fences.push(take(&engine, name, LONG).await);
    }
    assert!(is_renewed(
        &renew(&engine, &names[0], fences[0]).await.unwrap()
    ));
    let before = engine.stats().swaps;
    let patient = renew(&engine, &names[1], fences[1]);
    queued(&engine, 1).await;
    // Even if it is the same lease that is let go: in order.
    let released = outcome(&engine, &names[1], release(fences[1])).await;
    assert_eq!(released, Outcome::Released);
    assert!(is_renewed(&patient.await.unwrap()));
    assert_eq!(engine.stats().swaps, before + 1);
}

#[tokio::test]
async fn others_are_heard_while_a_commit_waits_for_the_disk() {
    let (answer, disk) = mpsc::channel();
    let store = Dear {
        memory: Arc::default(),
        disk: Some(Mutex::new(disk)),
    };
    let engine = support::engine(Arc::new(store)).await;
    let takes = |called: &str| {
        let (engine, name) = (engine.clone(), name(called));
        tokio::spawn(async move { take(&engine, &name, LONG).await })
    };
    let first = takes("a");
    while engine.stats().swaps == 0 {
        tokio::task::yield_now().await;
    }
    // These come during its commit, and share the next.
    let others = ["b", "c"].map(takes);
    queued(&engine, 2).await;
    answer.send(()).unwrap();
    first.await.unwrap();
    answer.send(()).unwrap();
    for other in others {
        other.await.unwrap();
    }
    assert_eq!(engine.stats().swaps, 2);
}

#[tokio::test]
async fn a_short_lease_is_renewed_at_once() {
    let (_host, engine) = start().await;
    let name = name("short");
    let fence = take(&engine, &name, Duration::from_millis(900)).await;
    for _ in 0..3 {
        assert!(is_renewed(&renew(&engine, &name, fence).await.unwrap()));
    }
}

/// Names of a store that somebody has had before.
async fn used(store: Arc<dyn Store>) -> [Name; 5] {
    let names = ["a", "b", "c", "d", "e"].map(name);
    let earlier = support::engine(store).await;
    for name in &names {
        let fence = take(&earlier, name, LONG).await;
        assert_eq!(
            outcome(&earlier, name, release(fence)).await,
            Outcome::Released
        );
    }
    names
}

/// Takes all but the last of them. After so many wrong guesses the engine does not guess any more that a name it has never
/// seen is new.
async fn take_four(engine: &Engine, names: &[Name; 5]) -> Vec<Fence> {
    let mut fences = Vec::new();
    for name in &names[..4] {
        fences.push(take(engine, name, LONG).await);
    }
    fences
}

/// An engine that has taken four of these names, on a store whose disk answers when it is told to, and not alone of late.
async fn on_a_slow_disk(
    memory: Arc<Memory>,
    names: &[Name; 5],
) -> (Engine, Vec<Fence>, mpsc::Sender<()>) {
    let (answer, disk) = mpsc::channel();
    let store = Dear {
        memory,
        disk: Some(Mutex::new(disk)),
    };
    let engine = support::engine(Arc::new(store)).await;
    // Each loses first, and is then written; and two have company, so that the next is not taken to be alone.
    (0..9).for_each(|_| answer.send(()).unwrap());
    let fences = take_four(&engine, names).await;
    let two = [0, 1].map(|place| (names[place].clone(), release(fences[place])));
    for reply in engine.perform_all(two.into(), None).await {
        assert_eq!(reply.unwrap().take().0, Outcome::Released);
    }
    assert_eq!(engine.stats().swaps, 9);
    (engine, fences, answer)
}

fn ask(engine: &Engine, name: &Name, operation: Operation) -> JoinHandle<Outcome> {
    let (engine, name) = (engine.clone(), name.clone());
    tokio::spawn(async move { outcome(&engine, &name, operation).await })
}

/// Waits until the engine has done so much.
async fn until(engine: &Engine, done: impl Fn(Stats) -> bool) {
    while !done(engine.stats()) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_name_is_loaded_while_a_commit_waits_for_the_disk() {
    let memory: Arc<Memory> = Arc::default();
    let names = used(memory.clone()).await;
    let (engine, fences, answer) = on_a_slow_disk(memory, &names).await;
    let before = engine.stats();
    let hanging = ask(&engine, &names[2], release(fences[2]));
    until(&engine, |stats| stats.swaps > before.swaps).await;
    let loaded = ask(&engine, &names[4], acquire("me", LONG));
    until(&engine, |stats| stats.loads > before.loads).await;
    (0..2).for_each(|_| answer.send(()).unwrap());
    assert_eq!(hanging.await.unwrap(), Outcome::Released);
    let loaded = loaded.await.unwrap();
    assert!(matches!(loaded, Outcome::Granted(_)), "{loaded:?}");
}

#[tokio::test]
async fn a_refusal_does_not_wait_for_the_disk() {
    let memory: Arc<Memory> = Arc::default();
    let names = used(memory.clone()).await;
    let other = support::engine(memory.clone()).await;
    take(&other, &names[4], LONG).await;
    let (engine, fences, answer) = on_a_slow_disk(memory, &names).await;
    let before = engine.stats();
    let hanging = ask(&engine, &names[2], release(fences[2]));
    until(&engine, |stats| stats.swaps > before.swaps).await;
    // Both are ready when the next commit begins, and only one of them needs it.
    let refused = ask(&engine, &names[4], acquire("somebody else", LONG));
    until(&engine, |stats| stats.loads > before.loads).await;
    let written = ask(&engine, &names[3], release(fences[3]));
    queued(&engine, 2).await;
    answer.send(()).unwrap();
    assert_eq!(hanging.await.unwrap(), Outcome::Released);
    let refused = refused.await.unwrap();
    assert!(matches!(refused, Outcome::Held(_)), "{refused:?}");
    answer.send(()).unwrap();
    assert_eq!(written.await.unwrap(), Outcome::Released);
}

/// Notes which threads wake it.
#[derive(Default)]
struct WokenBy(Mutex<Vec<ThreadId>>);

impl Wake for WokenBy {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().push(std::thread::current().id());
    }
}

#[tokio::test]
async fn those_who_share_a_commit_are_told_on_their_own_thread() {
    let (_host, engine) = start().await;
    let names = ["a", "b", "c"].map(name);
    let woken: Arc<WokenBy> = Arc::default();
    let waker = Waker::from(woken.clone());
    let ask = |name| Box::pin(engine.perform(name, acquire("me", LONG), Patience::NONE));
    let mut asking: Vec<_> = names.iter().map(ask).collect();
    let mut replies = Vec::new();
    while !asking.is_empty() {
        asking.retain_mut(|asked| {
            match asked.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(reply) => replies.push(reply),
                Poll::Pending => return true,
            }
            false
        });
        tokio::task::yield_now().await;
    }
    replies.into_iter().for_each(|reply| drop(granted(reply)));
    let (here, woken) = (std::thread::current().id(), woken.0.lock().unwrap());
    assert_eq!(*woken, [here; 3]);
}

#[tokio::test]
async fn names_that_are_loaded_first_share_a_commit_with_the_others() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let names = used(store.clone()).await;
    let engine = support::engine(store).await;
    let fences = take_four(&engine, &names).await;
    let before = engine.stats();
    let asked = vec![
        (names[0].clone(), release(fences[0])),
        (names[4].clone(), acquire("me", LONG)),
    ];
    let mut replies = engine.perform_all(asked, None).await.into_iter();
    let (released, taken) = (replies.next().unwrap(), replies.next().unwrap());
    assert_eq!(released.unwrap().take().0, Outcome::Released);
    granted(taken);
    let after = engine.stats();
    let calls = (after.loads - before.loads, after.swaps - before.swaps);
    assert_eq!(calls, (1, 1));
}

/// Whether a lease is granted without anybody else having had a turn.
async fn granted_at_once(engine: &Engine, name: &Name) -> bool {
    let mut reply = pin!(engine.perform(name, acquire("me", LONG), Patience::NONE));
    let at_once = reply.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let (at_once, reply) = match at_once {
        Poll::Ready(reply) => (true, reply),
        Poll::Pending => (false, reply.await),
    };
    let fence = granted(reply).fence;
    let released = outcome(engine, name, release(fence)).await;
    assert_eq!(released, Outcome::Released);
    at_once
}

#[tokio::test]
async fn whoever_was_alone_for_a_while_waits_for_nobody_until_there_is_company_again() {
    let engine = support::engine(Arc::new(Memory::new())).await;
    let names: Vec<_> = (0..41).map(|number| name(&format!("n{number}"))).collect();
    let mut at_once = Vec::new();
    for name in &names {
        at_once.push(granted_at_once(&engine, name).await);
    }
    // A turn is a take and a release.
    assert!(at_once[..2].iter().all(|at_once| !at_once));
    assert!(at_once[2..8].iter().all(|at_once| *at_once));
    let tried = at_once[2..].iter().filter(|at_once| !**at_once).count();
    assert!(
        (1..=5).contains(&tried),
        "it is tried again, rarely: {tried}"
    );
    for shared in [false, true] {
        let before = engine.stats().swaps;
        let tasks = names.iter().map(|name| {
            let (engine, name) = (engine.clone(), name.clone());
            tokio::spawn(async move { granted_at_once(&engine, &name).await })
        });
        let tasks: Vec<_> = tasks.collect();
        for task in tasks {
            let at_once = task.await.unwrap();
            assert!(!(shared && at_once), "there was company");
        }
        let commits = engine.stats().swaps - before;
        assert_eq!(commits == 2, shared, "{commits} commits");
    }
}
