//! Several leases at once, and work items.

use std::time::Duration;

use hyper::Method;
use hyper::body::Bytes;
use leasehold_core::{Kind, Name};

use super::leases::json;
use super::{ANSWER, Answered, Ask, Remote, Repeat, wait_left};
use crate::leases::{AcquireAllRequest, AcquiredAll, ClaimRequest, Claimed, PutRequest};
use crate::wire::{Items, MAX_WAIT, NamedLease, NamedLeases, Names, Removed, Stored, Trouble};
use crate::{Error, Result, duration};

impl Remote {
    pub(super) async fn take_all(&self, request: AcquireAllRequest) -> Result<AcquiredAll> {
        locks_only(&request.names)?;
        let wait = request.wait.min(MAX_WAIT);
        let names = request.names.iter().map(|name| name.as_str().into());
        // In the body: many long names are too much for a URL.
        let body = json(&Names {
            names: names.collect(),
        });
        let answered = self
            .call(Repeat::Safe, wait + ANSWER, |elapsed| {
                let target = self
                    .inner
                    .url
                    .route("/locks")
                    .with("ttl", &duration::format(request.ttl))
                    .with("owner", &request.owner)
                    .with("wait", &duration::format(wait_left(wait, elapsed)));
                Ask {
                    nonce: Some(request.nonce.clone()),
                    body: body.clone(),
                    ..Ask::new(Method::POST, target)
                }
            })
            .await?;
        if let Ok(problem) = answered.problem(&self.inner.url)
            && problem.trouble == Trouble::Held
            && let Some(name) = &problem.name
        {
            let name = Name::lock(name)?;
            if let Error::Held(held) = problem.into() {
                return Ok(AcquiredAll::Held(name, held));
            }
        }
        let granted: NamedLeases = self.read(&answered)?;
        self.claimed(granted.leases, &answered)
            .map(AcquiredAll::Granted)
    }

    /// Never repeated: nobody can tell which items a lost answer had. They come back after their ttl.
    pub(super) async fn claim_items(&self, request: ClaimRequest) -> Result<Vec<Claimed>> {
        let wait = request.wait.min(MAX_WAIT);
        let answered = self
            .call(Repeat::Never, wait + ANSWER, |elapsed| {
                self.ask_to_claim(&request, wait_left(wait, elapsed))
            })
            .await?;
        let claimed: Items = self.read(&answered)?;
        self.claimed(claimed.items, &answered)
    }

    /// Never repeated, whatever its nonce: an item knows the nonce of its last put only, so a copy that arrives late would
    /// undo the next one.
    pub(super) async fn put_item(&self, request: PutRequest) -> Result<()> {
        locks_only([&request.name])?;
        let answered = self
            .call(Repeat::Never, ANSWER, |_| {
                let target = self.inner.url.item(&request.name);
                let mut target = target.with("state", &request.state);
                // Without a body a request leaves the item's as it is.
                if request.body.as_deref() == Some("") {
                    target = target.with("body", "empty");
                }
                let body = request.body.as_deref().unwrap_or_default();
                Ask {
                    nonce: request.nonce.clone(),
                    body: Bytes::copy_from_slice(body.as_bytes()),
                    ..Ask::quick(Method::PUT, target)
                }
            })
            .await?;
        self.read::<Stored>(&answered).map(drop)
    }

    pub(super) async fn remove_item(&self, name: &Name) -> Result<()> {
        locks_only([name])?;
        let answered = self
            .call(Repeat::Never, ANSWER, |_| {
                Ask::quick(Method::DELETE, self.inner.url.item(name))
            })
            .await?;
        self.read::<Removed>(&answered).map(drop)
    }

    fn ask_to_claim(&self, request: &ClaimRequest, wait: Duration) -> Ask {
        let mut target = self
            .inner
            .url
            .route("/claims")
            .with("state", &request.state)
            .with("limit", &request.limit.to_string())
            .with("ttl", &duration::format(request.ttl))
            .with("owner", &request.owner);
        if !request.prefix.is_empty() {
            target = target.with("prefix", &request.prefix);
        }
        if !wait.is_zero() {
            target = target.with("wait", &duration::format(wait));
        }
        Ask {
            nonce: Some(request.nonce.clone()),
            ..Ask::new(Method::POST, target)
        }
    }

    fn claimed(&self, leases: Vec<NamedLease>, answered: &Answered) -> Result<Vec<Claimed>> {
        let claimed = leases
            .into_iter()
            .map(|lease| lease.into_claimed(answered.sent));
        let claimed: Option<_> = claimed.collect();
        claimed.ok_or_else(|| answered.foreign(&self.inner.url))
    }
}

/// What is said here is said of locks: a gate of the same name is another thing.
pub(super) fn locks_only<'n>(names: impl IntoIterator<Item = &'n Name>) -> Result<()> {
    match names.into_iter().find(|name| name.kind() != Kind::Lock) {
        None => Ok(()),
        Some(gate) => Err(Error::invalid(format!("`{gate}` is a gate: give a lock"))),
    }
}
