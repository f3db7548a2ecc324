//! A store with injected faults.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use leasehold::core::Name;
use leasehold::host::{Host as _, Machine};
use leasehold::store::{Answer, Facts, Page, Query, Store, Stored, Swapped, Write, WriteId};
use leasehold::{Error, Result};
use tokio::sync::watch;

/// A fault of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The call is performed, but its answer is lost.
    AnswerLost,
    /// The request is lost. To the caller this looks like a lost answer.
    RequestLost,
    /// The call is certainly not performed.
    Unavailable,
    /// The request is delivered twice, for example by a proxy that retries. The answer is the second one.
    DeliveredTwice,
    /// Another writer changes the record first.
    Conflict,
    /// The call panics before it is performed.
    Panic,
    /// The call panics after it was performed.
    AppliedThenPanic,
    /// The call is not performed, because a permission is missing.
    Denied,
}

/// Returns the error of a call that was certainly not performed.
fn refusal(fault: Fault) -> Error {
    let why = "injected by the test".into();
    match fault {
        Fault::Denied => Error::Denied(why),
        _ => Error::Unavailable(why),
    }
}

/// A store that fails on request.
pub(crate) struct FaultyStore<S> {
    store: S,
    swaps: Mutex<VecDeque<Fault>>,
    loads: Mutex<VecDeque<Fault>>,
    swap_gate: Mutex<Option<Gate>>,
    load_gate: Mutex<Option<Gate>>,
    find_gate: Mutex<Option<Gate>>,
}

/// Delays calls until it is opened. A gate that is never opened simulates a store that hangs.
#[derive(Clone)]
pub(crate) struct Gate {
    is_open: watch::Sender<bool>,
    entered: watch::Sender<bool>,
}

impl Gate {
    fn new() -> Self {
        Self {
            is_open: watch::channel(false).0,
            entered: watch::channel(false).0,
        }
    }

    /// Waits until the gate delays a call.
    pub(crate) async fn entered(&self) {
        self.entered
            .subscribe()
            .wait_for(|entered| *entered)
            .await
            .expect("the gate exists");
    }

    /// Lets all calls pass.
    pub(crate) fn open(&self) {
        self.is_open.send_replace(true);
    }

    async fn pass(&self) {
        self.entered.send_replace(true);
        self.is_open
            .subscribe()
            .wait_for(|open| *open)
            .await
            .expect("the gate exists");
    }
}

impl<S: Store> FaultyStore<S> {
    pub(crate) fn new(store: S) -> Arc<Self> {
        Arc::new(Self {
            store,
            swaps: Mutex::default(),
            loads: Mutex::default(),
            swap_gate: Mutex::default(),
            load_gate: Mutex::default(),
            find_gate: Mutex::default(),
        })
    }

    /// Writes another version of a record, like another writer.
    pub(crate) async fn touch(&self, name: &Name) -> Result<()> {
        let loaded = self.store.load(std::slice::from_ref(name)).await?;
        let Some(stored) = loaded.value.into_iter().next().flatten() else {
            return Ok(());
        };
        let write = Write {
            name: name.clone(),
            put: Some((WriteId(Machine.random()), stored.record)),
            expect: Some(stored.version),
            body_changed: false,
        };
        self.store.swap(vec![write]).await.map(drop)
    }

    pub(crate) fn next_swap(&self, fault: Fault) {
        self.swaps.lock().expect("not poisoned").push_back(fault);
    }

    pub(crate) fn next_load(&self, fault: Fault) {
        self.loads.lock().expect("not poisoned").push_back(fault);
    }

    pub(crate) fn hold_swaps(&self) -> Gate {
        self.swap_gate
            .lock()
            .expect("not poisoned")
            .insert(Gate::new())
            .clone()
    }

    pub(crate) fn hold_loads(&self) -> Gate {
        self.load_gate
            .lock()
            .expect("not poisoned")
            .insert(Gate::new())
            .clone()
    }

    pub(crate) fn hold_finds(&self) -> Gate {
        self.find_gate
            .lock()
            .expect("not poisoned")
            .insert(Gate::new())
            .clone()
    }
}

fn next(faults: &Mutex<VecDeque<Fault>>) -> Option<Fault> {
    faults.lock().expect("not poisoned").pop_front()
}

#[async_trait]
impl<S: Store> Store for FaultyStore<S> {
    fn facts(&self) -> Facts {
        self.store.facts()
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        let gate = self.load_gate.lock().expect("not poisoned").clone();
        if let Some(gate) = gate {
            gate.pass().await;
        }
        match next(&self.loads) {
            None => self.store.load(names).await,
            Some(Fault::Panic) => panic!("injected by the test"),
            Some(fault) => Err(refusal(fault)),
        }
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        let gate = self.swap_gate.lock().expect("not poisoned").clone();
        if let Some(gate) = gate {
            gate.pass().await;
        }
        let lost = Err(Error::Indeterminate("injected by the test".into()));
        match next(&self.swaps) {
            None => self.store.swap(writes).await,
            Some(Fault::AnswerLost) => {
                self.store.swap(writes).await?;
                lost
            }
            Some(Fault::RequestLost) => lost,
            Some(fault @ (Fault::Unavailable | Fault::Denied)) => Err(refusal(fault)),
            Some(Fault::Panic) => panic!("injected by the test"),
            Some(Fault::AppliedThenPanic) => {
                self.store.swap(writes).await?;
                panic!("injected by the test")
            }
            Some(Fault::Conflict) => {
                for write in &writes {
                    self.touch(&write.name).await?;
                }
                self.store.swap(writes).await
            }
            Some(Fault::DeliveredTwice) => {
                self.store.swap(writes.clone()).await?;
                self.store.swap(writes).await
            }
        }
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        let gate = self.find_gate.lock().expect("not poisoned").clone();
        if let Some(gate) = gate {
            gate.pass().await;
        }
        self.store.find(query).await
    }
}
