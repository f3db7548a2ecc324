//! Leader election.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Fence, Name, Text, Time};
use tokio::task::JoinHandle;

use super::{Client, Lease, LeaseBuilder};
use crate::host::sleep_until;
use crate::{Error, Result};

/// The delay before a candidate retries after an error.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// An election: the holder of the lease of this name leads.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// let election = client.election("scheduler").owner("node-1");
/// let term = election.lead().await?; // waits for its turn
/// let leader = election.leader().await?.expect("node-1 leads");
/// assert_eq!((&*leader.owner, leader.fence), ("node-1", term.fence()));
///
/// term.release().await?; // the next candidate leads at once
/// # assert_eq!(election.leader().await?, None);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens until `lead` or `campaign`"]
pub struct Election {
    client: Client,
    name: String,
    candidacy: LeaseBuilder,
}

/// The present leader of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Its description, for people.
    pub owner: Text,
    /// The fencing token of its term: higher than that of every earlier term.
    pub fence: Fence,
    /// When its term began, in store time.
    pub since: Time,
    /// The remaining time of its term, unless it renews it.
    pub left: Duration,
}

impl Election {
    pub(super) fn new(client: Client, name: String) -> Self {
        Self {
            candidacy: client.lease(&name).wait_forever(),
            client,
            name,
        }
    }

    /// Sets how long a term lasts without a renewal: 30 s by default.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.candidacy = self.candidacy.ttl(ttl);
        self
    }

    /// Sets the description of the candidate that other clients see: `host:pid` by default.
    pub fn owner(mut self, owner: impl Into<Text>) -> Self {
        self.candidacy = self.candidacy.owner(owner);
        self
    }

    /// Waits until this candidate leads, and returns its term.
    ///
    /// A term is a lease: it lasts until it is [lost](Lease::lost) or [released](Lease::release). After a release, the next
    /// candidate leads at once.
    pub async fn lead(&self) -> Result<Lease> {
        self.candidacy.clone().acquire().await
    }

    /// Returns the present leader, if there is one.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        let view = self.client.leases().show(&Name::lock(&self.name)?).await?;
        let leader = view.and_then(|view| {
            let holder = view.record.holders.into_iter().next()?;
            Some(Leader {
                owner: holder.owner,
                fence: holder.fence,
                since: holder.acquired_at,
                left: view.remaining.into_iter().next()?,
            })
        });
        Ok(leader)
    }

    /// Runs for leader in the background, and again after each lost term, until the campaign is dropped or
    /// [resigns](Campaign::resign).
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn campaign(self) -> Campaign {
        Campaign {
            role: Role::Candidate(tokio::spawn(self.clone().run_for_leader())),
            election: self,
        }
    }

    /// Waits until this candidate leads. Retries while the store is unavailable.
    async fn run_for_leader(self) -> Result<Lease> {
        let host = self.client.host();
        // One nonce for all attempts, so that a retry gets a term whose grant was not received.
        let nonce = format!("{:032x}", host.random());
        loop {
            match self.candidacy.clone().nonce(&nonce).acquire().await {
                Err(error @ (Error::Unavailable(_) | Error::Indeterminate(_))) => {
                    tracing::debug!(name = self.name, %error, "cannot run for leader: retrying");
                    sleep_until(&**host, host.boot_time() + RETRY_DELAY).await;
                }
                result => return result,
            }
        }
    }
}

/// A candidate that runs for leader in the background, and reports when it starts and stops leading.
///
/// Dropping a campaign ends the candidacy. If it leads, its term is released when the last clone of the term is dropped.
///
/// ```
/// use leasehold::client::Change;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// let mut campaign = client.election("scheduler").campaign();
/// loop {
///     match campaign.next().await? {
///         Change::Elected(term) => println!("leading with fence {}", term.fence()),
///         Change::Lost(reason) => println!("stopped leading: {reason}"),
///     }
/// #   break;
/// }
/// campaign.resign().await?; // the next candidate leads at once
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "dropping a campaign ends it"]
pub struct Campaign {
    election: Election,
    role: Role,
}

#[derive(Debug)]
enum Role {
    Candidate(JoinHandle<Result<Lease>>),
    Leader(Arc<Lease>),
    Failed(Error),
}

/// A change of a candidate's role.
#[derive(Clone, Debug)]
pub enum Change {
    /// The candidate leads until this lease is [lost](Lease::lost).
    Elected(Arc<Lease>),
    /// The candidate lost its term for this reason, and runs again.
    Lost(Error),
}

impl Campaign {
    /// Waits for the next change. Cancel-safe: a dropped call loses no change.
    ///
    /// # Errors
    /// An error that a retry cannot fix, such as an invalid name. It ends the campaign.
    pub async fn next(&mut self) -> Result<Change> {
        match &mut self.role {
            Role::Candidate(candidacy) => {
                let result = candidacy.await.unwrap_or_else(|_| Err(shutting_down()));
                let (role, change) = match result.map(Arc::new) {
                    Ok(term) => (Role::Leader(term.clone()), Ok(Change::Elected(term))),
                    Err(error) => (Role::Failed(error.clone()), Err(error)),
                };
                self.role = role;
                change
            }
            Role::Leader(term) => {
                let reason = term.lost().await;
                self.role = Role::Candidate(tokio::spawn(self.election.clone().run_for_leader()));
                Ok(Change::Lost(reason))
            }
            Role::Failed(error) => Err(error.clone()),
        }
    }

    /// Returns the present term, if [`next`](Self::next) has returned it and it is not lost.
    pub fn term(&self) -> Option<&Arc<Lease>> {
        match &self.role {
            Role::Leader(term) => Some(term).filter(|term| !term.is_lost()),
            Role::Candidate(_) | Role::Failed(_) => None,
        }
    }

    /// Returns the present leader, if there is one.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        self.election.leader().await
    }

    /// Ends the candidacy, and releases the term: the next candidate leads at once. Returns whether this candidate led.
    pub async fn resign(mut self) -> Result<bool> {
        match &mut self.role {
            Role::Candidate(candidacy) => {
                candidacy.abort();
                match candidacy.await {
                    Ok(Ok(term)) => term.release().await,
                    _ => Ok(false),
                }
            }
            Role::Leader(term) => term.release_shared().await,
            Role::Failed(_) => Ok(false),
        }
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        if let Role::Candidate(candidacy) = &self.role {
            candidacy.abort();
        }
    }
}

/// Returns the error for a candidacy whose task was cancelled, which only a runtime that shuts down does.
fn shutting_down() -> Error {
    Error::Unavailable("cannot run for leader: the runtime is shutting down".into())
}
