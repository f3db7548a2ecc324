//! Gates, which let one call pass per period across all processes.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Poll;
use std::time::Duration;

use leasehold_core::{Fence, Mode, Name, Text, Time};

use super::Client;
use super::throttle_cache::{Lookup, PendingRequest};
use crate::{AcquireOutcome, AcquireRequest, Error, Hold, HolderKey, Result};

/// A gate whose period is not set yet: see [`every`](Self::every).
#[derive(Clone, Debug)]
#[must_use = "nothing happens until `every`, and then `run` or `pass`"]
pub struct Gate {
    client: Client,
    id: String,
}

impl Gate {
    pub(super) fn new(client: Client, id: String) -> Self {
        Self { client, id }
    }

    /// Sets the period: one call passes per period, across all processes on the same store.
    ///
    /// The period is from a millisecond to ten years. A call that passes shuts the gate for its own period. If the store's
    /// time has whole seconds, the gate may open up to a second later.
    pub fn every(self, period: Duration) -> Throttle {
        Throttle {
            owner: self.client.owner().clone(),
            client: self.client,
            id: self.id,
            period,
            cache_for: Throttle::CACHE_FOR,
        }
    }
}

/// A gate that lets one call pass per period. Nothing happens until [`run`](Self::run) or [`pass`](Self::pass).
///
/// Refused calls are cheap: the client caches for a while that the gate is shut, and of concurrent calls on one gate
/// only one is sent to the store. The others get its result: if it passes, they are refused, and do not learn how its
/// action ends.
#[derive(Clone, Debug)]
#[must_use = "nothing happens until `run` or `pass`"]
pub struct Throttle {
    client: Client,
    id: String,
    period: Duration,
    owner: Text,
    cache_for: Duration,
}

/// The outcome of a call at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateOutcome<T> {
    /// The call passed, with this result.
    Passed(T),
    /// The call was refused: another one passed within the period.
    Throttled {
        /// How long until the gate opens.
        retry_after: Duration,
    },
}

impl<T> GateOutcome<T> {
    /// Returns the result of the call, if it passed.
    pub fn passed(self) -> Option<T> {
        match self {
            Self::Passed(result) => Some(result),
            Self::Throttled { .. } => None,
        }
    }

    /// Returns how long until the gate opens, if the call was refused.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Passed(_) => None,
            Self::Throttled { retry_after } => Some(*retry_after),
        }
    }

    /// Calls `callback` if the call was refused, with the time until the gate opens.
    pub fn if_throttled(self, callback: impl FnOnce(Duration)) -> Self {
        if let Self::Throttled { retry_after } = self {
            callback(retry_after);
        }
        self
    }
}

impl Throttle {
    /// How long a refusal is cached by default.
    pub const CACHE_FOR: Duration = Duration::from_secs(3);

    /// Sets how long the client caches that the gate is shut, at most until it opens: 3 s by default. Zero disables the
    /// cache.
    ///
    /// While it is cached, calls are refused without a call to the store. If another process reopens the gate after a
    /// failure, it therefore stays shut in this one for up to this time.
    pub fn cache_for(mut self, span: Duration) -> Self {
        self.cache_for = span;
        self
    }

    /// Sets the description of the caller that other clients see: `host:pid` by default.
    pub fn owner(mut self, owner: impl Into<Text>) -> Self {
        self.owner = owner.into();
        self
    }

    /// Runs the action if the gate is open, and shuts it for the period.
    ///
    /// An action that fails or panics reopens the gate, and its error or panic is passed on to the caller. The gate stays
    /// shut if the action succeeds, if the process dies, or if this call is dropped.
    ///
    /// # Errors
    /// The error of the action, or an [`Error`] of the gate itself, converted to the error type of the action.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold::GateOutcome;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// async fn alert() -> leasehold::Result<&'static str> {
    ///     Ok("sent")
    /// }
    /// let gate = client.gate("device-42").every(Duration::from_secs(60));
    /// assert_eq!(gate.clone().run(alert).await?, GateOutcome::Passed("sent"));
    ///
    /// let again = gate.run(alert).await?;
    /// let again = again.if_throttled(|retry_after| println!("again in {retry_after:?}"));
    /// assert_eq!(again.passed(), None);
    /// # Ok(()) }
    /// ```
    pub async fn run<T, E, F, Action>(self, action: F) -> Result<GateOutcome<T>, E>
    where
        F: FnOnce() -> Action,
        Action: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let pass = match self.pass().await? {
            GateOutcome::Passed(pass) => pass,
            GateOutcome::Throttled { retry_after } => {
                return Ok(GateOutcome::Throttled { retry_after });
            }
        };
        match catch_panic(async move { action().await }).await {
            Ok(Ok(result)) => Ok(GateOutcome::Passed(result)),
            Ok(Err(error)) => {
                pass.try_open_again().await;
                Err(error)
            }
            Err(panic) => {
                pass.try_open_again().await;
                resume_unwind(panic)
            }
        }
    }

    /// Passes the gate if it is open, and shuts it for the period. The caller may [open it again](Pass::open_again) if the
    /// action that follows fails.
    ///
    /// A call that is dropped leaves the gate open, or shut if the store had already responded.
    ///
    /// # Errors
    /// After [`Error::Indeterminate`] the gate may be shut.
    pub async fn pass(self) -> Result<GateOutcome<Pass>> {
        let name = Name::gate(&self.id)?;
        let cache = self.client.throttle_cache();
        let shut_until = loop {
            match cache.look_up(&name, self.client.now(), self.cache_for) {
                Lookup::Shut(until) => break until,
                Lookup::Pending(mut response) => {
                    let response = response.wait_for(Option::is_some).await;
                    // Without a response, the call that sent the request was dropped: look up again.
                    if let Some(response) = response.ok().and_then(|response| response.clone()) {
                        break response?;
                    }
                }
                Lookup::Miss(pending) => return self.pass_in_store(&name, pending).await,
            }
        };
        Ok(GateOutcome::Throttled {
            retry_after: shut_until.since(self.client.now()),
        })
    }

    /// Passes the gate in the store, and completes the calls that wait for the same response.
    async fn pass_in_store(
        &self,
        name: &Name,
        pending: PendingRequest<'_>,
    ) -> Result<GateOutcome<Pass>> {
        let request = AcquireRequest {
            name: name.clone(),
            nonce: self.client.new_nonce()?,
            owner: self.owner.clone(),
            ttl: self.period,
            mode: Mode::Exclusive,
            fence: None,
            wait: Duration::ZERO,
        };
        // Cached from the send of the request, so that the entry never outlasts the period.
        let sent = self.client.now();
        match self.client.leases().acquire(request).await {
            Ok(AcquireOutcome::Granted(hold)) => {
                pending.complete_shut(sent, sent + self.period);
                Ok(GateOutcome::Passed(Pass::new(
                    self.client.clone(),
                    name.clone(),
                    hold,
                )))
            }
            Ok(AcquireOutcome::Held(held)) => {
                pending.complete_shut(sent, sent + held.retry_after);
                Ok(GateOutcome::Throttled {
                    retry_after: held.retry_after,
                })
            }
            Err(error) => {
                pending.complete_failed(&error);
                Err(error)
            }
        }
    }
}

/// A pass through a gate. The gate stays shut for the period, even if this is dropped, unless it is
/// [opened again](Self::open_again).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// let gate = client.gate("device-42").every(std::time::Duration::from_secs(60));
/// let pass = gate.clone().pass().await?.passed().expect("the gate is open");
/// let first = pass.fence();
/// assert!(pass.open_again().await?);
///
/// let pass = gate.pass().await?.passed().expect("it is open again");
/// assert!(pass.fence() > first);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the gate stays shut for the period unless the pass opens it again"]
pub struct Pass {
    client: Client,
    name: Name,
    fence: Fence,
    passed_at: Time,
    shut_until: Time,
}

impl Pass {
    fn new(client: Client, name: Name, hold: Hold) -> Self {
        Self {
            client,
            name,
            fence: hold.grant.fence,
            passed_at: hold.grant.acquired_at,
            shut_until: hold.grant.expires_at,
        }
    }

    /// Returns the name of the gate.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the fencing token: higher than that of every earlier pass.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Returns when the gate was passed, in store time.
    pub fn passed_at(&self) -> Time {
        self.passed_at
    }

    /// Returns when the gate opens, in store time.
    pub fn shut_until(&self) -> Time {
        self.shut_until
    }

    /// Opens the gate before the end of the period. Returns whether it was still shut by this pass: if another call has
    /// passed since, the gate stays shut for the period of that call.
    pub async fn open_again(self) -> Result<bool> {
        let holder = HolderKey::Fence(self.fence);
        let released = self.client.leases().release(&self.name, holder).await;
        self.client.throttle_cache().reopened(&self.name);
        released
    }

    /// Opens the gate again. If that fails, it opens after the period.
    async fn try_open_again(self) {
        let name = self.name.clone();
        if let Err(error) = self.open_again().await {
            tracing::debug!(%name, %error, "cannot open the gate again: it stays shut for the period");
        }
    }
}

/// Returns the result of an action, or the payload of its panic.
async fn catch_panic<T>(action: impl Future<Output = T>) -> std::thread::Result<T> {
    let mut action = std::pin::pin!(action);
    std::future::poll_fn(|context| {
        // Unwind-safe: after a panic the action is only dropped.
        match catch_unwind(AssertUnwindSafe(|| action.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}
