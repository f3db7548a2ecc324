//! Writes under a lease.

use std::pin::Pin;

use leasehold_core::Text;

use super::Lease;
use super::standing::Over;
use crate::{Error, Result, UpdateRequest, Updated};

/// What to write under a lease, in one write. Nothing happens until [`save`](Self::save). A part that is not given stays
/// as it is.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// let lease = client.lease("order-17").acquire().await?;
/// lease.edit().body("paid").state("PAID").save().await?;
/// lease.edit().state("SENT").save().await?;
/// lease.release().await?;
///
/// let next = client.lease("order-17").acquire().await?;
/// assert_eq!((&*next.body(), next.state().as_deref()), ("paid", Some("SENT")));
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is written until `save`"]
pub struct Edit<'l> {
    lease: &'l Lease,
    body: Option<Text>,
    state: Option<Option<Text>>,
}

impl<'l> Edit<'l> {
    pub(super) fn new(lease: &'l Lease) -> Self {
        Self {
            lease,
            body: None,
            state: None,
        }
    }

    /// The new body.
    pub fn body(mut self, body: impl Into<Text>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// The new state.
    pub fn state(mut self, state: impl Into<Text>) -> Self {
        self.state = Some(Some(state.into()));
        self
    }

    /// No state any more.
    pub fn clear_state(mut self) -> Self {
        self.state = Some(None);
        self
    }

    /// Writes, and renews.
    pub async fn save(self) -> Result<()> {
        let (keeper, lease) = (self.lease.keeper(), self.lease);
        let answer = match self.send(false).await {
            Ok(Updated::Renewed(renewed)) => Ok(renewed),
            Ok(Updated::Completed) => Err(Error::Corrupt("released without being asked to".into())),
            Err(error) => Err(error),
        };
        let result = answer.as_ref().map(drop).map_err(Error::clone);
        keeper.updated(lease.id(), lease.standing(), answer);
        result.inspect(|()| self.note())
    }

    /// Writes, and releases in the same write.
    async fn complete(self) -> Result<()> {
        let lease = self.lease;
        lease.check()?;
        let mut closing = Closing { lease, held: true };
        lease.keeper().stop(lease.id());
        lease.keeper().join(lease.id(), lease.standing()).await;
        let answer = self.send(true).await;
        let over = match &answer {
            Ok(_) => {
                self.note();
                lease.settle();
                Over::LetGo
            }
            Err(reason @ (Error::Fenced | Error::Expired)) => Over::Lost(reason.clone()),
            Err(_) => return answer.map(drop),
        };
        closing.held = false;
        lease.keeper().forget(lease.id(), lease.standing(), over);
        answer.map(drop)
    }

    async fn send(&self, then_release: bool) -> Result<Updated> {
        let lease = self.lease;
        lease.check()?;
        let request = UpdateRequest {
            name: lease.name().clone(),
            fence: lease.fence(),
            body: self.body.clone(),
            state: self.state.clone(),
            then_release,
        };
        tokio::select! {
            biased;
            answer = lease.client().leases().update(request) => answer,
            _ = lease.lost() => Err(Error::Indeterminate(
                "the lease was lost before the update was answered".into(),
            )),
        }
    }

    /// Remembers what was written.
    fn note(&self) {
        let mut known = self.lease.standing().known();
        if let Some(body) = &self.body {
            known.body = body.clone();
        }
        if let Some(state) = &self.state {
            known.state = state.clone();
        }
    }
}

/// Completes the work under a lease: writes the parts that are given and releases the lease, all in one write. Nothing
/// happens until it is awaited. A part that is not given stays as it is.
///
/// If it fails, the lease is still held and the call can be repeated, unless the error says that it is lost. After
/// [`Error::Indeterminate`] it may have happened: repeated, it succeeds then, but for a shared lease and once another
/// holder has ended, when it is [`Error::Fenced`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// client.put("order-17").state("REQUESTED").body("3 apples").await?;
/// for item in client.claim("REQUESTED").await? {
///     item.complete().state("PACKED").await?;
/// }
/// for item in client.claim("PACKED").await? {
///     assert_eq!(&*item.body(), "3 apples");
///     item.complete().state("SENT").body("3 apples, by train").await?;
/// }
/// # assert_eq!(&*client.claim("SENT").await?[0].body(), "3 apples, by train");
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is written or released until it is awaited"]
pub struct Completion<'l>(Edit<'l>);

impl<'l> Completion<'l> {
    pub(super) fn new(lease: &'l Lease) -> Self {
        Self(Edit::new(lease))
    }

    /// The new body.
    pub fn body(self, body: impl Into<Text>) -> Self {
        Self(self.0.body(body))
    }

    /// The new state.
    pub fn state(self, state: impl Into<Text>) -> Self {
        Self(self.0.state(state))
    }

    /// Clears the state.
    pub fn clear_state(self) -> Self {
        Self(self.0.clear_state())
    }
}

impl<'l> IntoFuture for Completion<'l> {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<()>> + Send + 'l>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.0.complete())
    }
}

/// While this lives, the lease is not renewed: it is being let go. If that fails or is cancelled, renewals go on.
struct Closing<'l> {
    lease: &'l Lease,
    held: bool,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if self.held {
            self.lease
                .keeper()
                .reopen(self.lease.id(), self.lease.standing());
        }
    }
}
