//! Checks that the store accepts writes.

use std::sync::Arc;

use leasehold_core::{Fence, Name, Record, Text};

use super::Engine;
use super::store_call::with_timeout;
use crate::store::{Swapped, Version, Write, WriteId};
use crate::{Error, Result};

/// The prefix of the names of probe records. Hints about them are ignored.
const PREFIX: &str = "leasehold/readyz/";

pub(super) fn is_probe(name: &Name) -> bool {
    name.as_str().starts_with(PREFIX)
}

impl Engine {
    /// Checks that the store accepts writes: inserts an empty record and deletes it.
    ///
    /// Its name starts with `leasehold/readyz/` and is unique to this engine, so that engines do not conflict. The
    /// record of an interrupted probe is deleted by the next probe, or by a purge.
    pub async fn probe(&self) -> Result<()> {
        let name = self.inner.probe_name.clone();
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
            Swapped::Conflict(Some(leftover)) => leftover.version,
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
            // A conflict: the write was delivered twice on the network, or a purge was faster.
            Swapped::Written { .. } | Swapped::Conflict(_) => Ok(()),
        }
    }

    async fn write_probe(&self, write: Write) -> Result<Swapped> {
        let inner = &self.inner;
        let sent = inner.host.boot_time();
        let swapped = with_timeout(inner.config.timeout, inner.store.swap(vec![write])).await;
        let received = inner.host.boot_time();
        inner.metrics.swap.took(received.since(sent));
        let failed = |failure: &Error| inner.metrics.count_failure(failure, received);
        let mut answer = swapped.inspect_err(failed)?;
        inner.table().observe_time(sent, received, answer.stamp);
        let swapped = answer.value.pop();
        if let Some(Swapped::Failed(failure)) = &swapped {
            failed(failure);
        }
        swapped.ok_or_else(|| Error::Corrupt("the store answered a write without a result".into()))
    }
}

/// Returns the name of an engine's probe record.
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
