//! Calls the store: collects what is ready into batches, and carries them out.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use leasehold_core::{BootTime, Name, Record};

use super::plan::{Plan, Planned};
use super::table::Table;
use super::{Inner, bounded, silence};
use crate::Error;
use crate::store::{Write, WriteId};

/// One call of the store.
enum Call {
    Load {
        number: u64,
        names: Vec<Name>,
    },
    Swap {
        number: u64,
        writes: Vec<Write>,
        planned: Vec<Vec<Planned>>,
    },
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
    pub(super) put: Option<(WriteId, Record)>,
    pub(super) planned: Vec<Planned>,
}

impl Inner {
    /// Starts whatever calls of the store are possible now. A store that answers at once is answered for at once,
    /// without a hop to another task.
    pub(super) fn drive(self: &Arc<Self>) {
        loop {
            let calls = self.collect();
            if calls.is_empty() {
                return;
            }
            let _runtime = self.runtime.enter();
            for call in calls {
                let mut running = Box::pin(Arc::clone(self).execute(call));
                let mut context = Context::from_waker(Waker::noop());
                if running.as_mut().poll(&mut context).is_pending() {
                    let inner = Arc::clone(self);
                    self.runtime.spawn(async move {
                        running.await;
                        inner.drive();
                    });
                }
            }
        }
    }

    /// Plans what is ready, as far as calls of the store are free for it.
    fn collect(self: &Arc<Self>) -> Vec<Call> {
        let boot = self.host.boot_time();
        let mut table = self.table();
        let mut calls = Vec::new();
        if table.swapping < self.facts.in_flight {
            let (mut writes, mut planned) = (Vec::new(), Vec::new());
            while writes.len() < self.facts.batch
                && let Some(name) = table.ready.pop_front()
            {
                if let Some((write, operations)) = self.plan_one(&mut table, &name, boot) {
                    writes.push(write);
                    planned.push(operations);
                }
            }
            if !writes.is_empty() {
                table.swapping += 1;
                table.counts.swaps += 1;
                self.measures.batch.add(writes.len() as u64);
                calls.push(Call::Swap {
                    number: table.next_number(),
                    writes,
                    planned,
                });
            }
        }
        if table.loading < self.facts.in_flight && !table.to_load.is_empty() {
            let names = table.take_to_load(self.facts.batch);
            table.loading += 1;
            table.counts.loads += 1;
            calls.push(Call::Load {
                number: table.next_number(),
                names,
            });
        }
        calls
    }

    /// Plans one name, and answers what needs no write.
    fn plan_one(
        self: &Arc<Self>,
        table: &mut Table,
        name: &Name,
        boot: BootTime,
    ) -> Option<(Write, Vec<Planned>)> {
        if let Some(entry) = table.entries.get_mut(name) {
            entry.listed = false;
        }
        let (load, answered) = match table.plan(name, boot, &*self.host) {
            Plan::Write(write, planned) => {
                table.entries.get_mut(name)?.busy = true;
                return Some((write, planned));
            }
            Plan::Load(answered) => (true, answered),
            Plan::Answer(answered) => (false, answered),
        };
        for Planned {
            pending, outcome, ..
        } in answered
        {
            let told = pending.honest(outcome);
            self.deliver(table, name, pending, told, None);
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

    async fn execute(self: Arc<Self>, call: Call) {
        let sent = self.host.boot_time();
        let timeout = self.config.timeout;
        match call {
            Call::Load { number, names } => {
                let result = bounded(timeout, self.store.load(&names)).await;
                let times = Times {
                    number,
                    sent,
                    received: self.host.boot_time(),
                };
                self.measures.load.took(times.received.since(sent));
                self.conclude_load(times, names, result);
            }
            Call::Swap {
                number,
                writes,
                planned,
            } => {
                let carried = writes.iter().zip(planned).map(|(write, planned)| Written {
                    name: write.name.clone(),
                    base: write.expect.as_ref().map(|version| version.write),
                    put: write.put.clone(),
                    planned,
                });
                let carried: Vec<_> = carried.collect();
                let mut swapping = self.store.swap(writes);
                // A store that answers at once needs no timer.
                let first = poll_fn(|context| Poll::Ready(swapping.as_mut().poll(context)));
                let result = match first.await {
                    Poll::Ready(result) => result,
                    Poll::Pending => tokio::time::timeout(timeout, swapping)
                        .await
                        .unwrap_or_else(|_| Err(Error::Indeterminate(silence(timeout)))),
                };
                let times = Times {
                    number,
                    sent,
                    received: self.host.boot_time(),
                };
                self.measures.swap.took(times.received.since(sent));
                self.conclude_swap(times, carried, result);
            }
        }
    }
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
