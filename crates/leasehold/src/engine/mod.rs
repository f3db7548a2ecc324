//! The engine: applies operations to records with the pure core, and writes the results to a store.
//!
//! Operations that arrive during a write are applied in order to the same record and written together. The records
//! that are ready are written in one batch. No outcome is returned before the store has confirmed the write or read
//! that it depends on.
//!
//! | file | what it does |
//! |---|---|
//! | `table.rs` | the engine's state: cached records, queued operations, waiters |
//! | `pending.rs` | an operation that has not been answered |
//! | `ambiguous.rs` | resolves writes that were not answered |
//! | `cancel.rs` | callers that time out or go away before their answer, and closing |
//! | `plan.rs` | applies the queued operations of one name, and plans the store call that they need |
//! | `call.rs` | batches what is ready, and calls the store |
//! | `store_call.rs` | a timeout for store calls, and panics as errors |
//! | `store_thread.rs` | a thread for store calls that wait for a disk |
//! | `completion.rs` | completes operations after a store call was answered or failed |
//! | `eviction.rs` | keeps the cache within its limits |
//! | `reply.rs` | the answer to an operation, and its undoing if the caller does not take it |
//! | `timeouts.rs` | the timeouts of callers |
//! | `timer.rs` | wakes names when their holder expires or when they are to be polled |
//! | `claim.rs` | claims work items of a state, and waits for some |
//! | `acquire_all.rs` | acquires several leases, all or none |
//! | `purge.rs` | deletes unused records |
//! | `probe.rs` | checks that the store accepts writes |
//! | `search.rs` | searches the store, a bounded number of records at a time |
//! | `read.rs` | shows one record, and lists many |
//! | `metrics.rs` | measurements for the metrics |
//! | `observe.rs` | observations of holders after a step of the store's clock |
//! | `watch.rs` | publishes events to subscribers |
//! | `leases.rs` | implements [`Leases`](crate::Leases) |

mod acquire_all;
mod ambiguous;
mod call;
mod cancel;
mod claim;
mod completion;
mod eviction;
mod leases;
mod metrics;
mod observe;
mod pending;
mod plan;
mod probe;
mod purge;
mod read;
mod reply;
mod search;
mod store_call;
mod store_thread;
mod table;
mod timeouts;
mod timer;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{BootTime, Clock, Kind, Name, Operation, Outcome, Time, min_ttl};
use tokio::sync::{Notify, Semaphore, broadcast, oneshot};

use crate::host::{Host, Machine};
use crate::spin::AdaptiveSpin;
use crate::store::{Facts, Store};
use crate::{Error, Result, join_all};

pub use acquire_all::AcquireAllReply;
pub use leases::refusal;
pub use metrics::{ENDINGS, FAILURES, Metrics};
use pending::PendingOperation;
pub use purge::PurgeProgress;
pub use reply::{CallTimes, Reply};
pub use search::SEARCH_PAGE;
use store_call::with_timeout;
use store_thread::StoreThread;
use table::Table;
use timeouts::Timeouts;
pub use watch::{EngineEvent, Events, EventsMissed};

/// Limits of an engine. Each resource has one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// How long an operation may take before it fails, without its time in a wait queue.
    pub timeout: Duration,
    /// The maximum number of cached records. If the [store is in memory](Store::is_in_process), few free ones are cached.
    pub cache: usize,
    /// The maximum number of bytes of cached bodies.
    pub cache_bytes: usize,
    /// The maximum number of queued operations, for all names together.
    pub queue: usize,
    /// The maximum number of waiters, for all names together.
    pub waiters: usize,
    /// The maximum number of events that a subscriber may lag behind.
    pub events: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            cache: 100_000,
            cache_bytes: 32 << 20,
            queue: 100_000,
            waiters: 100_000,
            events: 4_096,
        }
    }
}

/// The time limits of an operation.
#[derive(Clone, Copy, Debug)]
pub struct WaitLimit {
    /// How long an acquisition may wait in the queue while the lease is held.
    pub wait: Duration,
    /// How long the operation itself may take. `None` for the timeout of the engine's [`Config`].
    pub within: Option<Duration>,
}

impl WaitLimit {
    /// No time in the wait queue, and the engine's timeout.
    pub const NONE: Self = Self {
        wait: Duration::ZERO,
        within: None,
    };
}

/// Counters of an engine since its start, and its present sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Answered operations.
    pub operations: u64,
    /// Calls of the store's `load`.
    pub loads: u64,
    /// Calls of the store's `find`.
    pub searches: u64,
    /// Calls of the store's `swap`. Each is one commit on stores that write a batch in one transaction.
    pub swaps: u64,
    /// Written records.
    pub writes: u64,
    /// Writes that conflicted with another engine's.
    pub conflicts: u64,
    /// Operations that are queued now.
    pub queued: u64,
    /// Waiters now.
    pub waiters: u64,
    /// Names in the cache now.
    pub cached: u64,
}

/// Batches operations and queues waiters. The core makes all decisions. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    facts: Facts,
    host: Arc<dyn Host>,
    config: Config,
    /// The name of this engine's probe record.
    probe_name: Name,
    runtime: tokio::runtime::Handle,
    table: Mutex<Table>,
    metrics: Arc<Metrics>,
    /// Whether the store reports changes by other engines.
    has_change_hints: bool,
    /// Whether a store call occupies its thread.
    store_blocks: bool,
    /// The thread that calls a store with expensive commits. A lone operation is sent on its caller's thread.
    store_thread: StoreThread,
    events: broadcast::Sender<Result<EngineEvent, EventsMissed>>,
    /// Notified when a timer earlier than all others was set, and when the engine is dropped.
    timer: Arc<Notify>,
    timeouts: Arc<Timeouts>,
    /// Adaptive polling for the answer to a lone store call.
    spin: AdaptiveSpin,
    /// Notified when the last store call of a closing engine is complete.
    idle: Notify,
    /// Notified when a work item may have become free.
    item_freed: Notify,
    /// Waiting claims.
    claim_queues: claim::ClaimQueues,
    /// The number of records that searches may still load.
    searches: Arc<Semaphore>,
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.timer.notify_one();
        self.timeouts.stop();
        if let Some(thread) = self.store_thread.thread() {
            thread.unpark();
        }
    }
}

impl Engine {
    /// Starts an engine on a store. Reads the store's time, so it fails if the store cannot be reached.
    pub async fn start(store: Arc<dyn Store>) -> Result<Self> {
        Self::start_with(store, Machine::shared(), Config::default()).await
    }

    /// Starts an engine with this host and these limits.
    pub async fn start_with(
        store: Arc<dyn Store>,
        host: Arc<dyn Host>,
        config: Config,
    ) -> Result<Self> {
        // Opened before anything is loaded, so that no change is missed in between.
        let changes = store.changes();
        let facts = store.facts();
        let sent = host.boot_time();
        let answer = with_timeout(config.timeout, store.load(&[])).await?;
        let clock = Clock::new(sent, host.boot_time(), answer.stamp, facts.margin)
            .restarted(store.restarted_at());
        let timer: Arc<Notify> = Arc::default();
        let metrics: Arc<Metrics> = Arc::default();
        let inner = Arc::new(Inner {
            facts,
            probe_name: probe::name(Machine.random()),
            host,
            runtime: tokio::runtime::Handle::current(),
            table: Mutex::new(Table::new(
                clock,
                &*store,
                Arc::clone(&timer),
                Arc::clone(&metrics),
            )),
            metrics,
            has_change_hints: changes.is_some(),
            store_blocks: store.blocks(),
            store_thread: StoreThread::default(),
            events: broadcast::channel(config.events).0,
            timer,
            timeouts: Timeouts::start(config.timeout, &tokio::runtime::Handle::current()),
            spin: AdaptiveSpin::default(),
            idle: Notify::new(),
            item_freed: Notify::new(),
            claim_queues: claim::ClaimQueues::default(),
            searches: Arc::new(Semaphore::new(search::MAX_SEARCHED_RECORDS)),
            store,
            config,
        });
        timer::start(&inner, changes);
        if inner.store.has_expensive_commits() {
            store_thread::start(&inner);
        }
        Ok(Self { inner })
    }

    /// Performs an operation. Returns once the store has confirmed the write or read that the outcome depends on.
    ///
    /// An acquisition that would be refused waits in the queue, in arrival order, for up to `wait_limit.wait`. Then it
    /// is refused if the store has shown the obstacle within the last timeout; otherwise the store is asked once more,
    /// which takes at most another timeout. Dropping the future removes the waiter from the queue.
    pub async fn perform(
        &self,
        name: &Name,
        operation: Operation,
        wait_limit: WaitLimit,
    ) -> Result<Reply> {
        // Lets other tasks run even if a caller loops on a store that answers immediately.
        tokio::task::consume_budget().await;
        let submission = {
            let mut table = self.inner.table();
            let submission = self.submit(&mut table, name.clone(), operation, wait_limit.wait)?;
            self.inner.drive_from(table);
            submission
        };
        self.answer(submission, wait_limit).await
    }

    /// Performs operations in one batch, without wait queues. Returns one answer for each, in the same order.
    pub async fn perform_all(
        &self,
        operations: Vec<(Name, Operation)>,
        within: Option<Duration>,
    ) -> Vec<Result<Reply>> {
        let wait_limit = WaitLimit {
            wait: Duration::ZERO,
            within,
        };
        // Under one lock: otherwise a call that ends meanwhile would send the first operations separately.
        let submissions: Vec<_> = {
            let mut table = self.inner.table();
            let submit =
                |(name, operation)| self.submit(&mut table, name, operation, Duration::ZERO);
            operations.into_iter().map(submit).collect()
        };
        self.inner.drive();
        let answers = submissions.into_iter().map(|submission| async move {
            match submission {
                Ok(submission) => self.answer(submission, wait_limit).await,
                Err(refused) => Err(refused),
            }
        });
        join_all(answers).await
    }

    /// Waits for the answer to an operation.
    async fn answer(&self, submission: Submission<'_>, wait_limit: WaitLimit) -> Result<Reply> {
        let (mut ticket, mut receiver) = submission;
        if let Ok(result) = receiver.try_recv() {
            ticket.done = true;
            return result;
        }
        if !wait_limit.wait.is_zero() {
            // On the heap, because this future is large and rarely needed.
            return Box::pin(self.wait(ticket, receiver, wait_limit)).await;
        }
        match wait_limit.within {
            None => {
                let within = self.inner.config.timeout;
                answer_before(self.inner.timeouts.wait(), within, ticket, receiver).await
            }
            Some(within) => {
                let timeout = Box::pin(tokio::time::sleep(within));
                answer_before(timeout, within, ticket, receiver).await
            }
        }
    }

    /// Waits for a grant from the wait queue.
    async fn wait(
        &self,
        mut ticket: Ticket<'_>,
        mut receiver: oneshot::Receiver<Result<Reply>>,
        wait_limit: WaitLimit,
    ) -> Result<Reply> {
        tokio::select! {
            biased;
            result = &mut receiver => { ticket.done = true; return reply_or_stopped(result) }
            () = tokio::time::sleep(wait_limit.wait) => {}
        }
        let since = self.inner.host.boot_time() - self.inner.config.timeout;
        let held = self.inner.table().end_wait(&ticket.name, ticket.id, since);
        self.inner.drive();
        if let Some(held) = held {
            ticket.done = true;
            return Ok(Reply::plain(Outcome::Held(held)));
        }
        let within = wait_limit.within.unwrap_or(self.inner.config.timeout);
        answer_before(tokio::time::sleep(within), within, ticket, receiver).await
    }

    /// Refuses a ttl that is too short for a holder to rely on, given the margin of the store's clock.
    fn check_ttl(&self, kind: Kind, operation: &Operation) -> Result<()> {
        let ttl = match operation {
            Operation::Acquire(acquire) if kind == Kind::Lock => acquire.ttl,
            Operation::Renew(renew) if kind == Kind::Lock => renew.ttl.unwrap_or(Duration::MAX),
            _ => return Ok(()),
        };
        let margin = self.inner.facts.margin;
        let minimum = min_ttl(margin);
        if ttl < minimum {
            return Err(Error::invalid(format!(
                "the ttl of {ttl:?} is too short for this store, whose clock may step by {margin:?}: give {minimum:?} or \
                 more"
            )));
        }
        Ok(())
    }

    /// Queues an operation. It is sent by the next call of `drive`.
    fn submit(
        &self,
        table: &mut Table,
        name: Name,
        operation: Operation,
        wait: Duration,
    ) -> Result<Submission<'_>> {
        operation.check(name.kind())?;
        self.check_ttl(name.kind(), &operation)?;
        let (sender, receiver) = oneshot::channel();
        let boot = self.inner.host.boot_time();
        let waits = matches!(operation, Operation::Acquire(_)) && !wait.is_zero();
        table.admit(&self.inner.config, waits)?;
        let id = table.next_number();
        let wait_until = waits.then(|| boot + wait);
        let pending = PendingOperation::new(id, operation, wait_until, Some(sender));
        table.enqueue(&name, pending, boot);
        Ok((
            Ticket {
                engine: self,
                name,
                id,
                done: false,
            },
            receiver,
        ))
    }

    /// Returns how many callers of this engine wait for a name.
    pub fn waiters(&self, name: &Name) -> usize {
        self.inner
            .table()
            .entries
            .get(name)
            .map_or(0, |entry| entry.wait_queue.len())
    }

    /// Returns a lower bound of the store's time now.
    fn earliest(&self) -> Time {
        let boot = self.inner.host.boot_time();
        self.inner.table().clock.interval(boot).earliest
    }

    /// Returns the earliest expiry that a live holder may have now.
    fn earliest_live_expiry(&self) -> Time {
        let boot = self.inner.host.boot_time();
        self.inner.table().clock.earliest_live_expiry(boot)
    }

    /// Returns the host that it runs on.
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.inner.host
    }

    /// Returns its counters and sizes.
    pub fn stats(&self) -> Stats {
        self.inner.table().stats()
    }

    /// Rejects new operations, refuses all waiters, and returns once the calls in flight are complete, or after the
    /// engine's timeout.
    ///
    /// A waiter gets [`Error::Unavailable`], or [`Error::Indeterminate`] if a write that grants it the lease was sent
    /// and not answered. Such a grant is released.
    pub async fn close(&self) {
        self.inner.table().close();
        self.inner.drive();
        self.inner.item_freed.notify_waiters();
        let completed = async {
            loop {
                let idle = self.inner.idle.notified();
                if self.inner.table().is_idle() {
                    return;
                }
                idle.await;
            }
        };
        let _ = tokio::time::timeout(self.inner.config.timeout, completed).await;
        let _ = tokio::time::timeout(self.inner.config.timeout, self.inner.store.close()).await;
    }
}

/// A queued operation, and the channel for its answer.
type Submission<'e> = (Ticket<'e>, oneshot::Receiver<Result<Reply>>);

/// Cancels a queued operation when it is dropped before the answer. A write that was sent is not cancelled.
struct Ticket<'e> {
    engine: &'e Engine,
    name: Name,
    id: u64,
    done: bool,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        self.engine.inner.table().cancel(&self.name, self.id);
        self.engine.inner.drive();
    }
}

/// Waits for the answer until `timeout` completes, which is after `within`.
async fn answer_before(
    timeout: impl Future<Output = ()>,
    within: Duration,
    mut ticket: Ticket<'_>,
    receiver: oneshot::Receiver<Result<Reply>>,
) -> Result<Reply> {
    tokio::select! {
        biased;
        result = receiver => { ticket.done = true; reply_or_stopped(result) }
        () = timeout => {
            ticket.done = true;
            let inner = &ticket.engine.inner;
            let mut table = inner.table();
            let error = table.time_out(&ticket.name, ticket.id, within);
            inner.drive_from(table);
            Err(error)
        }
    }
}

/// Returns an error if the sender was dropped, which happens only when the engine is dropped.
fn reply_or_stopped(result: Result<Result<Reply>, oneshot::error::RecvError>) -> Result<Reply> {
    result.unwrap_or_else(|_| {
        Err(Error::Indeterminate(
            "the engine has stopped; the operation may have happened: check the record before retrying".into(),
        ))
    })
}

fn closing_error() -> Error {
    Error::Unavailable("the engine is shutting down: retry later, or on another instance".into())
}

/// Returns a random time between 0.5 and 1.5 times this span from now.
fn jittered(host: &dyn Host, span: Duration) -> BootTime {
    let span_us = u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1);
    let random = u64::try_from(host.random() % u128::from(span_us)).unwrap_or_default();
    host.boot_time() + Duration::from_micros(span_us / 2 + random)
}
