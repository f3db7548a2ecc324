//! How a lease is taken.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Fence, Mode, Name, Nonce, Text};
use tokio::runtime::Handle;

use super::asking::Asking;
use super::{Client, Lease};
use crate::{AcquireRequest, Acquired, Error, Holding, Result};

/// A lease to be taken. Nothing happens until [`acquire`](Self::acquire) or [`run`](Self::run).
#[derive(Clone, Debug)]
#[must_use = "nothing is taken until `acquire` or `run`"]
pub struct LeaseBuilder {
    client: Client,
    name: String,
    ttl: Duration,
    wait: Duration,
    owner: Text,
    nonce: Option<String>,
    mode: Mode,
    fence: Option<Fence>,
}

impl LeaseBuilder {
    pub(super) fn new(client: Client, name: String) -> Self {
        Self {
            name,
            ttl: Duration::from_secs(30),
            wait: Duration::ZERO,
            owner: client.owner().clone(),
            nonce: None,
            mode: Mode::Exclusive,
            fence: None,
            client,
        }
    }

    /// How long the lease outlives its holder's last sign of life: 30 s unless told otherwise. It is renewed by
    /// itself, so this says how soon others take over after a crash, not how long the work may take.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait in line while somebody else holds it: not at all unless told otherwise.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Waits in line for as long as it takes.
    pub fn wait_forever(self) -> Self {
        self.wait(Duration::MAX)
    }

    /// Who asks, for people: `host:pid` unless told otherwise.
    pub fn owner(mut self, owner: impl Into<Text>) -> Self {
        self.owner = owner.into();
        self
    }

    /// What identifies this acquisition; random unless told otherwise. Whoever asks again with the same nonce says
    /// that its earlier self is gone: it gets the lease at once, and the earlier fence is dead. The lease never expires
    /// earlier than before: a shorter [`ttl`](Self::ttl) counts once the longer one would be over.
    pub fn nonce(mut self, nonce: impl Into<String>) -> Self {
        self.nonce = Some(nonce.into());
        self
    }

    /// Shares the lease with others that ask for the same `limit`: at most so many at once (`None`: as many as a
    /// record can hold), and never together with an exclusive holder.
    pub fn shared(mut self, limit: impl Into<Option<u16>>) -> Self {
        self.mode = Mode::Shared {
            limit: limit.into(),
        };
        self
    }

    /// The fence that the caller holds already. With the same nonce it is kept, not replaced by a higher one.
    pub fn fence(mut self, fence: Fence) -> Self {
        self.fence = Some(fence);
        self
    }

    /// Takes the lease: [`Error::Held`] when somebody else has it, also after waiting.
    ///
    /// A call that is dropped while it waits leaves nothing behind. After [`Error::Indeterminate`] the lease may be
    /// taken, until its ttl is over: the same [`nonce`](Self::nonce) gets it.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn acquire(self) -> Result<Lease> {
        let runtime = Handle::current();
        let mut request = self.request()?;
        let mut asking = Asking::new(&self.client, self.wait, self.ttl);
        loop {
            request.wait = asking.next_wait();
            match self.client.leases().acquire(request.clone()).await? {
                // No await between the grant and its guard: a caller that goes away now drops the guard.
                Acquired::Granted(hold) if self.client.now() < hold.deadline => {
                    return Ok(Lease::new(self.client.clone(), request.name, hold, runtime));
                }
                Acquired::Granted(hold) => {
                    if let Err(too_short) = asking.late() {
                        let who = Holding::Fence(hold.grant.fence);
                        let _ = self.client.leases().release(&request.name, who).await;
                        return Err(too_short);
                    }
                }
                Acquired::Held(_) if asking.has_time() => {}
                Acquired::Held(held) => return Err(Error::Held(held)),
            }
        }
    }

    /// Takes the lease, does the work, and lets go once the work has returned.
    ///
    /// If the lease is lost, the work is cancelled, and the reason returned: [`Error::Expired`] or
    /// [`Error::Fenced`]. Cancelled means dropped at its next `await`: what it has spawned is its own to stop.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let fence = client.lease("x").run(|lease| async move { lease.fence() }).await?;
    /// # assert!(fence.get() > 0);
    /// # Ok(()) }
    /// ```
    pub async fn run<T, F, Work>(self, work: F) -> Result<T>
    where
        F: FnOnce(Arc<Lease>) -> Work,
        Work: Future<Output = T>,
    {
        let lease = Arc::new(self.acquire().await?);
        let done = {
            let mut work = std::pin::pin!(work(lease.clone()));
            tokio::select! {
                biased;
                reason = lease.standing().wait_for(|| lease.standing().lost()) => Err(reason),
                done = &mut work => Ok(done),
            }
        };
        // Only now, when the work and all it held is gone.
        let released = lease.let_go().await;
        if let Err(error) = released {
            tracing::debug!(name = %lease.name(), %error, "not released: left to expire");
        }
        done
    }

    fn request(&self) -> Result<AcquireRequest> {
        let nonce = match &self.nonce {
            Some(nonce) => Nonce::new(nonce)?,
            None => self.client.fresh_nonce()?,
        };
        Ok(AcquireRequest {
            name: Name::lock(&self.name)?,
            nonce,
            owner: self.owner.clone(),
            ttl: self.ttl,
            mode: self.mode,
            fence: self.fence,
            wait: self.wait,
        })
    }
}
