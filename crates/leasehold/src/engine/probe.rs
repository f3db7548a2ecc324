//! Proves that the store takes writes.

use std::sync::Arc;

use leasehold_core::{Fence, Name, Record, Text};

use super::Engine;
use super::bounded::bounded;
use crate::store::{Swapped, Version, Write, WriteId};
use crate::{Error, Result};

/// What the names of probe records start with. Hints about them are ignored.
const PREFIX: &str = "leasehold/readyz/";

pub(super) fn is_probe(name: &Name) -> bool {
    name.as_str().starts_with(PREFIX)
}

impl Engine {
    /// Proves that the store takes writes: inserts an empty record and deletes it again.
    ///
    /// Its name starts with `leasehold/readyz/` and is this engine's own, so that engines do not conflict. What an
    /// interrupted probe leaves behind is deleted by the next one, or by a purge.
    pub async fn probe(&self) -> Result<()> {
        let name = self.inner.probe.clone();
        let write = WriteId(self.inner.host.random());
        let record = empty(Fence::starting_at(self.store_time().latest));
        let inserted = self
            .write_probe(Write {
                name: name.clone(),
                expect: None,
                put: Some((write, Arc::new(record))),
                body_changed: true,
            })
            .await?;
        let written = match inserted {
            Swapped::Written { tag } => Version { write, tag },
            Swapped::Conflict(Some(left)) => left.version,
            Swapped::Conflict(None) => return Ok(()),
            Swapped::Failed(failure) => return Err(failure),
        };
        let deleted = self
            .write_probe(Write {
                name,
                expect: Some(written),
                put: None,
                body_changed: true,
            })
            .await?;
        match deleted {
            Swapped::Failed(failure) => Err(failure),
            // A conflict: a middlebox has delivered the write twice, or a purge was faster.
            Swapped::Written { .. } | Swapped::Conflict(_) => Ok(()),
        }
    }

    async fn write_probe(&self, write: Write) -> Result<Swapped> {
        let inner = &self.inner;
        let sent = inner.host.boot_time();
        let swapped = bounded(inner.config.timeout, inner.store.swap(vec![write])).await;
        let received = inner.host.boot_time();
        inner.measures.swap.took(received.since(sent));
        let failed = |failure: &Error| inner.measures.failed(failure, received);
        let mut answer = swapped.inspect_err(failed)?;
        inner.table().learn_time(sent, received, answer.stamp);
        let swapped = answer.value.pop();
        if let Some(Swapped::Failed(failure)) = &swapped {
            failed(failure);
        }
        swapped.ok_or_else(|| Error::Corrupt("the store has answered for no write".into()))
    }
}

/// The name of an engine's probe record.
pub(super) fn name(random: u128) -> Name {
    Name::lock(format!("{PREFIX}{random:032x}")).expect("short, and without control characters")
}

fn empty(fence: Fence) -> Record {
    Record {
        fence,
        holders: Vec::new(),
        last: None,
        next: None,
        body: Text::default(),
        state: None,
        put: None,
    }
}
