//! Implements [`Leases`] for the engine: converts requests to operations, and outcomes to answers.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Acquire, BootTime, Break, Fence, HolderRef, Name, Operation, Outcome, Put, Release, Renew,
    Update, View,
};

use super::{AcquireAllReply, Engine, Reply, WaitLimit};
use crate::leases::{
    AcquireAllOutcome, AcquireAllRequest, AcquireOutcome, AcquireRequest, BreakOutcome,
    BreakRequest, ClaimRequest, Hold, HolderKey, Leases, ListRequest, Listing, NamedHold,
    PutRequest, RenewRequest, RenewedHold, UpdateOutcome, UpdateRequest,
};
use crate::{Error, Result};

impl HolderKey {
    /// Converts it to the reference that the core compares with the holders under this name.
    pub fn into_holder_ref(self, name: &Name) -> HolderRef {
        match self {
            Self::Fence(fence) => HolderRef::Fence(fence),
            Self::Nonce(nonce) => HolderRef::Nonce(nonce.hash(name)),
        }
    }
}

impl From<AcquireRequest> for Acquire {
    fn from(request: AcquireRequest) -> Self {
        Self {
            nonce: request.nonce.hash(&request.name),
            owner: request.owner,
            principal: None,
            ttl: request.ttl,
            mode: request.mode,
            fence: request.fence,
            floor: Fence::default(),
            in_state: None,
        }
    }
}

impl BreakRequest {
    /// Converts it to the core's operation under this name.
    pub fn into_break(self, name: &Name) -> Break {
        match self {
            Self::Own(holding) => Break::Own(Release {
                holder: holding.into_holder_ref(name),
                principal: None,
            }),
            Self::Force { fence, reason, now } => Break::Force { fence, reason, now },
        }
    }
}

/// Converts an outcome other than the requested one to an error.
pub fn refusal(outcome: Outcome) -> Error {
    match outcome {
        Outcome::Held(held) => Error::Held(held),
        Outcome::Fenced => Error::Fenced,
        Outcome::Expired => Error::Expired,
        Outcome::Denied => Error::Denied(
            "the lease belongs to another principal: use a token of that principal".into(),
        ),
        Outcome::LimitMismatch { limit } => Error::invalid(match limit {
            Some(limit) => {
                format!(
                    "cannot share the lease: its live holders have a limit of {limit}: use the same limit"
                )
            }
            None => {
                "cannot share the lease: its live holders have no limit: omit the limit".to_owned()
            }
        }),
        Outcome::StateMismatch => Error::invalid(
            "the work item is not in the requested state: read its state, then retry with that one",
        ),
        Outcome::Exhausted => Error::Corrupt(
            "no fence is left for this name: its record is corrupt: use another name".into(),
        ),
        other => Error::Corrupt(format!(
            "unexpected outcome of an operation: {other:?}: report this as a bug"
        )),
    }
}

fn hold(reply: Reply) -> Result<Hold> {
    match reply.take() {
        (Outcome::Granted(grant), Some(deadline)) => Ok(Hold { grant, deadline }),
        (other, _) => Err(refusal(other)),
    }
}

fn claimed(granted: Vec<(Name, Reply)>) -> Result<Vec<NamedHold>> {
    let claimed = granted.into_iter().map(|(name, reply)| {
        Ok(NamedHold {
            name,
            hold: hold(reply)?,
        })
    });
    claimed.collect()
}

fn renewed(outcome: Outcome, deadline: Option<BootTime>) -> Result<RenewedHold> {
    match (outcome, deadline) {
        (Outcome::Renewed(renewal), Some(deadline)) => Ok(RenewedHold { renewal, deadline }),
        (other, _) => Err(refusal(other)),
    }
}

#[async_trait]
impl Leases for Engine {
    async fn acquire(&self, request: AcquireRequest) -> Result<AcquireOutcome> {
        let (name, wait_limit) = (
            request.name.clone(),
            WaitLimit {
                wait: request.wait,
                within: None,
            },
        );
        let reply = self
            .perform(&name, Operation::Acquire(request.into()), wait_limit)
            .await?;
        match hold(reply) {
            Ok(hold) => Ok(AcquireOutcome::Granted(hold)),
            Err(Error::Held(held)) => Ok(AcquireOutcome::Held(held)),
            Err(error) => Err(error),
        }
    }

    async fn acquire_all(&self, request: AcquireAllRequest) -> Result<AcquireAllOutcome> {
        match Engine::acquire_all(self, request, None).await? {
            AcquireAllReply::Granted(granted) => claimed(granted).map(AcquireAllOutcome::Granted),
            AcquireAllReply::Held(name, held) => Ok(AcquireAllOutcome::Held(name, held)),
        }
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<NamedHold>> {
        claimed(Engine::claim(self, request, None).await?)
    }

    async fn put(&self, request: PutRequest) -> Result<()> {
        let operation = Operation::Put(Put {
            nonce: request.nonce.map(|nonce| nonce.hash(&request.name)),
            state: request.state,
            body: request.body,
        });
        let reply = self.perform(&request.name, operation, WaitLimit::NONE);
        match reply.await?.take().0 {
            Outcome::Put => Ok(()),
            other => Err(refusal(other)),
        }
    }

    async fn remove(&self, name: &Name) -> Result<()> {
        let reply = self.perform(name, Operation::Remove, WaitLimit::NONE);
        match reply.await?.take().0 {
            Outcome::Removed => Ok(()),
            other => Err(refusal(other)),
        }
    }

    async fn renew(
        &self,
        requests: Vec<RenewRequest>,
        within: Duration,
    ) -> Vec<Result<RenewedHold>> {
        let renewals = requests.into_iter().map(|request| {
            let renew = Operation::Renew(Renew {
                fence: request.fence,
                principal: None,
                ttl: request.ttl,
            });
            (request.name, renew)
        });
        let answers = self.perform_all(renewals.collect(), Some(within)).await;
        let answers = answers.into_iter().map(|answer| {
            let (outcome, deadline) = answer?.take();
            renewed(outcome, deadline)
        });
        answers.collect()
    }

    async fn update(&self, request: UpdateRequest) -> Result<UpdateOutcome> {
        let operation = Operation::Update(Update {
            fence: request.fence,
            principal: None,
            body: request.body,
            state: request.state,
            then_release: request.then_release,
        });
        match self
            .perform(&request.name, operation, WaitLimit::NONE)
            .await?
            .take()
        {
            (Outcome::Completed, _) => Ok(UpdateOutcome::Completed),
            (outcome, deadline) => renewed(outcome, deadline).map(UpdateOutcome::Renewed),
        }
    }

    async fn release(&self, name: &Name, who: HolderKey) -> Result<bool> {
        let operation = Operation::Release(Release {
            holder: who.into_holder_ref(name),
            principal: None,
        });
        match self
            .perform(name, operation, WaitLimit::NONE)
            .await?
            .take()
            .0
        {
            Outcome::Released => Ok(true),
            Outcome::NotHeld => Ok(false),
            other => Err(refusal(other)),
        }
    }

    async fn break_lease(&self, name: &Name, how: BreakRequest) -> Result<BreakOutcome> {
        match self
            .perform(
                name,
                Operation::Break(how.into_break(name)),
                WaitLimit::NONE,
            )
            .await?
            .take()
            .0
        {
            Outcome::Released | Outcome::Broken { until: None } => Ok(BreakOutcome::Free),
            Outcome::Broken { until: Some(until) } => Ok(BreakOutcome::Until(until)),
            Outcome::NotHeld => Ok(BreakOutcome::NotHeld),
            other => Err(refusal(other)),
        }
    }

    async fn show(&self, name: &Name) -> Result<Option<View>> {
        Engine::show(self, name).await
    }

    async fn list(&self, request: ListRequest) -> Result<Listing> {
        Engine::list(self, request).await
    }
}
