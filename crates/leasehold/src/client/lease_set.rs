//! Several leases, acquired all or none.

use std::task::Poll;
use std::time::Duration;

use leasehold_core::{BootTime, Fence, Name, Text};
use tokio::runtime::Handle;

use super::attempts::Attempts;
use super::{Client, Lease};
use crate::{AcquireAllOutcome, AcquireAllRequest, Error, HolderKey, NamedHold, Result};

/// Options for acquiring several leases, all or none. Nothing happens until [`acquire`](Self::acquire).
///
/// The leases are acquired in the order of their names, so that two clients that acquire the same ones cannot deadlock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// let accounts = client.lease_all(["bob", "ada"]).acquire().await?;
/// assert!(client.lease("ada").acquire().await.is_err());
/// for (name, fence) in accounts.fences() {
///     println!("{name} is held with fence {fence}");
/// }
/// accounts.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is acquired until `acquire`"]
pub struct LeaseSetBuilder {
    client: Client,
    names: Vec<String>,
    ttl: Duration,
    wait: Duration,
    owner: Text,
}

impl LeaseSetBuilder {
    pub(super) fn new(client: Client, names: Vec<String>) -> Self {
        Self {
            names,
            ttl: Duration::from_secs(30),
            wait: Duration::ZERO,
            owner: client.owner().clone(),
            client,
        }
    }

    /// Sets how long the leases last without a renewal: 30 s by default.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how long to wait for all leases together: no time by default.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Waits without a timeout.
    pub fn wait_forever(self) -> Self {
        self.wait(Duration::MAX)
    }

    /// Sets the description of the holder that other clients see: `host:pid` by default.
    pub fn owner(mut self, owner: impl Into<Text>) -> Self {
        self.owner = owner.into();
        self
    }

    /// Acquires all leases, or none. A call that is dropped while it waits leaves nothing behind.
    ///
    /// # Errors
    /// [`Error::Held`] if another client still holds one of them after the wait.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn acquire(self) -> Result<LeaseSet> {
        let runtime = Handle::current();
        let names = self.names.iter().map(Name::lock);
        let mut request = AcquireAllRequest {
            names: names.collect::<Result<_, _>>()?,
            nonce: self.client.new_nonce()?,
            owner: self.owner.clone(),
            ttl: self.ttl,
            wait: Duration::ZERO,
        };
        let mut attempts = Attempts::new(&self.client, self.wait, self.ttl);
        loop {
            request.wait = attempts.next_wait();
            let granted = match self.client.leases().acquire_all(request.clone()).await? {
                AcquireAllOutcome::Granted(granted) => granted,
                AcquireAllOutcome::Held(..) if attempts.can_wait_longer() => continue,
                AcquireAllOutcome::Held(_, held) => return Err(Error::Held(held)),
            };
            let now = self.client.now();
            if granted.iter().all(|lease| now < lease.hold.deadline) {
                // No await between the grants and their guards: a caller that is cancelled now drops the guards.
                let guard = |NamedHold { name, hold }| {
                    Lease::new(self.client.clone(), name, hold, runtime.clone())
                };
                let leases = granted.into_iter().map(guard).collect();
                return Ok(LeaseSet { leases });
            }
            if let Err(too_short) = attempts.count_late_grant() {
                for NamedHold { name, hold } in granted {
                    let holder = HolderKey::Fence(hold.grant.fence);
                    let _ = self.client.leases().release(&name, holder).await;
                }
                return Err(too_short);
            }
        }
    }
}

/// Several leases that this process holds. The work under them must stop when [one is lost](Self::lost).
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # async fn unprotected(client: leasehold::Client) -> leasehold::Result<()> {
/// client.lease_all(["ada", "bob"]).acquire().await?; // released at once
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "leases are released when they are dropped: bind them to a variable, such as `_leases`"]
pub struct LeaseSet {
    leases: Vec<Lease>,
}

impl LeaseSet {
    /// Returns the leases, in the order of their names, without duplicates.
    pub fn leases(&self) -> &[Lease] {
        &self.leases
    }

    /// Returns the names and their fencing tokens.
    pub fn fences(&self) -> impl Iterator<Item = (&Name, Fence)> {
        let leases = self.leases.iter();
        leases.map(|lease| (lease.name(), lease.fence()))
    }

    /// Returns until when the holder may rely on all leases unless they are renewed, by this machine's boot clock.
    pub fn deadline(&self) -> BootTime {
        let deadlines = self.leases.iter().map(Lease::deadline);
        deadlines.min().unwrap_or_default()
    }

    /// Returns whether one of the leases is lost.
    pub fn is_lost(&self) -> bool {
        self.leases.iter().any(Lease::is_lost)
    }

    /// Waits until one of the leases is lost, and returns the reason. See [`Lease::lost`].
    pub fn lost(&self) -> impl Future<Output = Error> + Send + use<> {
        let losses = self.leases.iter().map(|lease| Box::pin(lease.lost()));
        let mut losses: Vec<_> = losses.collect();
        std::future::poll_fn(move |context| {
            let lost = losses
                .iter_mut()
                .find_map(|loss| match loss.as_mut().poll(context) {
                    Poll::Ready(reason) => Some(reason),
                    Poll::Pending => None,
                });
            lost.map_or(Poll::Pending, Poll::Ready)
        })
    }

    /// Releases all leases. Returns whether all were still held. On an error the remaining leases are still released, and
    /// those that could not be released expire.
    pub async fn release(self) -> Result<bool> {
        let mut released = Ok(true);
        for lease in self.leases {
            released = match (released, lease.release().await) {
                (Ok(all), Ok(this)) => Ok(all && this),
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        released
    }

    /// Returns the leases as a vector, so that they can be released separately.
    pub fn into_leases(self) -> Vec<Lease> {
        self.leases
    }
}
