//! The engine as [`Leases`]: requests become operations, outcomes become answers.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Acquire, BootTime, Break, Fence, Name, Operation, Outcome, Release, Renew, Update, View, Who,
};

use super::{Engine, Patience};
use crate::leases::{
    AcquireRequest, Acquired, BreakRequest, Broke, Hold, Holding, Leases, ListRequest, Listing,
    RenewRequest, Renewed, UpdateRequest, Updated,
};
use crate::{Error, Result};

impl From<Holding> for Who {
    fn from(holding: Holding) -> Self {
        match holding {
            Holding::Fence(fence) => Self::Fence(fence),
            Holding::Nonce(nonce) => Self::Nonce(nonce.hash()),
        }
    }
}

impl From<AcquireRequest> for Acquire {
    fn from(request: AcquireRequest) -> Self {
        Self {
            nonce: request.nonce.hash(),
            owner: request.owner,
            principal: None,
            ttl: request.ttl,
            mode: request.mode,
            fence: request.fence,
            floor: Fence::default(),
        }
    }
}

impl From<BreakRequest> for Break {
    fn from(request: BreakRequest) -> Self {
        match request {
            BreakRequest::Own(holding) => Self::Own(Release {
                who: holding.into(),
                principal: None,
            }),
            BreakRequest::Force { fence, reason, now } => Self::Force { fence, reason, now },
        }
    }
}

/// Outcomes that are errors for whoever asked for something else.
pub fn refusal(outcome: Outcome) -> Error {
    match outcome {
        Outcome::Held(held) => Error::Held(held),
        Outcome::Fenced => Error::Fenced,
        Outcome::Expired => Error::Expired,
        Outcome::Denied => Error::Denied("the lease belongs to another principal".into()),
        Outcome::OtherLimit { limit } => Error::invalid(match limit {
            Some(limit) => {
                format!("the live holders share this lease with a limit of {limit}: use the same")
            }
            None => "the live holders share this lease without a limit: give none".to_owned(),
        }),
        Outcome::Exhausted => {
            Error::Corrupt("all fences of this name are used up: its record is corrupt".into())
        }
        other => Error::Corrupt(format!("the core answered another question: {other:?}")),
    }
}

fn renewed(outcome: Outcome, deadline: Option<BootTime>) -> Result<Renewed> {
    match (outcome, deadline) {
        (Outcome::Renewed(renewal), Some(deadline)) => Ok(Renewed { renewal, deadline }),
        (other, _) => Err(refusal(other)),
    }
}

#[async_trait]
impl Leases for Engine {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquired> {
        let (name, patience) = (
            request.name.clone(),
            Patience {
                wait: request.wait,
                within: None,
            },
        );
        let reply = self
            .perform(&name, Operation::Acquire(request.into()), patience)
            .await?;
        match reply.take() {
            (Outcome::Granted(grant), Some(deadline)) => {
                Ok(Acquired::Granted(Hold { grant, deadline }))
            }
            (Outcome::Held(held), _) => Ok(Acquired::Held(held)),
            (other, _) => Err(refusal(other)),
        }
    }

    async fn renew(&self, requests: Vec<RenewRequest>, within: Duration) -> Vec<Result<Renewed>> {
        let patience = Patience {
            wait: Duration::ZERO,
            within: Some(within),
        };
        let renewals = requests.into_iter().map(|request| async move {
            let operation = Operation::Renew(Renew {
                fence: request.fence,
                principal: None,
                ttl: request.ttl,
            });
            let (outcome, deadline) = self
                .perform(&request.name, operation, patience)
                .await?
                .take();
            renewed(outcome, deadline)
        });
        join_all(renewals).await
    }

    async fn update(&self, request: UpdateRequest) -> Result<Updated> {
        let operation = Operation::Update(Update {
            fence: request.fence,
            principal: None,
            body: request.body,
            state: request.state,
            then_release: request.then_release,
        });
        match self
            .perform(&request.name, operation, Patience::NONE)
            .await?
            .take()
        {
            (Outcome::Completed, _) => Ok(Updated::Completed),
            (outcome, deadline) => renewed(outcome, deadline).map(Updated::Renewed),
        }
    }

    async fn release(&self, name: &Name, who: Holding) -> Result<bool> {
        let operation = Operation::Release(Release {
            who: who.into(),
            principal: None,
        });
        match self
            .perform(name, operation, Patience::NONE)
            .await?
            .take()
            .0
        {
            Outcome::Released => Ok(true),
            Outcome::NotHeld => Ok(false),
            other => Err(refusal(other)),
        }
    }

    async fn break_lease(&self, name: &Name, how: BreakRequest) -> Result<Broke> {
        match self
            .perform(name, Operation::Break(how.into()), Patience::NONE)
            .await?
            .take()
            .0
        {
            Outcome::Released | Outcome::Broken { until: None } => Ok(Broke::Free),
            Outcome::Broken { until: Some(until) } => Ok(Broke::Until(until)),
            Outcome::NotHeld => Ok(Broke::NotHeld),
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

/// Runs futures side by side in one task, in order of their results.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(move |context| {
        let mut ready = true;
        for (future, output) in &mut pending {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *output = Some(value),
                    std::task::Poll::Pending => ready = false,
                }
            }
        }
        if !ready {
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(pending.drain(..).filter_map(|(_, output)| output).collect())
    })
    .await
}
