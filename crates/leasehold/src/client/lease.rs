//! The guard of one lease.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::{BootTime, Fence, GrantKind, LastHolder, Name, Text, Time};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::Client;
use super::edit::{Completion, Edit};
use super::keeper::Keeper;
use super::lease_state::{End, LeaseState};
use super::table::Id;
use crate::{Error, Hold, Result};

/// A lease that this process holds. It is renewed in the background until it is released, dropped or lost.
///
/// The holder must stop its work when [`lost`](Self::lost) completes, and should pass the [`fence`](Self::fence) to every
/// resource that can check it. Dropping the guard stops the renewals and releases the lease in the background, best effort.
/// [`release`](Self::release) returns the result of the release, and [`Client::close`] waits for releases in the background.
///
/// A guard that is dropped at once protects nothing, so the compiler warns about it:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # async fn unprotected(client: leasehold::Client) -> leasehold::Result<()> {
/// client.lease("nightly-report").acquire().await?; // released at once
/// # Ok(()) }
/// ```
///
/// ```
/// #![deny(unused_must_use)]
/// # async fn protected(client: leasehold::Client) -> leasehold::Result<()> {
/// let _lease = client.lease("nightly-report").acquire().await?; // held until the end of the block
/// # Ok(()) }
/// ```
#[must_use = "a lease is released when it is dropped: bind it to a variable, such as `_lease`"]
pub struct Lease {
    client: Client,
    state: Arc<LeaseState>,
    id: Id,
    runtime: Handle,
    /// Nothing is left to release.
    is_released: AtomicBool,
}

impl Lease {
    pub(super) fn new(client: Client, name: Name, hold: Hold, runtime: Handle) -> Self {
        let state = Arc::new(LeaseState::new(name, hold));
        let id = client.keeper().add(state.clone());
        Self {
            client,
            state,
            id,
            runtime,
            is_released: AtomicBool::new(false),
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &Name {
        &self.state.name
    }

    /// Returns the fencing token. Every later holder has a higher one, so a resource that refuses fences lower than the
    /// highest it has seen is safe even from a holder that has not yet noticed the loss of its lease.
    pub fn fence(&self) -> Fence {
        self.state.fence
    }

    /// Returns the body as it was when the lease was granted, or as it was last written through this guard.
    pub fn body(&self) -> Text {
        self.state.data().body.clone()
    }

    /// Returns the work item's state as it was when the lease was granted, or as it was last written through this guard.
    pub fn state(&self) -> Option<Text> {
        self.state.data().state.clone()
    }

    /// Returns the last exclusive holder that ended; `None` if there was none.
    pub fn last(&self) -> Option<&LastHolder> {
        self.state.last.as_ref()
    }

    /// Returns how the lease was granted.
    pub fn granted(&self) -> GrantKind {
        self.state.granted
    }

    /// Returns how long the lease lasts without a renewal.
    pub fn ttl(&self) -> Duration {
        self.state.ttl
    }

    /// Returns when the lease was granted, in store time.
    pub fn acquired_at(&self) -> Time {
        self.state.acquired_at
    }

    /// Returns when the lease expires unless it is renewed, in store time. It is meant for people: base decisions on
    /// [`deadline`](Self::deadline).
    pub fn expires_at(&self) -> Time {
        self.state.data().expires_at
    }

    /// Returns until when the holder may rely on the lease unless it is renewed, by this machine's boot clock.
    pub fn deadline(&self) -> BootTime {
        self.state.deadline()
    }

    /// Returns a channel that receives each new deadline.
    pub fn watch_deadline(&self) -> watch::Receiver<BootTime> {
        self.state.watch_deadline()
    }

    /// Returns the time until the deadline; zero if the lease is lost.
    pub fn time_left(&self) -> Duration {
        if self.is_lost() {
            return Duration::ZERO;
        }
        self.deadline().since(self.client.host().boot_time())
    }

    /// Returns whether the lease is lost or released. A lost lease stays lost.
    pub fn is_lost(&self) -> bool {
        self.end_reason().is_some()
    }

    /// Waits until the lease is lost, and returns the reason. All work under the lease must stop then.
    ///
    /// The reason is [`Error::Expired`] if the lease was not renewed in time, and [`Error::Fenced`] if it was broken,
    /// released, or granted again by the same nonce.
    ///
    /// It depends on a local timer, so it completes in time even if the network hangs, but not while the runtime is blocked:
    /// blocking work should call [`is_lost`](Self::is_lost), which reads the clock. The future does not borrow the lease, and
    /// any number of them can be awaited.
    pub fn lost(&self) -> impl Future<Output = Error> + Send + use<> {
        let state = self.state.clone();
        async move { state.wait_for(|| state.end()).await.into_error() }
    }

    /// Writes the body, and renews the lease. The next holder can resume from the body.
    ///
    /// # Errors
    /// Those of [`Edit::save`].
    pub async fn update(&self, body: impl Into<Text>) -> Result<()> {
        self.edit().body(body).save().await
    }

    /// Completes the work: writes the body, the work item's state or both, and releases the lease, in one write.
    pub fn complete(&self) -> Completion<'_> {
        Completion::new(self)
    }

    /// Changes the body and the state in one write.
    pub fn edit(&self) -> Edit<'_> {
        Edit::new(self)
    }

    /// Renews the lease now. Leases are renewed in the background anyway: use this to check that renewals succeed.
    pub async fn renew(&self) -> Result<()> {
        self.check()?;
        self.keeper().renew_now(self.id, &self.state).await
    }

    /// Releases the lease, after a pending renewal. Returns whether it was still held: `false` if it was lost, and another
    /// client may hold it.
    pub async fn release(self) -> Result<bool> {
        self.release_shared().await
    }

    /// Releases a lease that other callers may still reference.
    pub(super) async fn release_shared(&self) -> Result<bool> {
        if self.is_released.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let released = self.keeper().release(self.id, &self.state).await;
        self.mark_released();
        released
    }

    /// Records that nothing is left to release.
    pub(super) fn mark_released(&self) {
        self.is_released.store(true, Ordering::Relaxed);
    }

    /// Returns an error if the lease is lost.
    pub(super) fn check(&self) -> Result<()> {
        self.end_reason().map_or(Ok(()), Err)
    }

    /// Returns why the lease ended, if it has ended. Reads the clock, because the keeper's timer may be late.
    fn end_reason(&self) -> Option<Error> {
        let is_late = || self.client.host().boot_time() >= self.state.gives_up_at();
        if self.state.end().is_none() && is_late() {
            let end = End::Lost(Error::Expired);
            self.keeper().remove(self.id, &self.state, end);
        }
        self.state.end().map(End::into_error)
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn keeper(&self) -> &Arc<Keeper> {
        self.client.keeper()
    }

    pub(super) fn id(&self) -> Id {
        self.id
    }

    pub(super) fn shared_state(&self) -> &LeaseState {
        &self.state
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", self.name())
            .field("fence", &self.fence())
            .field("deadline", &self.deadline())
            .field("end", &self.state.end())
            .finish_non_exhaustive()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_released.load(Ordering::Relaxed) {
            return;
        }
        let (keeper, id, state) = (self.keeper().clone(), self.id, self.state.clone());
        keeper.stop(id);
        state.set_end(End::Released);
        let release = async move {
            if let Err(error) = keeper.release(id, &state).await {
                tracing::debug!(name = %state.name, %error, "cannot release the lease: it will expire");
            }
        };
        let current = Handle::try_current();
        let runtime = current.as_ref().unwrap_or(&self.runtime);
        self.client.releases().spawn(release, runtime);
    }
}
