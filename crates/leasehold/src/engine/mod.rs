//! The engine: moves records between the pure core and a store.
//!
//! Operations that arrive while a write is under way are applied, in order, to the same record by the core and
//! written as one; all names that are ready go in one batch. No outcome leaves before the store has confirmed what it
//! rests on.
//!
//! | file | what it does |
//! |---|---|
//! | `table.rs` | what the engine knows: cached records, queued operations, waiters in line |
//! | `pending.rs` | an operation on its way to an answer |
//! | `ambiguous.rs` | writes that were never answered |
//! | `leave.rs` | callers that leave before their answer, and closing |
//! | `plan.rs` | applies what is queued under one name, and says what the store must do for it |
//! | `call.rs` | calls the store: collects what is ready into batches, and carries them out |
//! | `bounded.rs` | bounds a call of the store: in time, and when it panics |
//! | `caller.rs` | a thread for calls that wait for a disk |
//! | `conclude.rs` | what follows from an answer of the store, or from the lack of one |
//! | `forget.rs` | keeps what is remembered within bounds |
//! | `reply.rs` | the answer to an operation, and its undoing if nobody takes it |
//! | `overdue.rs` | tells callers that their time is up |
//! | `timer.rs` | wakes names whose holder is over, or that should be looked at again |
//! | `claim.rs` | leases work items of a state, and waits for some |
//! | `several.rs` | takes several leases, all or none |
//! | `purge.rs` | deletes what nobody needs any more |
//! | `probe.rs` | proves that the store takes writes |
//! | `search.rs` | searches the store, a bounded number of records at a time |
//! | `look.rs` | what is known of one name, and of many |
//! | `measures.rs` | what is measured along the way |
//! | `observe.rs` | since when holders in doubt were observed, after a step of the store's clock |
//! | `watch.rs` | tells subscribers what happens under every name |
//! | `leases.rs` | the engine as [`Leases`](crate::Leases) |

mod ambiguous;
mod bounded;
mod call;
mod caller;
mod claim;
mod conclude;
mod forget;
mod leases;
mod leave;
mod look;
mod measures;
mod observe;
mod overdue;
mod pending;
mod plan;
mod probe;
mod purge;
mod reply;
mod search;
mod several;
mod table;
mod timer;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{BootTime, Clock, Kind, Name, Operation, Outcome, Time, min_ttl};
use tokio::sync::{Notify, Semaphore, broadcast, oneshot};

use crate::awake::Worth;
use crate::host::{Host, Machine};
use crate::store::{Facts, Store};
use crate::{Error, Result, side_by_side};

use bounded::bounded;
use caller::Caller;
pub use leases::refusal;
pub use measures::{ENDINGS, FAILURES, Measures};
use overdue::Overdue;
use pending::Pending;
pub use purge::Purged;
pub use reply::{Called, Reply};
pub use search::SEARCH_PAGE;
pub use several::Several;
use table::Table;
pub use watch::{Events, Happened, Missed};

/// Limits of an engine. Everything is bounded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// How long an operation may take, waiting in line not included, before it ends with an error.
    pub timeout: Duration,
    /// Records kept in memory; of a store that [lies there itself](Store::is_near), held ones and few others.
    pub cache: usize,
    /// Bytes of bodies kept in memory.
    pub cache_bytes: usize,
    /// Operations queued, over all names.
    pub queue: usize,
    /// Waiters in line, over all names.
    pub waiters: usize,
    /// Events that a subscriber may lag behind.
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

/// How long a caller waits.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long an acquisition may wait in line while somebody else holds the lease.
    pub wait: Duration,
    /// How long the operation itself may take; `None`: what the engine's [`Config`] says.
    pub within: Option<Duration>,
}

impl Patience {
    /// Does not wait in line.
    pub const NONE: Self = Self {
        wait: Duration::ZERO,
        within: None,
    };
}

/// What an engine has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Operations answered.
    pub operations: u64,
    /// Calls of the store's `load`.
    pub loads: u64,
    /// Calls of the store's `find`.
    pub searches: u64,
    /// Calls of the store's `swap`: commits, on stores that write a batch in one.
    pub swaps: u64,
    /// Records written.
    pub writes: u64,
    /// Writes that lost against another engine's.
    pub conflicts: u64,
    /// Operations queued or under way now.
    pub queued: u64,
    /// Waiters in line now.
    pub waiters: u64,
    /// Records cached now.
    pub cached: u64,
}

/// Combines operations, keeps waiters in line, and never decides anything itself. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    facts: Facts,
    host: Arc<dyn Host>,
    config: Config,
    /// The name of the record that proves that the store takes writes.
    probe: Name,
    runtime: tokio::runtime::Handle,
    table: Mutex<Table>,
    measures: Arc<Measures>,
    /// Whether the store hints at changes of others.
    hints: bool,
    /// Whether a call of the store blocks.
    blocks: bool,
    /// The thread that calls a store whose writes are dear, unless somebody is alone.
    caller: Caller,
    events: broadcast::Sender<Result<Happened, Missed>>,
    /// Told when a timer earlier than all others was set, and when the engine goes.
    timer: Arc<Notify>,
    overdue: Arc<Overdue>,
    /// Whether to stay awake until the store has answered somebody who is alone.
    awake: Worth,
    /// Told when the last call of a closing engine has been concluded.
    idle: Notify,
    /// Told when a work item may have come free.
    items: Notify,
    /// Those who wait for work items.
    claimants: claim::Lines,
    /// How many more records searches may load.
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
        self.overdue.stop();
        if let Some(thread) = self.caller.thread() {
            thread.unpark();
        }
    }
}

impl Engine {
    /// Starts an engine on a store: asks it for its time, so a store that cannot be reached shows at once.
    pub async fn start(store: Arc<dyn Store>) -> Result<Self> {
        Self::start_with(store, Machine::shared(), Config::default()).await
    }

    /// Starts an engine with other surroundings and limits.
    pub async fn start_with(
        store: Arc<dyn Store>,
        host: Arc<dyn Host>,
        config: Config,
    ) -> Result<Self> {
        // Opened before anything is loaded, so that no change falls between the two.
        let changes = store.changes();
        let facts = store.facts();
        let sent = host.boot_time();
        let told = bounded(config.timeout, store.load(&[])).await?;
        let clock = Clock::new(sent, host.boot_time(), told.stamp, facts.margin)
            .restarted(store.restarted_at());
        let timer: Arc<Notify> = Arc::default();
        let measures: Arc<Measures> = Arc::default();
        let inner = Arc::new(Inner {
            facts,
            probe: probe::name(Machine.random()),
            host,
            runtime: tokio::runtime::Handle::current(),
            table: Mutex::new(Table::new(
                clock,
                &*store,
                Arc::clone(&timer),
                Arc::clone(&measures),
            )),
            measures,
            hints: changes.is_some(),
            blocks: store.blocks(),
            caller: Caller::default(),
            events: broadcast::channel(config.events).0,
            timer,
            overdue: Overdue::start(config.timeout, &tokio::runtime::Handle::current()),
            awake: Worth::default(),
            idle: Notify::new(),
            items: Notify::new(),
            claimants: claim::Lines::default(),
            searches: Arc::new(Semaphore::new(search::SEARCHED_RECORDS)),
            store,
            config,
        });
        timer::start(&inner, changes);
        if inner.store.is_dear() {
            caller::start(&inner);
        }
        Ok(Self { inner })
    }

    /// Performs an operation. The outcome leaves only once the store has confirmed what it rests on.
    ///
    /// An acquisition that would be refused waits in line for as long as `patience` says: first come, first served.
    /// After that it is refused by what the store said no longer ago than the engine's timeout, or the store is asked once
    /// more, which takes no longer than the timeout either. Dropping the future takes it out of the line.
    pub async fn perform(
        &self,
        name: &Name,
        operation: Operation,
        patience: Patience,
    ) -> Result<Reply> {
        // A caller that loops on a store that answers at once must leave its thread to others now and then.
        tokio::task::consume_budget().await;
        let asked = {
            let mut table = self.inner.table();
            let asked = self.submit(&mut table, name.clone(), operation, patience.wait)?;
            self.inner.drive_from(table);
            asked
        };
        self.answer(asked, patience).await
    }

    /// Performs operations that do not wait in line, all sent together, and each answered for itself in the same
    /// order.
    pub async fn perform_all(
        &self,
        operations: Vec<(Name, Operation)>,
        within: Option<Duration>,
    ) -> Vec<Result<Reply>> {
        let patience = Patience {
            wait: Duration::ZERO,
            within,
        };
        // Under one lock: a call that ends meanwhile would send the first of them alone.
        let asked: Vec<_> = {
            let mut table = self.inner.table();
            let submit =
                |(name, operation)| self.submit(&mut table, name, operation, Duration::ZERO);
            operations.into_iter().map(submit).collect()
        };
        self.inner.drive();
        let answers = asked.into_iter().map(|asked| async move {
            match asked {
                Ok(asked) => self.answer(asked, patience).await,
                Err(refused) => Err(refused),
            }
        });
        side_by_side(answers).await
    }

    /// Waits for the answer to an operation.
    async fn answer(&self, asked: Asked<'_>, patience: Patience) -> Result<Reply> {
        let (mut ticket, mut receiver) = asked;
        if let Ok(result) = receiver.try_recv() {
            ticket.done = true;
            return result;
        }
        if !patience.wait.is_zero() {
            // On the heap: what waits is large, and few do.
            return Box::pin(self.wait(ticket, receiver, patience)).await;
        }
        match patience.within {
            None => {
                let within = self.inner.config.timeout;
                answer_before(self.inner.overdue.wait(), within, ticket, receiver).await
            }
            Some(within) => {
                let over = Box::pin(tokio::time::sleep(within));
                answer_before(over, within, ticket, receiver).await
            }
        }
    }

    async fn wait(
        &self,
        mut ticket: Ticket<'_>,
        mut receiver: oneshot::Receiver<Result<Reply>>,
        patience: Patience,
    ) -> Result<Reply> {
        tokio::select! {
            biased;
            result = &mut receiver => { ticket.done = true; return gone(result) }
            () = tokio::time::sleep(patience.wait) => {}
        }
        let since = self.inner.host.boot_time() - self.inner.config.timeout;
        let held = self
            .inner
            .table()
            .stop_waiting(&ticket.name, ticket.id, since);
        self.inner.drive();
        if let Some(held) = held {
            ticket.done = true;
            return Ok(Reply::plain(Outcome::Held(held)));
        }
        let within = patience.within.unwrap_or(self.inner.config.timeout);
        answer_before(tokio::time::sleep(within), within, ticket, receiver).await
    }

    /// A lease that is to be *held* needs a ttl well above what its holder gives away for the store's clock.
    fn check_ttl(&self, kind: Kind, operation: &Operation) -> Result<()> {
        let ttl = match operation {
            Operation::Acquire(acquire) if kind == Kind::Lock => acquire.ttl,
            Operation::Renew(renew) if kind == Kind::Lock => renew.ttl.unwrap_or(Duration::MAX),
            _ => return Ok(()),
        };
        let margin = self.inner.facts.margin;
        let least = min_ttl(margin);
        if ttl < least {
            return Err(Error::invalid(format!(
                "the ttl of {ttl:?} is too short for this store, whose clock may step by {margin:?}: give {least:?} or more"
            )));
        }
        Ok(())
    }

    /// Queues an operation. Nothing is sent before the next `drive`.
    fn submit(
        &self,
        table: &mut Table,
        name: Name,
        operation: Operation,
        wait: Duration,
    ) -> Result<Asked<'_>> {
        operation.check(name.kind())?;
        self.check_ttl(name.kind(), &operation)?;
        let (sender, receiver) = oneshot::channel();
        let boot = self.inner.host.boot_time();
        let waits = matches!(operation, Operation::Acquire(_)) && !wait.is_zero();
        table.admit(&self.inner.config, waits)?;
        let id = table.next_number();
        let wait_until = waits.then(|| boot + wait);
        let pending = Pending::new(id, operation, wait_until, Some(sender));
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

    /// How many wait in line for a name in this engine.
    pub fn waiters(&self, name: &Name) -> usize {
        self.inner
            .table()
            .entries
            .get(name)
            .map_or(0, |entry| entry.line.len())
    }

    /// The earliest that the store's time can be now.
    fn earliest(&self) -> Time {
        let boot = self.inner.host.boot_time();
        self.inner.table().clock.interval(boot).earliest
    }

    /// The earliest expiry that a live holder may have now.
    fn earliest_live_expiry(&self) -> Time {
        let boot = self.inner.host.boot_time();
        self.inner.table().clock.earliest_live_expiry(boot)
    }

    /// The surroundings it runs in.
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.inner.host
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        self.inner.table().stats()
    }

    /// Admits no further operations, refuses all waiters, and returns once the calls under way are concluded, or after the
    /// engine's timeout.
    ///
    /// A waiter is answered with [`Error::Unavailable`], or with [`Error::Indeterminate`] if a write that grants it was
    /// sent and not answered; that grant is released.
    pub async fn close(&self) {
        self.inner.table().close();
        self.inner.drive();
        self.inner.items.notify_waiters();
        let concluded = async {
            loop {
                let idle = self.inner.idle.notified();
                if self.inner.table().is_idle() {
                    return;
                }
                idle.await;
            }
        };
        let _ = tokio::time::timeout(self.inner.config.timeout, concluded).await;
        let _ = tokio::time::timeout(self.inner.config.timeout, self.inner.store.close()).await;
    }
}

/// A caller's place in the engine, and where its answer comes.
type Asked<'e> = (Ticket<'e>, oneshot::Receiver<Result<Reply>>);

/// A caller's place in the engine. Dropped early, the caller has gone: what has not been sent is not sent any more.
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
        self.engine.inner.table().leave(&self.name, self.id);
        self.engine.inner.drive();
    }
}

/// The answer, if it comes before `over` does: after `within`.
async fn answer_before(
    over: impl Future<Output = ()>,
    within: Duration,
    mut ticket: Ticket<'_>,
    receiver: oneshot::Receiver<Result<Reply>>,
) -> Result<Reply> {
    tokio::select! {
        biased;
        result = receiver => { ticket.done = true; gone(result) }
        () = over => {
            ticket.done = true;
            let inner = &ticket.engine.inner;
            let mut table = inner.table();
            let error = table.give_up(&ticket.name, ticket.id, within);
            inner.drive_from(table);
            Err(error)
        }
    }
}

/// The engine drops a reply only when it is gone itself.
fn gone(result: Result<Result<Reply>, oneshot::error::RecvError>) -> Result<Reply> {
    result.unwrap_or_else(|_| {
        Err(Error::Indeterminate(
            "the engine has stopped: look before you try again".into(),
        ))
    })
}

fn closing() -> Error {
    Error::Unavailable("shutting down: ask again elsewhere or later".into())
}

/// A moment between half and one and a half of this span from now: herds disperse.
fn jittered(host: &dyn Host, span: Duration) -> BootTime {
    let span_us = u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1);
    let random = u64::try_from(host.random() % u128::from(span_us)).unwrap_or_default();
    host.boot_time() + Duration::from_micros(span_us / 2 + random)
}
