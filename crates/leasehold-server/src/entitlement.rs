//! Rights that end while a request is in progress.
//!
//! The rights of a waiting caller are checked again whenever they end or change, and those of every caller once more before
//! a grant is delivered. A grant that is withheld is dropped with its answer, which releases it.

use std::pin::pin;

use crate::access::Right;
use crate::access::caller::Caller;
use crate::answer::{self, Answer};
use crate::rejection::Rejection;
use crate::service::Service;

impl Service {
    /// Runs a request that may wait while its caller passes `check`. When the caller no longer does, refuses it at once and
    /// drops the request, as if the caller had disconnected.
    pub(crate) async fn while_entitled<T>(
        &self,
        caller: &Caller,
        check: impl Fn(&Caller) -> Result<(), Rejection>,
        waiting: impl Future<Output = T>,
    ) -> Result<T, Rejection> {
        let Some(access) = self
            .config
            .access
            .as_ref()
            .filter(|_| !caller.is_anonymous())
        else {
            return Ok(waiting.await);
        };
        let mut caller = caller.clone();
        let mut waiting = pin!(waiting);
        loop {
            tokio::select! {
                biased;
                () = caller.ended() => {}
                value = waiting.as_mut() => return Ok(value),
            }
            caller = access.renew(&caller)?;
            check(&caller)?;
        }
    }

    /// Replaces the answers with a grant to which the caller no longer has a right.
    pub(crate) fn withhold_revoked(
        &self,
        caller: &Caller,
        mut answers: Vec<Answer>,
    ) -> Vec<Answer> {
        for answer in &mut answers {
            if let Err(refused) = self.check_delivery(caller, answer) {
                *answer = answer::problem(&refused);
            }
        }
        answers
    }

    /// Refuses an answer with a grant to which the caller no longer has a right. Answers about other changes pass, because only
    /// a grant can be undone.
    pub(crate) fn check_delivery(&self, caller: &Caller, answer: &Answer) -> Result<(), Rejection> {
        if !caller.has_ended() {
            return Ok(());
        }
        let mut granted = answer.body.granted().peekable();
        match &self.config.access {
            Some(access) if granted.peek().is_some() => {
                let caller = access.renew(caller)?;
                caller.check_all(&[Right::Acquire], granted)
            }
            _ => Ok(()),
        }
    }
}
