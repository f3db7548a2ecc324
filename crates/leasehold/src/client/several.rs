//! Several leases at once.

use std::task::Poll;
use std::time::Duration;

use leasehold_core::{BootTime, Fence, Name, Text};
use tokio::runtime::Handle;

use super::asking::Asking;
use super::{Client, Lease};
use crate::{AcquireAllRequest, AcquiredAll, Claimed, Error, Holding, Result};

/// Several leases to be taken, all or none. Nothing happens until [`acquire`](Self::acquire).
///
/// They are taken in the order of their names, whatever order they are given in, so that two who want the same never
/// wait for each other.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// let accounts = client.lease_all(["bob", "ada"]).acquire().await?;
/// assert!(client.lease("ada").acquire().await.is_err());
/// for (name, fence) in accounts.fences() {
///     println!("{name} is ours with fence {fence}");
/// }
/// accounts.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is taken until `acquire`"]
pub struct SeveralBuilder {
    client: Client,
    names: Vec<String>,
    ttl: Duration,
    wait: Duration,
    owner: Text,
}

impl SeveralBuilder {
    pub(super) fn new(client: Client, names: Vec<String>) -> Self {
        Self {
            names,
            ttl: Duration::from_secs(30),
            wait: Duration::ZERO,
            owner: client.owner().clone(),
            client,
        }
    }

    /// How long the leases outlive their holder's last sign of life: 30 s unless told otherwise.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait for all of them together: not at all unless told otherwise.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Waits for as long as it takes.
    pub fn wait_forever(self) -> Self {
        self.wait(Duration::MAX)
    }

    /// Who asks, for people: `host:pid` unless told otherwise.
    pub fn owner(mut self, owner: impl Into<Text>) -> Self {
        self.owner = owner.into();
        self
    }

    /// Takes all of them, or none: [`Error::Held`] when somebody else has one, also after waiting. A call that is
    /// dropped while it waits leaves nothing behind.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn acquire(self) -> Result<Several> {
        let runtime = Handle::current();
        let names = self.names.iter().map(Name::lock);
        let mut request = AcquireAllRequest {
            names: names.collect::<Result<_, _>>()?,
            nonce: self.client.fresh_nonce()?,
            owner: self.owner.clone(),
            ttl: self.ttl,
            wait: Duration::ZERO,
        };
        let mut asking = Asking::new(&self.client, self.wait, self.ttl);
        loop {
            request.wait = asking.next_wait();
            let granted = match self.client.leases().acquire_all(request.clone()).await? {
                AcquiredAll::Granted(granted) => granted,
                AcquiredAll::Held(..) if asking.has_time() => continue,
                AcquiredAll::Held(_, held) => return Err(Error::Held(held)),
            };
            let now = self.client.now();
            if granted.iter().all(|lease| now < lease.hold.deadline) {
                // No await between the grants and their guards: a caller that goes away now drops the guards.
                let guard = |Claimed { name, hold }| {
                    Lease::new(self.client.clone(), name, hold, runtime.clone())
                };
                let leases = granted.into_iter().map(guard).collect();
                return Ok(Several { leases });
            }
            if let Err(too_short) = asking.late() {
                for Claimed { name, hold } in granted {
                    let who = Holding::Fence(hold.grant.fence);
                    let _ = self.client.leases().release(&name, who).await;
                }
                return Err(too_short);
            }
        }
    }
}

/// Several leases that this process holds, to be obeyed as one: when [one is lost](Self::lost), the work stops.
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # async fn unprotected(client: leasehold::Client) -> leasehold::Result<()> {
/// client.lease_all(["ada", "bob"]).acquire().await?; // released at once
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "leases that are not kept are released at once: give them a name, such as `_leases`"]
pub struct Several {
    leases: Vec<Lease>,
}

impl Several {
    /// The leases, in the order of their names, each once.
    pub fn leases(&self) -> &[Lease] {
        &self.leases
    }

    /// The names and their fencing tokens.
    pub fn fences(&self) -> impl Iterator<Item = (&Name, Fence)> {
        let leases = self.leases.iter();
        leases.map(|lease| (lease.name(), lease.fence()))
    }

    /// Until when its holder may believe in all of them unless they are renewed, by this machine's boot clock.
    pub fn deadline(&self) -> BootTime {
        let deadlines = self.leases.iter().map(Lease::deadline);
        deadlines.min().unwrap_or_default()
    }

    /// Whether one of them is lost.
    pub fn is_lost(&self) -> bool {
        self.leases.iter().any(Lease::is_lost)
    }

    /// Completes once one of them is lost, as [`Lease::lost`] does.
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

    /// Lets go of all of them. Whether all were still held. An error leaves those that it concerns to expire; the
    /// others are released all the same.
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

    /// The leases, each to go its own way.
    pub fn into_leases(self) -> Vec<Lease> {
        self.leases
    }
}
