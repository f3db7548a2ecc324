//! A real store that can be made to fail.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use leasehold::core::Name;
use leasehold::host::{Host as _, Machine};
use leasehold::store::{Answer, Facts, Page, Query, Store, Stored, Swapped, Write, WriteId};
use leasehold::{Error, Result};
use tokio::sync::watch;

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It happens, but the answer is lost.
    AppliedButLost,
    /// It does not happen, and nobody can tell.
    Lost,
    /// It does not happen, and that is known.
    Unavailable,
    /// It is sent twice, as by a proxy or a driver that retries: the answer is the second one.
    Repeated,
    /// Another writer gets there first.
    Overtaken,
    /// It does not happen, and the call panics.
    Panics,
    /// It happens, and the call panics.
    AppliedAndPanics,
    /// It does not happen, and will not before an administrator acts.
    Denied,
}

/// Returns the error of a call that surely did not happen.
fn refusal(fault: Fault) -> Error {
    let why = "the test says so".into();
    match fault {
        Fault::Denied => Error::Denied(why),
        _ => Error::Unavailable(why),
    }
}

/// A store that fails when it is told to.
pub(crate) struct Faulty<S> {
    store: S,
    swaps: Mutex<VecDeque<Fault>>,
    loads: Mutex<VecDeque<Fault>>,
    swap_gate: Mutex<Option<Gate>>,
    load_gate: Mutex<Option<Gate>>,
    find_gate: Mutex<Option<Gate>>,
}

/// Holds calls back until it is opened; a gate that is never opened is a store that hangs.
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

    /// Until the first call is held back.
    pub(crate) async fn entered(&self) {
        self.entered
            .subscribe()
            .wait_for(|entered| *entered)
            .await
            .expect("the gate is here");
    }

    /// Lets everything through.
    pub(crate) fn open(&self) {
        self.is_open.send_replace(true);
    }

    async fn pass(&self) {
        self.entered.send_replace(true);
        self.is_open
            .subscribe()
            .wait_for(|open| *open)
            .await
            .expect("the gate is here");
    }
}

impl<S: Store> Faulty<S> {
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

    /// Makes another version of a record, as another writer does.
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
impl<S: Store> Store for Faulty<S> {
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
            Some(Fault::Panics) => panic!("the test says so"),
            Some(fault) => Err(refusal(fault)),
        }
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        let gate = self.swap_gate.lock().expect("not poisoned").clone();
        if let Some(gate) = gate {
            gate.pass().await;
        }
        let lost = Err(Error::Indeterminate("the test says so".into()));
        match next(&self.swaps) {
            None => self.store.swap(writes).await,
            Some(Fault::AppliedButLost) => {
                self.store.swap(writes).await?;
                lost
            }
            Some(Fault::Lost) => lost,
            Some(fault @ (Fault::Unavailable | Fault::Denied)) => Err(refusal(fault)),
            Some(Fault::Panics) => panic!("the test says so"),
            Some(Fault::AppliedAndPanics) => {
                self.store.swap(writes).await?;
                panic!("the test says so")
            }
            Some(Fault::Overtaken) => {
                for write in &writes {
                    self.touch(&write.name).await?;
                }
                self.store.swap(writes).await
            }
            Some(Fault::Repeated) => {
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
