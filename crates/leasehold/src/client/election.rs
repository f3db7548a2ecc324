//! Elections: of many candidates one leads.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Fence, Name, Text, Time};
use tokio::task::JoinHandle;

use super::{Client, Lease, LeaseBuilder};
use crate::host::sleep_until;
use crate::{Error, Result};

/// The pause before a candidate stands again after an error.
const PAUSE: Duration = Duration::from_secs(1);

/// An election: whoever has the lease of this name leads.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// let election = client.election("scheduler").owner("node-1");
/// let term = election.lead().await?; // waits for its turn
/// let leader = election.leader().await?.expect("somebody leads");
/// assert_eq!((&*leader.owner, leader.fence), ("node-1", term.fence()));
///
/// term.release().await?; // resigns: the next candidate leads at once
/// # assert_eq!(election.leader().await?, None);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nobody is a candidate until `lead` or `campaign`"]
pub struct Election {
    client: Client,
    name: String,
    candidacy: LeaseBuilder,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Who, for people.
    pub owner: Text,
    /// The fencing token of its term: each term has a higher one than every term before it.
    pub fence: Fence,
    /// Since when, in the store's time.
    pub since: Time,
    /// How long it leads still, unless it renews its term.
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

    /// How long a leader outlives its last sign of life: 30 s unless told otherwise.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.candidacy = self.candidacy.ttl(ttl);
        self
    }

    /// What the candidate is called, for people: `host:pid` unless told otherwise.
    pub fn owner(mut self, owner: impl Into<Text>) -> Self {
        self.candidacy = self.candidacy.owner(owner);
        self
    }

    /// Waits for its turn to lead. A term is a lease: it goes on until it is [lost](Lease::lost), or
    /// [released](Lease::release), and then the next candidate leads at once.
    pub async fn lead(&self) -> Result<Lease> {
        self.candidacy.clone().acquire().await
    }

    /// Who leads now; `None` if nobody does.
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

    /// Stands in the background, and again after each term that is lost, until the campaign is dropped or
    /// [resigns](Campaign::resign).
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn campaign(self) -> Campaign {
        Campaign {
            role: Role::Candidate(tokio::spawn(self.clone().stand())),
            election: self,
        }
    }

    /// Waits for its turn to lead, whether or not the store is there all the while.
    async fn stand(self) -> Result<Lease> {
        let host = self.client.host();
        // One nonce for all attempts: a term that was granted without an answer is its own.
        let nonce = format!("{:032x}", host.random());
        loop {
            match self.candidacy.clone().nonce(&nonce).acquire().await {
                Err(error @ (Error::Unavailable(_) | Error::Indeterminate(_))) => {
                    tracing::debug!(name = self.name, %error, "stands again soon");
                    sleep_until(&**host, host.boot_time() + PAUSE).await;
                }
                answer => return answer,
            }
        }
    }
}

/// A candidate that stands in the background, and tells when it leads and when it does no more.
///
/// A campaign that is dropped stands no more. If it leads, its term is released with the last who has a clone of that.
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
///         Change::Lost(reason) => println!("not any more: {reason}"),
///     }
/// #   break;
/// }
/// campaign.resign().await?; // the next candidate leads at once
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a campaign that is dropped is over"]
pub struct Campaign {
    election: Election,
    role: Role,
}

#[derive(Debug)]
enum Role {
    Candidate(JoinHandle<Result<Lease>>),
    Leader(Arc<Lease>),
    Over(Error),
}

/// What a candidate is told.
#[derive(Clone, Debug)]
pub enum Change {
    /// It leads, under this lease, for as long as that is not [lost](Lease::lost).
    Elected(Arc<Lease>),
    /// It leads no more, for this reason. It stands again.
    Lost(Error),
}

impl Campaign {
    /// Waits for the next change. A call that is dropped misses nothing.
    ///
    /// An error is one that standing again does not mend: the campaign is over.
    pub async fn next(&mut self) -> Result<Change> {
        match &mut self.role {
            Role::Candidate(standing) => {
                let answer = standing.await.unwrap_or_else(|_| Err(ended()));
                let (role, change) = match answer.map(Arc::new) {
                    Ok(term) => (Role::Leader(term.clone()), Ok(Change::Elected(term))),
                    Err(error) => (Role::Over(error.clone()), Err(error)),
                };
                self.role = role;
                change
            }
            Role::Leader(term) => {
                let reason = term.lost().await;
                self.role = Role::Candidate(tokio::spawn(self.election.clone().stand()));
                Ok(Change::Lost(reason))
            }
            Role::Over(error) => Err(error.clone()),
        }
    }

    /// The term, while it leads as far as [`next`](Self::next) has told.
    pub fn term(&self) -> Option<&Arc<Lease>> {
        match &self.role {
            Role::Leader(term) => Some(term).filter(|term| !term.is_lost()),
            Role::Candidate(_) | Role::Over(_) => None,
        }
    }

    /// Who leads now; `None` if nobody does.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        self.election.leader().await
    }

    /// Stands no more, and lets go of the term if it leads: the next candidate leads at once. Whether it led.
    pub async fn resign(mut self) -> Result<bool> {
        match &mut self.role {
            Role::Candidate(standing) => {
                standing.abort();
                match standing.await {
                    Ok(Ok(term)) => term.release().await,
                    _ => Ok(false),
                }
            }
            Role::Leader(term) => term.let_go().await,
            Role::Over(_) => Ok(false),
        }
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        if let Role::Candidate(standing) = &self.role {
            standing.abort();
        }
    }
}

/// The task is ended by nobody else than the runtime.
fn ended() -> Error {
    Error::Unavailable("the runtime shuts down".into())
}
