//! Which operations share a commit, and which are delayed for it.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::Result;
use leasehold::core::{BootTime, Fence, Name, Operation, Outcome, Renew, Time};
use leasehold::engine::{Config, Engine, Stats, WaitLimit};
use leasehold::host::{Host, Machine};
use leasehold::store::memory::Memory;
use leasehold::store::{Answer, Facts, Page, Query, Store, Stored, Swapped, Write};
use tokio::task::JoinHandle;

use crate::support::{self, LONG, acquire, expect_grant, name, outcome, release};

/// A host whose clock the test advances.
struct ManualClock(AtomicU64);

impl ManualClock {
    fn advance(&self, span: Duration) {
        let micros = u64::try_from(span.as_micros()).unwrap();
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Host for ManualClock {
    fn boot_time(&self) -> BootTime {
        BootTime::from_micros(self.0.load(Ordering::SeqCst))
    }

    fn random(&self) -> u128 {
        Machine.random()
    }
}

/// How long a commit waits for the test to let it complete.
const DISK_TIMEOUT: Duration = Duration::from_secs(10);

/// A store with expensive commits.
struct ExpensiveStore {
    memory: Arc<Memory>,
    /// A commit completes when it receives from this, or at once if there is none.
    disk: Option<Mutex<mpsc::Receiver<()>>>,
}

impl ExpensiveStore {
    fn on(memory: Memory) -> Self {
        let memory = Arc::new(memory);
        Self { memory, disk: None }
    }
}

#[async_trait]
impl Store for ExpensiveStore {
    fn facts(&self) -> Facts {
        self.memory.facts()
    }

    fn blocks(&self) -> bool {
        true
    }

    fn has_expensive_commits(&self) -> bool {
        true
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        self.memory.load(names).await
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        if let Some(disk) = &self.disk {
            let completed = disk.lock().unwrap().recv_timeout(DISK_TIMEOUT);
            completed.expect("the test runs during the commit");
        }
        self.memory.swap(writes).await
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        self.memory.find(query).await
    }
}

async fn start() -> (Arc<ManualClock>, Engine) {
    let host = Arc::new(ManualClock(AtomicU64::new(3_600_000_000)));
    let epoch = Time::from_micros(1_800_000_000_000_000);
    let store = Arc::new(ExpensiveStore::on(Memory::with_clock(host.clone(), epoch)));
    let engine = Engine::start_with(store, host.clone(), Config::default()).await;
    (host, engine.unwrap())
}

async fn take(engine: &Engine, name: &Name, ttl: Duration) -> Fence {
    let reply = engine.perform(name, acquire("me", ttl), WaitLimit::NONE);
    expect_grant(reply.await).fence
}

fn renew(engine: &Engine, name: &Name, fence: Fence) -> JoinHandle<Outcome> {
    let renew = Renew {
        fence,
        principal: None,
        ttl: None,
    };
    spawn_operation(engine, name, Operation::Renew(renew))
}

async fn wait_for_queued(engine: &Engine, count: u64) {
    wait_for_stats(engine, |stats| stats.queued == count).await;
}

fn is_renewed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Renewed(_))
}

#[tokio::test]
async fn renewals_in_short_succession_share_a_commit() {
    let (host, engine) = start().await;
    let names = ["a", "b", "c"].map(name);
    let mut fences = Vec::new();
    for name in &names {
        fences.push(take(&engine, name, LONG).await);
    }
    // The first renewal is not delayed.
    assert!(is_renewed(
        &renew(&engine, &names[0], fences[0]).await.unwrap()
    ));
    let before = engine.stats().swaps;
    let second = renew(&engine, &names[1], fences[1]);
    wait_for_queued(&engine, 1).await;
    let third = renew(&engine, &names[2], fences[2]);
    wait_for_queued(&engine, 2).await;
    assert_eq!(engine.stats().swaps, before);
    host.advance(Duration::from_millis(10));
    for renewal in [second, third] {
        assert!(is_renewed(&renewal.await.unwrap()));
    }
    assert_eq!(engine.stats().swaps, before + 1);
}

#[tokio::test]
async fn delayed_renewal_is_sent_with_the_next_urgent_operation() {
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
    let delayed = renew(&engine, &names[1], fences[1]);
    wait_for_queued(&engine, 1).await;
    // The operations stay in order, although the second one releases the lease.
    let released = outcome(&engine, &names[1], release(fences[1])).await;
    assert_eq!(released, Outcome::Released);
    assert!(is_renewed(&delayed.await.unwrap()));
    assert_eq!(engine.stats().swaps, before + 1);
}

#[tokio::test]
async fn operations_are_queued_while_a_commit_waits_for_the_disk() {
    let (answer, disk) = mpsc::channel();
    let store = ExpensiveStore {
        memory: Arc::default(),
        disk: Some(Mutex::new(disk)),
    };
    let engine = support::engine(Arc::new(store)).await;
    let spawn_acquire = |text: &str| {
        let (engine, name) = (engine.clone(), name(text));
        tokio::spawn(async move { take(&engine, &name, LONG).await })
    };
    let first = spawn_acquire("a");
    while engine.stats().swaps == 0 {
        tokio::task::yield_now().await;
    }
    // These arrive during the commit, and share the next one.
    let others = ["b", "c"].map(spawn_acquire);
    wait_for_queued(&engine, 2).await;
    answer.send(()).unwrap();
    first.await.unwrap();
    answer.send(()).unwrap();
    for other in others {
        other.await.unwrap();
    }
    assert_eq!(engine.stats().swaps, 2);
}

#[tokio::test]
async fn renewal_of_a_short_lease_is_not_delayed() {
    let (_host, engine) = start().await;
    let name = name("short");
    let fence = take(&engine, &name, Duration::from_millis(900)).await;
    for _ in 0..3 {
        assert!(is_renewed(&renew(&engine, &name, fence).await.unwrap()));
    }
}

/// Returns names whose records exist in the store.
async fn used_names(store: Arc<dyn Store>) -> [Name; 5] {
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

/// Acquires all but the last of them. After that many wrong guesses, the engine does not assume any more that an
/// unknown name does not exist.
async fn acquire_four(engine: &Engine, names: &[Name; 5]) -> Vec<Fence> {
    let mut fences = Vec::new();
    for name in &names[..4] {
        fences.push(take(engine, name, LONG).await);
    }
    fences
}

/// Starts an engine that has acquired four of these names and expects concurrent operations. Each commit of its store
/// waits for the returned sender.
async fn start_on_slow_disk(
    memory: Arc<Memory>,
    names: &[Name; 5],
) -> (Engine, Vec<Fence>, mpsc::Sender<()>) {
    let (answer, disk) = mpsc::channel();
    let store = ExpensiveStore {
        memory,
        disk: Some(Mutex::new(disk)),
    };
    let engine = support::engine(Arc::new(store)).await;
    // Each acquisition conflicts before it is written. The two releases are a batch, so the next call is delayed for
    // one.
    (0..9).for_each(|_| answer.send(()).unwrap());
    let fences = acquire_four(&engine, names).await;
    let two = [0, 1].map(|index| (names[index].clone(), release(fences[index])));
    for reply in engine.perform_all(two.into(), None).await {
        assert_eq!(reply.unwrap().take().0, Outcome::Released);
    }
    assert_eq!(engine.stats().swaps, 9);
    (engine, fences, answer)
}

fn spawn_operation(engine: &Engine, name: &Name, operation: Operation) -> JoinHandle<Outcome> {
    let (engine, name) = (engine.clone(), name.clone());
    tokio::spawn(async move { outcome(&engine, &name, operation).await })
}

/// Waits until the engine's counters satisfy this condition.
async fn wait_for_stats(engine: &Engine, done: impl Fn(Stats) -> bool) {
    while !done(engine.stats()) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn name_is_loaded_while_a_commit_waits_for_the_disk() {
    let memory: Arc<Memory> = Arc::default();
    let names = used_names(memory.clone()).await;
    let (engine, fences, answer) = start_on_slow_disk(memory, &names).await;
    let before = engine.stats();
    let committing = spawn_operation(&engine, &names[2], release(fences[2]));
    wait_for_stats(&engine, |stats| stats.swaps > before.swaps).await;
    let loaded = spawn_operation(&engine, &names[4], acquire("me", LONG));
    wait_for_stats(&engine, |stats| stats.loads > before.loads).await;
    (0..2).for_each(|_| answer.send(()).unwrap());
    assert_eq!(committing.await.unwrap(), Outcome::Released);
    let loaded = loaded.await.unwrap();
    assert!(matches!(loaded, Outcome::Granted(_)), "{loaded:?}");
}

#[tokio::test]
async fn refusal_does_not_wait_for_the_disk() {
    let memory: Arc<Memory> = Arc::default();
    let names = used_names(memory.clone()).await;
    let other = support::engine(memory.clone()).await;
    take(&other, &names[4], LONG).await;
    let (engine, fences, answer) = start_on_slow_disk(memory, &names).await;
    let before = engine.stats();
    let committing = spawn_operation(&engine, &names[2], release(fences[2]));
    wait_for_stats(&engine, |stats| stats.swaps > before.swaps).await;
    // Both are ready when the next commit begins, and only one of them needs it.
    let refused = spawn_operation(&engine, &names[4], acquire("contender", LONG));
    wait_for_stats(&engine, |stats| stats.loads > before.loads).await;
    let written = spawn_operation(&engine, &names[3], release(fences[3]));
    wait_for_queued(&engine, 2).await;
    answer.send(()).unwrap();
    assert_eq!(committing.await.unwrap(), Outcome::Released);
    let refused = refused.await.unwrap();
    assert!(matches!(refused, Outcome::Held(_)), "{refused:?}");
    answer.send(()).unwrap();
    assert_eq!(written.await.unwrap(), Outcome::Released);
}

/// Records which threads wake a task.
#[derive(Default)]
struct WakeLog(Mutex<Vec<ThreadId>>);

impl Wake for WakeLog {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().push(std::thread::current().id());
    }
}

#[tokio::test]
async fn callers_that_share_a_commit_are_woken_by_the_runtime() {
    let (_host, engine) = start().await;
    let names = ["a", "b", "c"].map(name);
    let woken: Arc<WakeLog> = Arc::default();
    let waker = Waker::from(woken.clone());
    let spawn_operation =
        |name| Box::pin(engine.perform(name, acquire("me", LONG), WaitLimit::NONE));
    let mut calls: Vec<_> = names.iter().map(spawn_operation).collect();
    let mut replies = Vec::new();
    while !calls.is_empty() {
        calls.retain_mut(|call| {
            match call.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(reply) => replies.push(reply),
                Poll::Pending => return true,
            }
            false
        });
        tokio::task::yield_now().await;
    }
    replies
        .into_iter()
        .for_each(|reply| drop(expect_grant(reply)));
    let (here, woken) = (std::thread::current().id(), woken.0.lock().unwrap());
    assert_eq!(*woken, [here; 3]);
}

#[tokio::test]
async fn loaded_names_share_a_commit_with_cached_names() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let names = used_names(store.clone()).await;
    let engine = support::engine(store).await;
    let fences = acquire_four(&engine, &names).await;
    let before = engine.stats();
    let operations = vec![
        (names[0].clone(), release(fences[0])),
        (names[4].clone(), acquire("me", LONG)),
    ];
    let mut replies = engine.perform_all(operations, None).await.into_iter();
    let (released, taken) = (replies.next().unwrap(), replies.next().unwrap());
    assert_eq!(released.unwrap().take().0, Outcome::Released);
    expect_grant(taken);
    let after = engine.stats();
    let calls = (after.loads - before.loads, after.swaps - before.swaps);
    assert_eq!(calls, (1, 1));
}

/// Acquires and releases a lease. Returns whether it was granted without a turn of other tasks.
async fn is_granted_inline(engine: &Engine, name: &Name) -> bool {
    let mut reply = pin!(engine.perform(name, acquire("me", LONG), WaitLimit::NONE));
    let poll = reply.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let (is_inline, reply) = match poll {
        Poll::Ready(reply) => (true, reply),
        Poll::Pending => (false, reply.await),
    };
    let fence = expect_grant(reply).fence;
    let released = outcome(engine, name, release(fence)).await;
    assert_eq!(released, Outcome::Released);
    is_inline
}

#[tokio::test]
async fn lone_caller_is_not_delayed_until_callers_are_concurrent_again() {
    let engine = support::engine(Arc::new(Memory::new())).await;
    let names: Vec<_> = (0..41).map(|number| name(&format!("n{number}"))).collect();
    let mut is_inline = Vec::new();
    for name in &names {
        is_inline.push(is_granted_inline(&engine, name).await);
    }
    // Each turn is an acquisition and a release.
    assert!(is_inline[..2].iter().all(|is_inline| !is_inline));
    assert!(is_inline[2..8].iter().all(|is_inline| *is_inline));
    let tried = is_inline[2..]
        .iter()
        .filter(|is_inline| !**is_inline)
        .count();
    assert!(
        (1..=5).contains(&tried),
        "a delay is tried now and then: {tried}"
    );
    for shared in [false, true] {
        let before = engine.stats().swaps;
        let tasks = names.iter().map(|name| {
            let (engine, name) = (engine.clone(), name.clone());
            tokio::spawn(async move { is_granted_inline(&engine, &name).await })
        });
        let tasks: Vec<_> = tasks.collect();
        for task in tasks {
            let is_inline = task.await.unwrap();
            assert!(!(shared && is_inline), "the callers are concurrent");
        }
        let commits = engine.stats().swaps - before;
        assert_eq!(commits == 2, shared, "{commits} commits");
    }
}
