//! The builder of a lease.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Fence, Mode, Name, Nonce, Text};
use tokio::runtime::Handle;

use super::attempts::Attempts;
use super::{Client, Lease};
use crate::{AcquireOutcome, AcquireRequest, Error, HolderKey, Result};

/// Options for acquiring a lease. Nothing happens until [`acquire`](Self::acquire) or [`run`](Self::run).
#[derive(Clone, Debug)]
#[must_use = "nothing is acquired until `acquire` or `run`"]
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

    /// Sets how long the lease lasts without a renewal: 30 s by default.
    ///
    /// The lease is renewed automatically, so the ttl limits how soon it is free after a crash, not how long the work may
    /// take.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how long to wait in the queue while another client holds the lease: no time by default.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Waits in the queue without a timeout.
    pub fn wait_forever(self) -> Self {
        self.wait(Duration::MAX)
    }

    /// Sets the description of the holder that other clients see: `host:pid` by default.
    pub fn owner(mut self, owner: impl Into<Text>) -> Self {
        self.owner = owner.into();
        self
    }

    /// Sets the nonce, which identifies this acquisition: a random one by default.
    ///
    /// A second acquisition with the same nonce replaces the first one: it is granted at once, with a higher fence, and the
    /// earlier fence is refused from then on. Use it if the first process is known to be dead. It never shortens the lease: a
    /// shorter [`ttl`](Self::ttl) takes effect once the earlier one would have ended.
    pub fn nonce(mut self, nonce: impl Into<String>) -> Self {
        self.nonce = Some(nonce.into());
        self
    }

    /// Shares the lease with other clients that give the same `limit`.
    ///
    /// The limit is the maximum number of holders at once; `None` stands for as many as a record can have. A shared lease
    /// and an exclusive one are never held at the same time.
    pub fn shared(mut self, limit: impl Into<Option<u16>>) -> Self {
        self.mode = Mode::Shared {
            limit: limit.into(),
        };
        self
    }

    /// Sets the fence that the caller already holds. With the same nonce, the lease keeps this fence instead of getting a
    /// higher one.
    pub fn fence(mut self, fence: Fence) -> Self {
        self.fence = Some(fence);
        self
    }

    /// Acquires the lease.
    ///
    /// A call that is dropped while it waits leaves nothing behind.
    ///
    /// # Errors
    /// [`Error::Held`] if another client still holds the lease after the wait. After [`Error::Indeterminate`] the lease may
    /// be held until its ttl ends; another call with the same [`nonce`](Self::nonce) gets it.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn acquire(self) -> Result<Lease> {
        let runtime = Handle::current();
        let mut request = self.request()?;
        let mut attempts = Attempts::new(&self.client, self.wait, self.ttl);
        loop {
            request.wait = attempts.next_wait();
            match self.client.leases().acquire(request.clone()).await? {
                // No await between the grant and its guard: a caller that is cancelled now drops the guard.
                AcquireOutcome::Granted(hold) if self.client.now() < hold.deadline => {
                    return Ok(Lease::new(self.client.clone(), request.name, hold, runtime));
                }
                AcquireOutcome::Granted(hold) => {
                    if let Err(too_short) = attempts.count_late_grant() {
                        let holder = HolderKey::Fence(hold.grant.fence);
                        let _ = self.client.leases().release(&request.name, holder).await;
                        return Err(too_short);
                    }
                }
                AcquireOutcome::Held(_) if attempts.can_wait_longer() => {}
                AcquireOutcome::Held(held) => return Err(Error::Held(held)),
            }
        }
    }

    /// Acquires the lease, does the work, and releases the lease after the work has returned.
    ///
    /// If the lease is lost, the work is cancelled: it is dropped at its next `await`. Tasks that it has spawned continue,
    /// and it must stop them itself.
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire), and [`Error::Expired`] or [`Error::Fenced`] if the lease was lost.
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
        let result = {
            let mut work = std::pin::pin!(work(lease.clone()));
            tokio::select! {
                biased;
                reason = lease.shared_state().wait_for(|| lease.shared_state().loss()) => Err(reason),
                result = &mut work => Ok(result),
            }
        };
        // After the work was dropped, together with everything that it owned.
        let released = lease.release_shared().await;
        if let Err(error) = released {
            tracing::debug!(name = %lease.name(), %error, "cannot release the lease: it will expire");
        }
        result
    }

    fn request(&self) -> Result<AcquireRequest> {
        let nonce = match &self.nonce {
            Some(nonce) => Nonce::new(nonce)?,
            None => self.client.new_nonce()?,
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
