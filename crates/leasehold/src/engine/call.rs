//! Batches what is ready, and calls the store.

use std::pin::Pin;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker};

use leasehold_core::{BootTime, Name, Record};

use super::plan::{Plan, PlannedOperation};
use super::store_call::{catch_panic, no_answer_message, with_timeout};
use super::table::Table;
use super::{Inner, store_thread};
use crate::store::{Answer, Stored, Swapped, Version, Write, WriteId};
use crate::{Error, Result};

/// The store calls that are possible now.
struct Calls {
    /// When they were planned. Counts as the time of sending.
    planned: BootTime,
    swap: Option<Swap>,
    load: Option<Load>,
}

struct Swap {
    number: u64,
    writes: Vec<Write>,
    sent_writes: Vec<SentWrite>,
}

struct Load {
    number: u64,
    names: Vec<Name>,
}

/// The number of a store call, and when it was sent and answered by the boot clock.
#[derive(Clone, Copy)]
pub(super) struct CallInfo {
    pub(super) number: u64,
    pub(super) sent: BootTime,
    pub(super) received: BootTime,
}

/// A write in flight, and the operations in it.
pub(super) struct SentWrite {
    pub(super) name: Name,
    pub(super) base: Option<WriteId>,
    pub(super) put: Option<(WriteId, Arc<Record>)>,
    pub(super) planned: Vec<PlannedOperation>,
}

impl SentWrite {
    /// Whether this write created that version.
    pub(super) fn has_created(&self, version: &Version) -> bool {
        self.put
            .as_ref()
            .is_some_and(|(write, _)| *write == version.write)
    }
}

impl Inner {
    /// Starts all store calls that are possible now.
    pub(super) fn drive(self: &Arc<Self>) {
        self.drive_from(self.table());
    }

    /// Like [`drive`](Self::drive), for a caller that has locked the table.
    ///
    /// While a commit is in flight, or if the store blocks, the call is made by another task or thread, so that all
    /// ready tasks can queue their operations first: this makes fewer, larger calls. If recent calls had one operation
    /// each, the caller makes the call itself.
    pub(super) fn drive_from<'t>(self: &'t Arc<Self>, mut table: MutexGuard<'t, Table>) {
        self.notify_if_idle(&table);
        if table.swapping > 0 || (self.store_blocks && !table.expects_single_calls()) {
            return self.schedule_batch(table);
        }
        if self.store_blocks {
            if self.can_call(&table) && !table.batch_scheduled && self.run_batch(table) {
                self.schedule_batch(self.table());
            }
            return;
        }
        while let Some(calls) = self.collect(&mut table) {
            drop(table);
            self.start(calls);
            table = self.table();
        }
    }

    /// Schedules a batch after the tasks that are ready now, on the store thread if there is one.
    fn schedule_batch(self: &Arc<Self>, mut table: MutexGuard<'_, Table>) {
        if !self.can_call(&table) || std::mem::replace(&mut table.batch_scheduled, true) {
            return;
        }
        let committing = table.swapping > 0;
        drop(table);
        let store_thread = self.store_thread.thread();
        if let Some(store_thread) = store_thread.filter(|_| !committing) {
            return store_thread.unpark();
        }
        // The store thread is in a commit: only load meanwhile.
        let only_loads = store_thread.is_some();
        let inner = Arc::clone(self);
        self.runtime.spawn(async move {
            tokio::task::yield_now().await;
            let called = match only_loads {
                true => inner.load_batch(inner.table()),
                false => inner.run_batch(inner.table()),
            };
            // Another task sends the next batch, because this one's thread has answers to deliver.
            if called {
                inner.schedule_batch(inner.table());
            }
        });
    }

    /// Loads the records that ready operations need. Returns whether there were any.
    fn load_batch<'t>(self: &'t Arc<Self>, mut table: MutexGuard<'t, Table>) -> bool {
        table.batch_scheduled = false;
        let load = self.next_load(&mut table);
        drop(table);
        let Some(load) = load else { return false };
        self.load(self.host.boot_time(), load);
        true
    }

    /// Calls the store for all operations that are ready. Returns whether there were any.
    pub(super) fn run_batch<'t>(self: &'t Arc<Self>, mut table: MutexGuard<'t, Table>) -> bool {
        table.batch_scheduled = false;
        if self.can_call(&table) {
            table.note_batch_size();
        }
        // A store that blocks has answered the load on return, so the loaded records are in the same batch of writes.
        if self.store_blocks
            && let Some(load) = self.next_load(&mut table)
        {
            drop(table);
            let _runtime = self.runtime.enter();
            self.load(self.host.boot_time(), load);
            table = self.table();
        }
        let calls = self.collect(&mut table);
        // Without a store call, no completion follows that would notify a closing engine.
        self.notify_if_idle(&table);
        drop(table);
        // Answers that need no write are not delayed by one.
        store_thread::flush_outbox(self);
        let Some(calls) = calls else { return false };
        self.start(calls);
        store_thread::flush_outbox(self);
        true
    }

    fn start(self: &Arc<Self>, calls: Calls) {
        let _runtime = self.runtime.enter();
        if let Some(swap) = calls.swap {
            self.swap(calls.planned, swap);
        }
        if let Some(load) = calls.load {
            self.load(calls.planned, load);
        }
    }

    /// Whether something is ready and fewer calls than allowed are in flight.
    fn can_call(&self, table: &Table) -> bool {
        let free = |calls| calls < self.facts.in_flight;
        (free(table.swapping) && !table.ready.is_empty())
            || (free(table.loading) && !table.to_load.is_empty())
    }

    /// Plans the calls for what is ready, within the limits of calls in flight.
    fn collect(self: &Arc<Self>, table: &mut Table) -> Option<Calls> {
        if !self.can_call(table) {
            return None;
        }
        let can_swap = table.swapping < self.facts.in_flight && !table.ready.is_empty();
        let planned = self.host.boot_time();
        let swap = can_swap.then(|| self.next_swap(table, planned)).flatten();
        // Planning may have found names that have to be loaded.
        let load = self.next_load(table);
        (swap.is_some() || load.is_some()).then_some(Calls {
            planned,
            swap,
            load,
        })
    }

    /// Returns the next load, if there is something to load and the limit allows it.
    fn next_load(&self, table: &mut Table) -> Option<Load> {
        if table.loading >= self.facts.in_flight || table.to_load.is_empty() {
            return None;
        }
        table.loading += 1;
        table.counts.loads += 1;
        Some(Load {
            names: table.take_to_load(self.facts.batch),
            number: table.next_number(),
        })
    }

    /// Plans what is ready. Returns the next batch of writes.
    fn next_swap(self: &Arc<Self>, table: &mut Table, boot: BootTime) -> Option<Swap> {
        let capacity = self.facts.batch.min(table.ready.len());
        let mut writes = Vec::with_capacity(capacity);
        let mut sent_writes = Vec::with_capacity(capacity);
        while writes.len() < self.facts.batch
            && let Some(name) = table.ready.pop_front()
        {
            if let Some((write, planned)) = self.plan_one(table, &name, boot) {
                sent_writes.push(SentWrite {
                    name,
                    base: write.expect.as_ref().map(|version| version.write),
                    put: write.put.clone(),
                    planned,
                });
                writes.push(write);
            }
        }
        if writes.is_empty() {
            return None;
        }
        table.swapping += 1;
        table.counts.swaps += 1;
        self.metrics.batch.add(writes.len() as u64);
        Some(Swap {
            number: table.next_number(),
            writes,
            sent_writes,
        })
    }

    /// Plans one name, and answers the operations that need no write.
    fn plan_one(
        self: &Arc<Self>,
        table: &mut Table,
        name: &Name,
        boot: BootTime,
    ) -> Option<(Write, Vec<PlannedOperation>)> {
        let (load, answered) = match table.plan(name, boot, &*self.host) {
            Plan::Write(write, planned) => return Some((write, planned)),
            Plan::Load(answered) => (true, answered),
            Plan::Answer(answered) => (false, answered),
        };
        for PlannedOperation {
            pending, outcome, ..
        } in answered
        {
            self.deliver(table, name, pending, Ok(outcome), None);
        }
        let entry = table.entries.get_mut(name)?;
        if load {
            entry.load_first = true;
            table.make_ready(name, true);
        } else if entry.queue.is_empty() {
            table.schedule_wake(name, boot, &*self.host, self.facts.poll);
        } else {
            table.make_ready(name, true);
        }
        None
    }

    /// Sends a batch of writes.
    fn swap(self: &Arc<Self>, sent: BootTime, swap: Swap) {
        let Swap {
            number,
            writes,
            sent_writes,
        } = swap;
        let (timeout, count) = (self.config.timeout, writes.len());
        let complete = move |inner: &Arc<Self>, result: Result<Answer<Vec<Swapped>>>| {
            let call = inner.call_info(number, sent);
            inner.metrics.swap.took(call.received.since(sent));
            inner.complete_swap(call, sent_writes, result);
        };
        let store = Arc::clone(&self.store);
        let mut swap = Box::pin(async move {
            let result = catch_panic(async { store.swap(writes).await }).await;
            result.unwrap_or_else(|panicked| Err(Error::Indeterminate(panicked.0)))
        });
        match poll_once(swap.as_mut()) {
            Poll::Ready(result) => complete(self, result),
            Poll::Pending => {
                let inner = Arc::clone(self);
                let is_only_call = self.is_only_call(count);
                self.runtime.spawn(async move {
                    let swap = tokio::time::timeout(timeout, swap);
                    let result = match is_only_call {
                        true => inner.spin.wait_for(swap).await,
                        false => swap.await,
                    };
                    let timed_out = |_| Err(Error::Indeterminate(no_answer_message(timeout)));
                    complete(&inner, result.unwrap_or_else(timed_out));
                    inner.drive();
                });
            }
        }
    }

    /// Loads records.
    fn load(self: &Arc<Self>, sent: BootTime, load: Load) {
        let Load { number, names } = load;
        let count = names.len();
        let inner = Arc::clone(self);
        let mut load = Box::pin(async move {
            let result: Result<Answer<Vec<Option<Stored>>>> =
                with_timeout(inner.config.timeout, inner.store.load(&names)).await;
            let call = inner.call_info(number, sent);
            inner.metrics.load.took(call.received.since(sent));
            inner.complete_load(call, names, result);
        });
        if poll_once(load.as_mut()).is_pending() {
            let inner = Arc::clone(self);
            let is_only_call = self.is_only_call(count);
            self.runtime.spawn(async move {
                match is_only_call {
                    true => inner.spin.wait_for(load).await,
                    false => load.await,
                }
                inner.drive();
            });
        }
    }

    /// Whether this call, which was just sent, has one name and is the only call in flight.
    fn is_only_call(&self, names: usize) -> bool {
        let in_flight = |table: &Table| table.swapping + table.loading;
        names == 1 && in_flight(&self.table()) == 1
    }

    fn call_info(&self, number: u64, sent: BootTime) -> CallInfo {
        CallInfo {
            number,
            sent,
            received: self.host.boot_time(),
        }
    }
}

/// Polls a future once, without a waker. If it is pending, a task must poll it again.
fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

impl Table {
    /// Takes the next names to load, or a single one that must be loaded alone.
    fn take_to_load(&mut self, max: usize) -> Vec<Name> {
        let mut names = Vec::new();
        while names.len() < max
            && let Some(name) = self.to_load.pop_front()
        {
            let Some(entry) = self.entries.get_mut(&name) else {
                continue;
            };
            if entry.load_alone && !names.is_empty() {
                self.to_load.push_front(name);
                break;
            }
            (entry.listed, entry.busy) = (false, true);
            let load_alone = std::mem::take(&mut entry.load_alone);
            names.push(name);
            if load_alone {
                break;
            }
        }
        names
    }
}
