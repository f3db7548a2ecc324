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
use super::standing::{Over, Standing};
use super::table::Id;
use crate::{Error, Hold, Result};

/// A lease that this process holds. It is renewed in the background until it is released, dropped or lost.
///
/// Whoever acts under a lease obeys [`lost`](Self::lost), and passes the [`fence`](Self::fence) on to every resource
/// that can check it. Dropping the guard stops the renewals and releases the lease in the background, best effort;
/// [`release`](Self::release) says whether that worked, and [`Client::close`] waits for it.
///
/// A guard that is dropped at once protects nothing, so the compiler warns of it:
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
/// let _lease = client.lease("nightly-report").acquire().await?; // held to the end of the block
/// # Ok(()) }
/// ```
#[must_use = "a lease that is not kept is released at once: give it a name, such as `_lease`"]
pub struct Lease {
    client: Client,
    standing: Arc<Standing>,
    id: Id,
    runtime: Handle,
    /// There is nothing more to release.
    settled: AtomicBool,
}

impl Lease {
    pub(super) fn new(client: Client, name: Name, hold: Hold, runtime: Handle) -> Self {
        let standing = Arc::new(Standing::new(name, hold));
        let id = client.keeper().keep(standing.clone());
        Self {
            client,
            standing,
            id,
            runtime,
            settled: AtomicBool::new(false),
        }
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.standing.name
    }

    /// The fencing token. Every later holder has a higher one, so a resource that refuses lower fences than it has
    /// seen is safe even from a holder that does not know yet that it has lost the lease.
    pub fn fence(&self) -> Fence {
        self.standing.fence
    }

    /// The body as it was granted, or as it was last written through this guard.
    pub fn body(&self) -> Text {
        self.standing.known().body.clone()
    }

    /// The work item's state, likewise.
    pub fn state(&self) -> Option<Text> {
        self.standing.known().state.clone()
    }

    /// How the last exclusive holder ended; `None` if there was none.
    pub fn last(&self) -> Option<&LastHolder> {
        self.standing.last.as_ref()
    }

    /// How it came to be granted.
    pub fn granted(&self) -> GrantKind {
        self.standing.granted
    }

    /// How long it outlives its last renewal.
    pub fn ttl(&self) -> Duration {
        self.standing.ttl
    }

    /// When it was granted, in the store's time.
    pub fn acquired_at(&self) -> Time {
        self.standing.acquired_at
    }

    /// When it is over unless it is renewed, in the store's time: for people. Use [`deadline`](Self::deadline) to
    /// decide anything.
    pub fn expires_at(&self) -> Time {
        self.standing.known().expires_at
    }

    /// Until when its holder may believe in it unless it is renewed, by this machine's boot clock.
    pub fn deadline(&self) -> BootTime {
        self.standing.deadline()
    }

    /// Every new deadline from now on.
    pub fn watch_deadline(&self) -> watch::Receiver<BootTime> {
        self.standing.watch_deadline()
    }

    /// How much time is left unless it is renewed; none once it is lost.
    pub fn time_left(&self) -> Duration {
        if self.is_lost() {
            return Duration::ZERO;
        }
        self.deadline().since(self.client.host().boot_time())
    }

    /// Whether it is lost. Once lost, always lost.
    pub fn is_lost(&self) -> bool {
        self.reason().is_some()
    }

    /// Completes once the lease is lost: [`Error::Expired`] if it could not be renewed in time, [`Error::Fenced`] if
    /// somebody broke it or took it over with the same nonce. Whatever is done under the lease must stop then.
    ///
    /// A local timer sees to it, so it fires in time even when the network hangs, but not while the runtime is kept
    /// from running: work that blocks asks [`is_lost`](Self::is_lost), which looks at the clock itself. It can be
    /// awaited any number of times, and does not borrow the lease: where it outlives the guard, it completes when
    /// that is released.
    pub fn lost(&self) -> impl Future<Output = Error> + Send + use<> {
        let standing = self.standing.clone();
        async move { standing.wait_for(|| standing.over()).await.reason() }
    }

    /// Writes the body, and renews: the next holder resumes from it, whatever becomes of this one.
    pub async fn update(&self, body: impl Into<Text>) -> Result<()> {
        self.edit().body(body).save().await
    }

    /// Ends the work: writes a work item's state, or the body, or both, and releases the lease, all in one write.
    pub fn complete(&self) -> Completion<'_> {
        Completion::new(self)
    }

    /// Body and state, to be written in one write.
    pub fn edit(&self) -> Edit<'_> {
        Edit::new(self)
    }

    /// Renews now. That is done in the background anyway: use this to learn whether it still works.
    pub async fn renew(&self) -> Result<()> {
        self.check()?;
        self.keeper().renew_now(self.id, &self.standing).await
    }

    /// Lets go, after a renewal that is under way. Whether there was something to let go of: `false` when the lease
    /// was lost and somebody else may have it.
    pub async fn release(self) -> Result<bool> {
        self.let_go().await
    }

    pub(super) async fn let_go(&self) -> Result<bool> {
        if self.settled.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let released = self.keeper().let_go(self.id, &self.standing).await;
        self.settle();
        released
    }

    /// Leaves nothing to release.
    pub(super) fn settle(&self) {
        self.settled.store(true, Ordering::Relaxed);
    }

    /// An error once it is lost.
    pub(super) fn check(&self) -> Result<()> {
        self.reason().map_or(Ok(()), Err)
    }

    /// Why it is over, if it is. Looks at the clock itself: the keeper's timer may be late.
    fn reason(&self) -> Option<Error> {
        let late = || self.client.host().boot_time() >= self.standing.ends();
        if self.standing.over().is_none() && late() {
            let over = Over::Lost(Error::Expired);
            self.keeper().forget(self.id, &self.standing, over);
        }
        self.standing.over().map(Over::reason)
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

    pub(super) fn standing(&self) -> &Standing {
        &self.standing
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", self.name())
            .field("fence", &self.fence())
            .field("deadline", &self.deadline())
            .field("over", &self.standing.over())
            .finish_non_exhaustive()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.settled.load(Ordering::Relaxed) {
            return;
        }
        let (keeper, id, standing) = (self.keeper().clone(), self.id, self.standing.clone());
        keeper.stop(id);
        standing.end(Over::LetGo);
        let release = async move {
            if let Err(error) = keeper.let_go(id, &standing).await {
                tracing::debug!(name = %standing.name, %error, "not released: left to expire");
            }
        };
        let here = Handle::try_current();
        let runtime = here.as_ref().unwrap_or(&self.runtime);
        self.client.releases().spawn(release, runtime);
    }
}
