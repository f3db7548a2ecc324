//! Gates: at most once per period, fleet-wide.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Poll;
use std::time::Duration;

use leasehold_core::{Fence, Mode, Name, Text, Time};

use super::Client;
use super::gatehouse::{Admission, Asking};
use crate::{AcquireRequest, Acquired, Error, Hold, Holding, Result};

/// A gate, which [`every`](Self::every) tells its period.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked until its period is told, and it is passed"]
pub struct Gate {
    client: Client,
    id: String,
}

impl Gate {
    pub(super) fn new(client: Client, id: String) -> Self {
        Self { client, id }
    }

    /// Lets one call pass per period, over all processes on the same store: from a millisecond to ten years.
    ///
    /// Whoever passes shuts the gate for its own period. Where the store's time comes in whole seconds, it may open
    /// as much later.
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
/// Calls that are refused cost little: this process remembers for a while that the gate is shut, and of the calls
/// that it makes at once on one gate only one asks the store. The others are told what that one was told: whoever
/// asks while another passes is refused, and learns nothing of how that other's action ends.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked until `run` or `pass`"]
pub struct Throttle {
    client: Client,
    id: String,
    period: Duration,
    owner: Text,
    cache_for: Duration,
}

/// What came of a call at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gated<T> {
    /// It passed, with this result.
    Passed(T),
    /// Somebody else passed within the period.
    Throttled {
        /// How long until the gate opens.
        retry_after: Duration,
    },
}

impl<T> Gated<T> {
    /// What the call came to, if it passed.
    pub fn passed(self) -> Option<T> {
        match self {
            Self::Passed(result) => Some(result),
            Self::Throttled { .. } => None,
        }
    }

    /// How long until the gate opens, if the call was refused.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Passed(_) => None,
            Self::Throttled { retry_after } => Some(*retry_after),
        }
    }

    /// Calls this if the call was refused, with how long it is until the gate opens.
    pub fn if_throttled(self, callback: impl FnOnce(Duration)) -> Self {
        if let Self::Throttled { retry_after } = self {
            callback(retry_after);
        }
        self
    }
}

impl Throttle {
    /// For how long this process believes that a gate is shut, unless told otherwise.
    pub const CACHE_FOR: Duration = Duration::from_secs(3);

    /// For how long a refusal is remembered and given again without asking the store, while the gate is shut: 3 s
    /// unless told otherwise. Zero: every call asks.
    ///
    /// The memory only ever refuses. Until it fades, a gate that another process opened again after a failure stays
    /// shut in this one.
    pub fn cache_for(mut self, span: Duration) -> Self {
        self.cache_for = span;
        self
    }

    /// Who asks, for people: `host:pid` unless told otherwise.
    pub fn owner(mut self, owner: impl Into<Text>) -> Self {
        self.owner = owner.into();
        self
    }

    /// Runs the action if the gate is open, and shuts it for the period.
    ///
    /// An action that fails or panics opens the gate again, and its error or panic is handed on. One that succeeds
    /// leaves it shut, and so does one whose fate is unknown: because the process died, or because this call was
    /// dropped. Errors of the gate itself come as the action's error type.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold::Gated;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// async fn alert() -> leasehold::Result<&'static str> {
    ///     Ok("sent")
    /// }
    /// let gate = client.gate("device-42").every(Duration::from_secs(60));
    /// assert_eq!(gate.clone().run(alert).await?, Gated::Passed("sent"));
    ///
    /// let again = gate.run(alert).await?;
    /// let again = again.if_throttled(|retry_after| println!("again in {retry_after:?}"));
    /// assert_eq!(again.passed(), None);
    /// # Ok(()) }
    /// ```
    pub async fn run<T, E, F, Action>(self, action: F) -> Result<Gated<T>, E>
    where
        F: FnOnce() -> Action,
        Action: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let pass = match self.pass().await? {
            Gated::Passed(pass) => pass,
            Gated::Throttled { retry_after } => return Ok(Gated::Throttled { retry_after }),
        };
        match caught(async move { action().await }).await {
            Ok(Ok(result)) => Ok(Gated::Passed(result)),
            Ok(Err(error)) => {
                pass.open_or_leave().await;
                Err(error)
            }
            Err(panic) => {
                pass.open_or_leave().await;
                resume_unwind(panic)
            }
        }
    }

    /// Passes the gate if it is open, and shuts it for the period. What is done then is up to the caller, who may
    /// [open it again](Pass::open_again).
    ///
    /// A call that is dropped before it is answered leaves the gate open, or shut if the answer was already on its
    /// way. After [`Error::Indeterminate`] it may be shut.
    pub async fn pass(self) -> Result<Gated<Pass>> {
        let name = Name::gate(&self.id)?;
        let gates = self.client.gates();
        let shut_until = loop {
            match gates.enter(&name, self.client.now(), self.cache_for) {
                Admission::Shut(until) => break until,
                Admission::Wait(mut answer) => {
                    let answer = answer.wait_for(Option::is_some).await;
                    // Without an answer the one who asked has gone: somebody else is to ask.
                    if let Some(answer) = answer.ok().and_then(|answer| answer.clone()) {
                        break answer?;
                    }
                }
                Admission::Ask(asking) => return self.ask(&name, asking).await,
            }
        };
        Ok(Gated::Throttled {
            retry_after: shut_until.since(self.client.now()),
        })
    }

    /// Asks the store, and tells those who wait for its answer.
    async fn ask(&self, name: &Name, asking: Asking<'_>) -> Result<Gated<Pass>> {
        let request = AcquireRequest {
            name: name.clone(),
            nonce: self.client.fresh_nonce()?,
            owner: self.owner.clone(),
            ttl: self.period,
            mode: Mode::Exclusive,
            fence: None,
            wait: Duration::ZERO,
        };
        let asked = self.client.now();
        // Counted from the question: the memory is never longer than the gate is shut.
        match self.client.leases().acquire(request).await {
            Ok(Acquired::Granted(hold)) => {
                asking.shut(asked, asked + self.period);
                Ok(Gated::Passed(Pass::new(
                    self.client.clone(),
                    name.clone(),
                    hold,
                )))
            }
            Ok(Acquired::Held(held)) => {
                asking.shut(asked, asked + held.retry_after);
                Ok(Gated::Throttled {
                    retry_after: held.retry_after,
                })
            }
            Err(error) => {
                asking.failed(&error);
                Err(error)
            }
        }
    }
}

/// A gate that was passed. It stays shut for the period, whatever becomes of this, unless it is
/// [opened again](Self::open_again).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// let gate = client.gate("device-42").every(std::time::Duration::from_secs(60));
/// let pass = gate.clone().pass().await?.passed().expect("nobody else has passed");
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

    /// The gate's name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The fencing token: each pass has a higher one than every pass before it.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// When the gate was passed, in the store's time.
    pub fn passed_at(&self) -> Time {
        self.passed_at
    }

    /// Until when it is shut, in the store's time.
    pub fn shut_until(&self) -> Time {
        self.shut_until
    }

    /// Opens the gate again before the period is over. Whether it was still shut by this pass: if another has passed
    /// since, that one's period goes on.
    pub async fn open_again(self) -> Result<bool> {
        let who = Holding::Fence(self.fence);
        let opened = self.client.leases().release(&self.name, who).await;
        self.client.gates().opened(&self.name);
        opened
    }

    async fn open_or_leave(self) {
        let name = self.name.clone();
        if let Err(error) = self.open_again().await {
            tracing::debug!(%name, %error, "not opened again: left shut for the period");
        }
    }
}

/// The result of an action, or what it panicked with.
async fn caught<T>(action: impl Future<Output = T>) -> std::thread::Result<T> {
    let mut action = std::pin::pin!(action);
    std::future::poll_fn(|context| {
        // It is dropped without being looked at again.
        match catch_unwind(AssertUnwindSafe(|| action.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}
