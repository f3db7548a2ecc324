//! What a client knows of gates without asking the store: which are shut, and for which somebody is asking already.
//!
//! It only ever refuses, and may forget anything at any moment: then the store is asked.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{BootTime, Name};
use tokio::sync::watch;

use crate::{Error, Result};

/// The most gates remembered.
const MOST: usize = 10_000;

/// The gates of a client.
#[derive(Default)]
pub(super) struct Gatehouse {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    shut: HashMap<Name, Shut>,
    asking: HashMap<Name, watch::Receiver<Option<Answer>>>,
    /// How often a gate was opened again: an answer from before means nothing afterwards.
    opened: u64,
}

/// A gate that was seen shut.
struct Shut {
    seen: BootTime,
    until: BootTime,
}

/// Until when the gate is shut, or why that could not be told.
pub(super) type Answer = Result<BootTime>;

/// What a call at a gate is to do.
pub(super) enum Admission<'g> {
    /// Go away: it is shut until then.
    Shut(BootTime),
    /// Wait for what another is told, who is asking already.
    Wait(watch::Receiver<Option<Answer>>),
    /// Ask the store.
    Ask(Asking<'g>),
}

impl Gatehouse {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a call is to do that believes what was seen at most `cache_for` ago.
    pub(super) fn enter(&self, name: &Name, now: BootTime, cache_for: Duration) -> Admission<'_> {
        let mut known = self.known();
        if let Some(shut) = known.shut.get(name)
            && now < shut.until.min(shut.seen + cache_for)
        {
            return Admission::Shut(shut.until);
        }
        if let Some(answer) = known.asking.get(name) {
            return Admission::Wait(answer.clone());
        }
        let (answer, waiting) = watch::channel(None);
        known.asking.insert(name.clone(), waiting);
        Admission::Ask(Asking {
            gates: self,
            name: name.clone(),
            answer,
            opened: known.opened,
            caches: !cache_for.is_zero(),
        })
    }

    /// Forgets that a gate was shut: it was opened again.
    pub(super) fn opened(&self, name: &Name) {
        let mut known = self.known();
        known.opened += 1;
        known.shut.remove(name);
    }
}

impl Known {
    fn remember(&mut self, name: &Name, shut: Shut) {
        if self.shut.len() >= MOST {
            self.shut.retain(|_, known| shut.seen < known.until);
            // Half of it at least, so that this is seldom.
            if self.shut.len() > MOST / 2 {
                self.shut.clear();
            }
        }
        self.shut.insert(name.clone(), shut);
    }
}

/// Whoever asks the store, for all who wait for the answer. If it goes away without one, another asks.
pub(super) struct Asking<'g> {
    gates: &'g Gatehouse,
    name: Name,
    answer: watch::Sender<Option<Answer>>,
    opened: u64,
    caches: bool,
}

impl Asking<'_> {
    /// The gate is shut, for whoever comes now: by the one who asked, or by somebody else.
    pub(super) fn shut(self, seen: BootTime, until: BootTime) {
        let mut known = self.gates.known();
        if self.caches && self.opened == known.opened {
            known.remember(&self.name, Shut { seen, until });
        }
        drop(known);
        self.answer.send_replace(Some(Ok(until)));
    }

    /// There is no telling. An error in the call itself concerns nobody else.
    pub(super) fn failed(self, error: &Error) {
        if !matches!(error, Error::Invalid(_)) {
            self.answer.send_replace(Some(Err(error.clone())));
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.gates.known().asking.remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_gates_are_remembered() {
        let gates = Gatehouse::default();
        let minute = Duration::from_secs(60);
        for number in 0..3 * MOST {
            let (name, now) = (gate(number), BootTime::from_micros(1));
            let Admission::Ask(asking) = gates.enter(&name, now, minute) else {
                panic!("nothing is known of {name}");
            };
            asking.shut(now, now + minute);
            let shut = matches!(gates.enter(&name, now, minute), Admission::Shut(_));
            assert!(shut, "the latest is known");
            assert!(gates.known().shut.len() <= MOST);
        }
        assert!(gates.known().asking.is_empty());
    }

    fn gate(number: usize) -> Name {
        Name::gate(number.to_string()).expect("a good name")
    }
}
