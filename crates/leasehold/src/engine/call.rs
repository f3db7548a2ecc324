//! Calls the store: collects what is ready into batches, and carries them out.

use std::pin::Pin;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker};

use leasehold_core::{BootTime, Name, Record};

use super::bounded::{bounded, caught, silence};
use super::plan::{Plan, Planned};
use super::table::Table;
use super::{Inner, caller};
use crate::store::{Answer, Stored, Swapped, Version, Write, WriteId};
use crate::{Error, Result};

/// Calls of the store that are possible now.
struct Calls {
    /// When they were planned, which is before they are sent.
    planned: BootTime,
    swap: Option<Swap>,
    load: Option<Load>,
}

struct Swap {
    number: u64,
    writes: Vec<Write>,
    carried: Vec<Written>,
}

struct Load {
    number: u64,
    names: Vec<Name>,
}

/// When a call was sent and answered, by the boot clock.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) number: u64,
    pub(super) sent: BootTime,
    pub(super) received: BootTime,
}

/// A write that is under way.
pub(super) struct Written {
    pub(super) name: Name,
    pub(super) base: Option<WriteId>,
    pub(super) put: Option<(WriteId, Arc<Record>)>,
    pub(super) planned: Vec<Planned>,
}

impl Written {
    /// Whether this write made that version.
    pub(super) fn made(&self, version: &Version) -> bool {
        self.put
            .as_ref()
            .is_some_and(|(write, _)| *write == version.write)
    }
}

impl Inner {
    /// Starts whatever calls of the store are possible now.
    pub(super) fn drive(self: &Arc<Self>) {
        self.drive_from(self.table());
    }

    /// The same, by whoever has the lock already. Before a call that blocks, or while another is under way, all tasks
    /// that are ready may queue what they want: fewer and larger calls. Otherwise nobody is waited for, and neither where
    /// nobody has come of late: whoever is alone calls the store itself.
    pub(super) fn drive_from<'t>(self: &'t Arc<Self>, mut table: MutexGuard<'t, Table>) {
        self.tell_idle(&table);
        if table.swapping > 0 || (self.blocks && !table.expects_nobody()) {
            return self.gather(table);
        }
        if self.blocks {
            if self.may_call(&table) && !table.gathering && self.call_gathered(table) {
                self.gather(self.table());
            }
            return;
        }
        while let Some(calls) = self.collect(&mut table) {
            drop(table);
            self.start(calls);
            table = self.table();
        }
    }

    /// Has the store called once everybody who is ready has had a turn; where its calls wait for a disk, on a thread that
    /// has nothing else to do.
    fn gather(self: &Arc<Self>, mut table: MutexGuard<'_, Table>) {
        if !self.may_call(&table) || std::mem::replace(&mut table.gathering, true) {
            return;
        }
        let committing = table.swapping > 0;
        drop(table);
        let caller = self.caller.thread();
        if let Some(caller) = caller.filter(|_| !committing) {
            return caller.unpark();
        }
        // While that thread is at a commit, what has to be loaded is loaded beside it.
        let only_loads = caller.is_some();
        let inner = Arc::clone(self);
        self.runtime.spawn(async move {
            tokio::task::yield_now().await;
            let called = match only_loads {
                true => inner.load_gathered(inner.table()),
                false => inner.call_gathered(inner.table()),
            };
            // Those who are ready by then are left to another task: this one's thread has answers to deliver.
            if called {
                inner.gather(inner.table());
            }
        });
    }

    /// Has the store show what all who are ready need; whether there was anything to show.
    fn load_gathered<'t>(self: &'t Arc<Self>, mut table: MutexGuard<'t, Table>) -> bool {
        table.gathering = false;
        let load = self.next_load(&mut table);
        drop(table);
        let Some(load) = load else { return false };
        self.load(self.host.boot_time(), load);
        true
    }

    /// Calls the store for all who are ready; whether there was anything to call it for.
    pub(super) fn call_gathered<'t>(self: &'t Arc<Self>, mut table: MutexGuard<'t, Table>) -> bool {
        table.gathering = false;
        if self.may_call(&table) {
            table.note_company();
        }
        // Where loading is a matter of this thread alone, what is loaded is written together with the rest.
        if self.blocks
            && let Some(load) = self.next_load(&mut table)
        {
            drop(table);
            let _runtime = self.runtime.enter();
            self.load(self.host.boot_time(), load);
            table = self.table();
        }
        let calls = self.collect(&mut table);
        // Nothing was left to ask the store for, and no answer of it will tell whoever closes the engine.
        self.tell_idle(&table);
        drop(table);
        // What needs no write does not wait for one.
        caller::send_outbox(self);
        let Some(calls) = calls else { return false };
        self.start(calls);
        caller::send_outbox(self);
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

    /// Whether a call of the store is free for something that is ready.
    fn may_call(&self, table: &Table) -> bool {
        let free = |calls| calls < self.facts.in_flight;
        (free(table.swapping) && !table.ready.is_empty())
            || (free(table.loading) && !table.to_load.is_empty())
    }

    /// Plans what is ready, as far as calls of the store are free for it.
    fn collect(self: &Arc<Self>, table: &mut Table) -> Option<Calls> {
        if !self.may_call(table) {
            return None;
        }
        let may_swap = table.swapping < self.facts.in_flight && !table.ready.is_empty();
        let planned = self.host.boot_time();
        let swap = may_swap.then(|| self.next_swap(table, planned)).flatten();
        // Planning may have found names that have to be loaded.
        let load = self.next_load(table);
        (swap.is_some() || load.is_some()).then_some(Calls {
            planned,
            swap,
            load,
        })
    }

    /// What has to be loaded, as one call, if one is free for it.
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

    /// What is ready to be written, as one call.
    fn next_swap(self: &Arc<Self>, table: &mut Table, boot: BootTime) -> Option<Swap> {
        let most = self.facts.batch.min(table.ready.len());
        let (mut writes, mut carried) = (Vec::with_capacity(most), Vec::with_capacity(most));
        while writes.len() < self.facts.batch
            && let Some(name) = table.ready.pop_front()
        {
            if let Some((write, planned)) = self.plan_one(table, &name, boot) {
                carried.push(Written {
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
        self.measures.batch.add(writes.len() as u64);
        Some(Swap {
            number: table.next_number(),
            writes,
            carried,
        })
    }

    /// Plans one name, and answers what needs no write.
    fn plan_one(
        self: &Arc<Self>,
        table: &mut Table,
        name: &Name,
        boot: BootTime,
    ) -> Option<(Write, Vec<Planned>)> {
        let (load, answered) = match table.plan(name, boot, &*self.host) {
            Plan::Write(write, planned) => return Some((write, planned)),
            Plan::Load(answered) => (true, answered),
            Plan::Answer(answered) => (false, answered),
        };
        for Planned {
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
            table.settle(name, boot, &*self.host, self.facts.poll);
        } else {
            table.make_ready(name, true);
        }
        None
    }

    /// Has the store write.
    fn swap(self: &Arc<Self>, sent: BootTime, swap: Swap) {
        let Swap {
            number,
            writes,
            carried,
        } = swap;
        let (timeout, count) = (self.config.timeout, writes.len());
        let concluded = move |inner: &Arc<Self>, result: Result<Answer<Vec<Swapped>>>| {
            let times = inner.times(number, sent);
            inner.measures.swap.took(times.received.since(sent));
            inner.conclude_swap(times, carried, result);
        };
        let store = Arc::clone(&self.store);
        let mut swapping = Box::pin(async move {
            let swapped = caught(async { store.swap(writes).await }).await;
            swapped.unwrap_or_else(|panicked| Err(Error::Indeterminate(panicked.0)))
        });
        match at_once(swapping.as_mut()) {
            Poll::Ready(result) => concluded(self, result),
            Poll::Pending => {
                let inner = Arc::clone(self);
                let alone = self.is_alone(count);
                self.runtime.spawn(async move {
                    let swapping = tokio::time::timeout(timeout, swapping);
                    let result = match alone {
                        true => inner.awake.look_for(swapping).await,
                        false => swapping.await,
                    };
                    let silent = |_| Err(Error::Indeterminate(silence(timeout)));
                    concluded(&inner, result.unwrap_or_else(silent));
                    inner.drive();
                });
            }
        }
    }

    /// Has the store show records.
    fn load(self: &Arc<Self>, sent: BootTime, load: Load) {
        let Load { number, names } = load;
        let count = names.len();
        let inner = Arc::clone(self);
        let mut running = Box::pin(async move {
            let result: Result<Answer<Vec<Option<Stored>>>> =
                bounded(inner.config.timeout, inner.store.load(&names)).await;
            let times = inner.times(number, sent);
            inner.measures.load.took(times.received.since(sent));
            inner.conclude_load(times, names, result);
        });
        if at_once(running.as_mut()).is_pending() {
            let inner = Arc::clone(self);
            let alone = self.is_alone(count);
            self.runtime.spawn(async move {
                match alone {
                    true => inner.awake.look_for(running).await,
                    false => running.await,
                }
                inner.drive();
            });
        }
    }

    /// Whether a call for so many names, which has just been sent, is for somebody who is alone.
    fn is_alone(&self, names: usize) -> bool {
        let under_way = |table: &Table| table.swapping + table.loading;
        names == 1 && under_way(&self.table()) == 1
    }

    fn times(&self, number: u64, sent: BootTime) -> Times {
        Times {
            number,
            sent,
            received: self.host.boot_time(),
        }
    }
}

/// What a future says at once. If it does not, it must be polled again soon, by somebody who can be woken.
fn at_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

impl Table {
    /// The next names to load: one alone, or many together.
    fn take_to_load(&mut self, most: usize) -> Vec<Name> {
        let mut names = Vec::new();
        while names.len() < most
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
            let alone = std::mem::take(&mut entry.load_alone);
            names.push(name);
            if alone {
                break;
            }
        }
        names
    }
}
