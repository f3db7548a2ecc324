//! Takes several leases, all or none.

use leasehold_core::{Acquire, BootTime, Fence, Held, Mode, Name, Operation, Outcome, Renew, Text};

use super::{Engine, Patience, Reply, refusal};
use crate::leases::AcquireAllRequest;
use crate::{Error, Result};

/// What came of asking for several leases.
#[derive(Debug)]
#[must_use = "fresh grants that are not taken are released"]
pub enum Several {
    /// All are granted, in the order of their names.
    Granted(Vec<(Name, Reply)>),
    /// None is: this one is somebody else's, also after waiting.
    Held(Name, Held),
}

impl Engine {
    /// Takes several exclusive leases, all or none, one after the other in the order of their names: so two who want
    /// the same never wait for each other. What it has already is renewed while it waits for the rest. It is released
    /// before a refusal or an error is returned, and when the caller goes away. The leases belong to the principal, if there
    /// is one.
    ///
    /// All of them are granted within the engine's timeout after the wait, or none is; releasing what was taken takes half
    /// of that timeout at most.
    pub async fn acquire_all(
        &self,
        request: AcquireAllRequest,
        principal: Option<Text>,
    ) -> Result<Several> {
        let names = in_order(request.names.clone())?;
        let give_up = self.inner.host.boot_time() + request.wait;
        let mut tries_left = true;
        loop {
            match self.take_all(&names, &request, &principal, give_up).await {
                // One of the leases was lost while the others were waited for: it is waited for once more.
                Err(Error::Fenced | Error::Expired) if tries_left => {
                    tries_left = self.inner.host.boot_time() < give_up;
                }
                Err(error @ (Error::Fenced | Error::Expired)) => {
                    return Err(Error::Unavailable(format!(
                        "a lease was lost before the others were granted: {error}; nothing is taken: ask again"
                    )));
                }
                answer => return answer,
            }
        }
    }

    /// Makes one attempt. [`Error::Fenced`] or [`Error::Expired`] if a lease that it had taken was lost meanwhile; nothing
    /// is taken then, either.
    async fn take_all(
        &self,
        names: &[Name],
        request: &AcquireAllRequest,
        principal: &Option<Text>,
        give_up: BootTime,
    ) -> Result<Several> {
        let (started, third) = (self.inner.host.boot_time(), request.ttl / 3);
        let end = give_up + self.inner.config.timeout;
        let mut granted = Vec::with_capacity(names.len());
        for name in names {
            let answer = {
                let acquire = acquisition(request, name, principal.clone());
                let mut acquiring = std::pin::pin!(self.take_one(name, acquire, give_up, end));
                loop {
                    tokio::select! {
                        biased;
                        reply = &mut acquiring => break reply,
                        () = tokio::time::sleep(third) => {
                            let renewed = self.renew_granted(&mut granted, principal, end);
                            if let Err(lost) = renewed.await {
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
                    Outcome::Held(held) => Ok(Several::Held(name.clone(), held.clone())),
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
        Ok(Several::Granted(granted))
    }

    /// Takes one of several leases: waits for it until `give_up`, and is answered by `end`.
    async fn take_one(
        &self,
        name: &Name,
        acquire: Operation,
        give_up: BootTime,
        end: BootTime,
    ) -> Result<Reply> {
        let now = self.inner.host.boot_time();
        if now >= end {
            return Err(Error::Unavailable(
                "the store was too slow to grant all of the leases: ask again".into(),
            ));
        }
        let patience = Patience {
            wait: give_up.since(now),
            within: Some(end.since(give_up.max(now))),
        };
        self.perform(name, acquire, patience).await
    }

    /// Releases the leases that were taken before a refusal or an error. Only then may either be returned: it says that
    /// nothing is taken.
    async fn roll_back(&self, mut granted: Vec<(Name, Reply)>) -> Result<()> {
        let releases = granted.iter().filter_map(|(name, reply)| {
            let release = Operation::Release(reply.undo()?.clone());
            Some((name.clone(), release))
        });
        // A store that does not answer has taken the time of the acquisition already.
        let within = self.inner.config.timeout / 2;
        let answers = self.perform_all(releases.collect(), Some(within)).await;
        if let Some(error) = answers.into_iter().find_map(Result::err) {
            // Dropping the replies releases once more, in the background.
            return Err(Error::Indeterminate(format!(
                "not all of the leases were granted, and some may not be released yet: {error}; look before you try again"
            )));
        }
        for (_, reply) in &mut granted {
            reply.keep();
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
            reply.extend(answer?)?;
        }
        Ok(())
    }
}

/// The names, each once, in the order in which everybody takes them.
fn in_order(mut names: Vec<Name>) -> Result<Vec<Name>> {
    names.sort();
    names.dedup();
    if !(1..=AcquireAllRequest::MOST_NAMES).contains(&names.len()) {
        return Err(Error::invalid(format!(
            "{} names: give from 1 to {}",
            names.len(),
            AcquireAllRequest::MOST_NAMES
        )));
    }
    Ok(names)
}

fn acquisition(request: &AcquireAllRequest, name: &Name, principal: Option<Text>) -> Operation {
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
