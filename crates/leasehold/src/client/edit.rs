//! Writes under a lease.

use std::pin::Pin;

use leasehold_core::Text;

use super::Lease;
use super::lease_state::End;
use crate::{Error, Result, UpdateOutcome, UpdateRequest};

/// Changes to the body and the state of a lease, in one write. Nothing happens until [`save`](Self::save).
///
/// Parts that are not given keep their values.
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

    /// Sets the new body.
    pub fn body(mut self, body: impl Into<Text>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sets the new state.
    pub fn state(mut self, state: impl Into<Text>) -> Self {
        self.state = Some(Some(state.into()));
        self
    }

    /// Clears the state.
    pub fn clear_state(mut self) -> Self {
        self.state = Some(None);
        self
    }

    /// Writes the changes, and renews the lease.
    ///
    /// # Errors
    /// [`Error::Fenced`] or [`Error::Expired`] if the lease is lost: nothing was written.
    /// [`Error::Indeterminate`] if it is unknown whether the changes were written.
    pub async fn save(self) -> Result<()> {
        let (keeper, lease) = (self.lease.keeper(), self.lease);
        let response = match self.send(false).await {
            Ok(UpdateOutcome::Renewed(renewed)) => Ok(renewed),
            Ok(UpdateOutcome::Completed) => Err(Error::Corrupt(
                "invalid response to an update: the lease was released, not renewed".into(),
            )),
            Err(error) => Err(error),
        };
        let result = response.as_ref().map(drop).map_err(Error::clone);
        keeper.apply_update(lease.id(), lease.shared_state(), response);
        result.inspect(|()| self.apply_to_guard())
    }

    /// Writes the changes, and releases the lease in the same write.
    async fn complete(self) -> Result<()> {
        let lease = self.lease;
        lease.check()?;
        let mut closing = Closing {
            lease,
            is_held: true,
        };
        lease.keeper().stop(lease.id());
        lease.keeper().join(lease.id(), lease.shared_state()).await;
        let response = self.send(true).await;
        let end = match &response {
            Ok(_) => {
                self.apply_to_guard();
                lease.mark_released();
                End::Released
            }
            Err(reason @ (Error::Fenced | Error::Expired)) => End::Lost(reason.clone()),
            Err(_) => return response.map(drop),
        };
        closing.is_held = false;
        lease.keeper().remove(lease.id(), lease.shared_state(), end);
        response.map(drop)
    }

    async fn send(&self, then_release: bool) -> Result<UpdateOutcome> {
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
            response = lease.client().leases().update(request) => response,
            _ = lease.lost() => Err(Error::Indeterminate(
                "the update may have been written: the lease was lost before the store responded".into(),
            )),
        }
    }

    /// Applies what was written to the guard.
    fn apply_to_guard(&self) {
        let mut data = self.lease.shared_state().data();
        if let Some(body) = &self.body {
            data.body = body.clone();
        }
        if let Some(state) = &self.state {
            data.state = state.clone();
        }
    }
}

/// The completion of the work under a lease: writes the given parts and releases the lease, in one write. Nothing happens
/// until it is awaited.
///
/// Parts that are not given keep their values. If the call fails, the lease is still held and the call can be retried,
/// unless the error is [`Error::Fenced`] or [`Error::Expired`].
///
/// After [`Error::Indeterminate`] the write may have been applied. A retry then succeeds if the lease is exclusive and no
/// later holder has ended; otherwise it returns [`Error::Fenced`].
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

    /// Sets the new body.
    pub fn body(self, body: impl Into<Text>) -> Self {
        Self(self.0.body(body))
    }

    /// Sets the new state.
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

/// Stops the renewals of a lease while it is being completed. They resume if that fails or is cancelled.
struct Closing<'l> {
    lease: &'l Lease,
    is_held: bool,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if self.is_held {
            self.lease
                .keeper()
                .resume(self.lease.id(), self.lease.shared_state());
        }
    }
}
