//! Acquires several leases, all or none.

use leasehold_core::{Acquire, BootTime, Fence, Held, Mode, Name, Operation, Outcome, Renew, Text};

use super::{Engine, Reply, WaitLimit, refusal};
use crate::leases::AcquireAllRequest;
use crate::{Error, Result};

/// The outcome of an acquisition of several leases.
#[derive(Debug)]
#[must_use = "fresh grants that are not taken are released"]
pub enum AcquireAllReply {
    /// All are granted, in the order of their names.
    Granted(Vec<(Name, Reply)>),
    /// None is granted, because this one is held, also after waiting.
    Held(Name, Held),
}

impl Engine {
    /// Acquires several exclusive leases, all or none, one after the other in the order of their names, which prevents
    /// deadlocks. The leases belong to the principal, if there is one.
    ///
    /// Leases that were granted are renewed while it waits for the others. They are released before a refusal or an
    /// error is returned, and if the caller goes away.
    ///
    /// All leases are granted within the engine's timeout after the wait, or none. The release of granted leases takes
    /// at most half of that timeout.
    pub async fn acquire_all(
        &self,
        request: AcquireAllRequest,
        principal: Option<Text>,
    ) -> Result<AcquireAllReply> {
        let names = sorted_names(request.names.clone())?;
        let wait_until = self.inner.host.boot_time() + request.wait;
        let mut can_retry = true;
        loop {
            match self
                .try_acquire_all(&names, &request, &principal, wait_until)
                .await
            {
                // One of the leases was lost while waiting for the others: retry.
                Err(Error::Fenced | Error::Expired) if can_retry => {
                    can_retry = self.inner.host.boot_time() < wait_until;
                }
                Err(error @ (Error::Fenced | Error::Expired)) => {
                    return Err(Error::Unavailable(format!(
                        "a lease was lost before the others were granted: {error}; no lease is held now: retry"
                    )));
                }
                answer => return answer,
            }
        }
    }

    /// Makes one attempt. Returns [`Error::Fenced`] or [`Error::Expired`] if a granted lease was lost meanwhile. After
    /// an error no lease is held.
    async fn try_acquire_all(
        &self,
        names: &[Name],
        request: &AcquireAllRequest,
        principal: &Option<Text>,
        wait_until: BootTime,
    ) -> Result<AcquireAllReply> {
        let (started, third) = (self.inner.host.boot_time(), request.ttl / 3);
        let end = wait_until + self.inner.config.timeout;
        let mut granted = Vec::with_capacity(names.len());
        for name in names {
            let answer = {
                let acquire = acquire_operation(request, name, principal.clone());
                let mut acquiring =
                    std::pin::pin!(self.acquire_one(name, acquire, wait_until, end));
                loop {
                    tokio::select! {
                        biased;
                        reply = &mut acquiring => break reply,
                        () = tokio::time::sleep(third) => {
                            let renewal = self.renew_granted(&mut granted, principal, end);
                            if let Err(lost) = renewal.await {
                                break Err(lost);
                            }
                        }
                    }
                }
            };
            let refused = match answer {
                Ok(reply) => match reply.outcome() {
                    Outcome::Granted(_) => {
                        granted.push((name.clone(), reply));
                        continue;
                    }
                    Outcome::Held(held) => Ok(AcquireAllReply::Held(name.clone(), held.clone())),
                    _ => Err(refusal(reply.take().0)),
                },
                Err(error) => Err(error),
            };
            self.roll_back(granted).await?;
            return refused;
        }
        if self.inner.host.boot_time().since(started) > third
            && let Err(lost) = self.renew_granted(&mut granted, principal, end).await
        {
            self.roll_back(granted).await?;
            return Err(lost);
        }
        Ok(AcquireAllReply::Granted(granted))
    }

    /// Acquires one of several leases. Waits for it until `wait_until`, and returns by `end`.
    async fn acquire_one(
        &self,
        name: &Name,
        acquire: Operation,
        wait_until: BootTime,
        end: BootTime,
    ) -> Result<Reply> {
        let now = self.inner.host.boot_time();
        if now >= end {
            return Err(Error::Unavailable(
                "cannot acquire all of the leases: the store was too slow: retry".into(),
            ));
        }
        let wait_limit = WaitLimit {
            wait: wait_until.since(now),
            within: Some(end.since(wait_until.max(now))),
        };
        self.perform(name, acquire, wait_limit).await
    }

    /// Releases the granted leases after a refusal or an error. Called before either is returned, because both mean
    /// that no lease is held.
    async fn roll_back(&self, mut granted: Vec<(Name, Reply)>) -> Result<()> {
        let releases = granted.iter().filter_map(|(name, reply)| {
            let release = Operation::Release(reply.undo()?.clone());
            Some((name.clone(), release))
        });
        // A store that does not answer has already used up the time of the acquisition.
        let within = self.inner.config.timeout / 2;
        let answers = self.perform_all(releases.collect(), Some(within)).await;
        if let Some(error) = answers.into_iter().find_map(Result::err) {
            // Dropping the replies retries the release in the background.
            return Err(Error::Indeterminate(format!(
                "not all of the leases were granted, and some may not be released yet: {error}; check the records before retrying"
            )));
        }
        for (_, reply) in &mut granted {
            reply.disarm();
        }
        Ok(())
    }

    async fn renew_granted(
        &self,
        granted: &mut [(Name, Reply)],
        principal: &Option<Text>,
        end: BootTime,
    ) -> Result<()> {
        let renewals = granted.iter().filter_map(|(name, reply)| {
            let Outcome::Granted(grant) = reply.outcome() else {
                return None;
            };
            let renew = Operation::Renew(Renew {
                fence: grant.fence,
                principal: principal.clone(),
                ttl: None,
            });
            Some((name.clone(), renew))
        });
        let within = end.since(self.inner.host.boot_time());
        let answers = self.perform_all(renewals.collect(), Some(within)).await;
        for ((_, reply), answer) in granted.iter_mut().zip(answers) {
            reply.apply_renewal(answer?)?;
        }
        Ok(())
    }
}

/// Returns the names sorted and without duplicates. All callers acquire leases in this order.
fn sorted_names(mut names: Vec<Name>) -> Result<Vec<Name>> {
    names.sort();
    names.dedup();
    if !(1..=AcquireAllRequest::MAX_NAMES).contains(&names.len()) {
        return Err(Error::invalid(format!(
            "the request has {} names: it must have from 1 to {}",
            names.len(),
            AcquireAllRequest::MAX_NAMES
        )));
    }
    Ok(names)
}

fn acquire_operation(
    request: &AcquireAllRequest,
    name: &Name,
    principal: Option<Text>,
) -> Operation {
    Operation::Acquire(Acquire {
        nonce: request.nonce.hash(name),
        owner: request.owner.clone(),
        principal,
        ttl: request.ttl,
        mode: Mode::Exclusive,
        fence: None,
        floor: Fence::default(),
        in_state: None,
    })
}
