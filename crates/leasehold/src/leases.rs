//! The interface between the client and its implementations: the engine in this process, and a remote service.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{BootTime, Fence, Grant, Held, Mode, Name, Nonce, Renewal, Text, Time, View};

use crate::Result;

/// The operations on leases, of an engine or of a remote service. All implementations on one store share its leases.
///
/// Programs usually use the [`Client`](crate::Client), which renews leases in the background.
#[async_trait]
pub trait Leases: Send + Sync + 'static {
    /// Acquires a lease, and waits for it if the request allows. Also passes a gate, whose period is the ttl.
    async fn acquire(&self, request: AcquireRequest) -> Result<AcquireOutcome>;

    /// Acquires several exclusive leases, all or none. It acquires them in the order of their names, so that two calls for
    /// the same leases cannot deadlock.
    async fn acquire_all(&self, request: AcquireAllRequest) -> Result<AcquireAllOutcome>;

    /// Claims free work items in a state, oldest first, up to [`MAX_BYTES`](ClaimRequest::MAX_BYTES). If there is none, it
    /// waits as long as the request allows, and returns an empty list if there is still none.
    async fn claim(&self, request: ClaimRequest) -> Result<Vec<NamedHold>>;

    /// Creates a work item, or moves it to another state.
    ///
    /// # Errors
    /// [`Error::Held`](crate::Error::Held) while the item is leased.
    async fn put(&self, request: PutRequest) -> Result<()>;

    /// Removes a work item, so that it can no longer be claimed.
    ///
    /// # Errors
    /// [`Error::Held`](crate::Error::Held) while the item is leased.
    async fn remove(&self, name: &Name) -> Result<()>;

    /// Returns the maximum time that one call can wait in the queue. Clients repeat the call to wait longer.
    fn max_wait(&self) -> Duration {
        Duration::MAX
    }

    /// Renews several leases in one call. Each is renewed or fails separately; the results are in the same order. Returns
    /// before `timeout` has passed.
    async fn renew(
        &self,
        requests: Vec<RenewRequest>,
        timeout: Duration,
    ) -> Vec<Result<RenewedHold>>;

    /// Writes the body or the state, and renews or releases the lease.
    async fn update(&self, request: UpdateRequest) -> Result<UpdateOutcome>;

    /// Releases a lease. Returns whether it was released, by this call or by an earlier delivery of it.
    ///
    /// # Errors
    /// [`Error::Indeterminate`](crate::Error::Indeterminate) if the response was lost and the outcome is unknown.
    async fn release(&self, name: &Name, holder: HolderKey) -> Result<bool>;

    /// Ends a holder.
    async fn break_lease(&self, name: &Name, request: BreakRequest) -> Result<BreakOutcome>;

    /// Returns the view of a name; `None` if there is no record.
    async fn show(&self, name: &Name) -> Result<Option<View>>;

    /// Lists a page of names.
    async fn list(&self, request: ListRequest) -> Result<Listing>;
}

/// The arguments of [`Leases::acquire`].
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    /// The name.
    pub name: Name,
    /// Identifies this acquisition: a repeated call with the same nonce is granted the lease again.
    pub nonce: Nonce,
    /// The caller's description, for people.
    pub owner: Text,
    /// How long the lease lasts without a renewal.
    pub ttl: Duration,
    /// Exclusive or shared.
    pub mode: Mode,
    /// The fence that the caller holds already, if it only wants to keep it.
    pub fence: Option<Fence>,
    /// How long to wait while another client holds the lease.
    pub wait: Duration,
}

/// The outcome of [`Leases::acquire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// The lease was granted to the caller.
    Granted(Hold),
    /// Another client still holds the lease after the wait.
    Held(Held),
}

/// The arguments of [`Leases::acquire_all`].
#[derive(Clone, Debug)]
pub struct AcquireAllRequest {
    /// The names: from 1 to [`MAX_NAMES`](Self::MAX_NAMES), in any order.
    pub names: Vec<Name>,
    /// Identifies this acquisition.
    pub nonce: Nonce,
    /// The caller's description, for people.
    pub owner: Text,
    /// How long the lease lasts without a renewal.
    pub ttl: Duration,
    /// How long to wait for all leases together.
    pub wait: Duration,
}

impl AcquireAllRequest {
    /// The maximum number of names in one request.
    pub const MAX_NAMES: usize = 64;
}

/// The outcome of [`Leases::acquire_all`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireAllOutcome {
    /// All leases were granted, in the order of their names, without duplicates.
    Granted(Vec<NamedHold>),
    /// None was granted: another client still holds this lease after the wait.
    Held(Name, Held),
}

/// The arguments of [`Leases::claim`].
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The state of the items.
    pub state: Text,
    /// The prefix of the names of the items.
    pub prefix: String,
    /// The maximum number of items: from 1 to [`MAX_ITEMS`](Self::MAX_ITEMS).
    pub limit: usize,
    /// How long the lease lasts without a renewal.
    pub ttl: Duration,
    /// The caller's description, for people.
    pub owner: Text,
    /// Identifies this claim. Each claim requires its own nonce, so that two claims never get the same item.
    pub nonce: Nonce,
    /// How long to wait while there is no item.
    pub wait: Duration,
}

impl ClaimRequest {
    /// The maximum number of items in one claim.
    pub const MAX_ITEMS: usize = 1_000;
    /// The maximum size of the items of one claim in JSON, in bytes. Items that do not fit are left for the next claim. The
    /// first item always fits.
    pub const MAX_BYTES: usize = 1024 * 1024;
}

/// A granted lease with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedHold {
    /// The name.
    pub name: Name,
    /// The lease, with the body and the state of the item.
    pub hold: Hold,
}

/// The arguments of [`Leases::put`].
#[derive(Clone, Debug)]
pub struct PutRequest {
    /// The name of the item.
    pub name: Name,
    /// The state.
    pub state: Text,
    /// The body. `None` keeps the present one, which is empty for a new item.
    pub body: Option<Text>,
    /// Identifies this put. Repeating the item's last put changes nothing, so a retry cannot reset a completed item. If the
    /// response to a put was lost and the item does not show the put, the error is
    /// [`Error::Indeterminate`](crate::Error::Indeterminate).
    pub nonce: Option<Nonce>,
}

/// A granted lease, and how long its holder may rely on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The grant.
    pub grant: Grant,
    /// Until when the holder may rely on the lease, by this machine's boot clock. It is counted from the send of the request,
    /// so it passes before another client can acquire the lease.
    pub deadline: BootTime,
}

/// The arguments of [`Leases::renew`], for one lease.
#[derive(Clone, Debug)]
pub struct RenewRequest {
    /// The name.
    pub name: Name,
    /// The holder's fence.
    pub fence: Fence,
    /// A new ttl; `None` keeps the present one.
    pub ttl: Option<Duration>,
}

/// A renewed lease, and how long its holder may rely on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewedHold {
    /// The renewal. If many leases with long bodies are renewed at once, a remote service may truncate the bodies; the holder
    /// knows its body.
    pub renewal: Renewal,
    /// Until when the holder may rely on the lease, by this machine's boot clock.
    pub deadline: BootTime,
}

/// The arguments of [`Leases::update`].
#[derive(Clone, Debug)]
pub struct UpdateRequest {
    /// The name.
    pub name: Name,
    /// The holder's fence.
    pub fence: Fence,
    /// The new body; `None` keeps the present one.
    pub body: Option<Text>,
    /// The new state; `None` keeps the present one, `Some(None)` clears it.
    pub state: Option<Option<Text>>,
    /// Release the lease in the same write, instead of renewing it.
    pub then_release: bool,
}

/// The outcome of [`Leases::update`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// The changes were written, and the lease was renewed.
    Renewed(RenewedHold),
    /// The changes were written, and the lease was released.
    Completed,
}

/// Identifies a holder by its fence or by its nonce.
#[derive(Clone, Debug)]
pub enum HolderKey {
    /// The holder with this fence.
    Fence(Fence),
    /// The holder that acquired with this nonce.
    Nonce(Nonce),
}

/// The arguments of [`Leases::break_lease`].
#[derive(Clone, Debug)]
pub enum BreakRequest {
    /// Ends the caller's own holder.
    Own(HolderKey),
    /// Ends the holder of any client.
    Force {
        /// The holder with this fence; `None` for all holders.
        fence: Option<Fence>,
        /// The reason, shown to people.
        reason: Text,
        /// Removes the holder at once. **Unsafe**: it may still rely on its lease. Otherwise it blocks others until it
        /// expires.
        now: bool,
    },
}

/// The outcome of [`Leases::break_lease`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakOutcome {
    /// The lease is free.
    Free,
    /// The fence of the holder is refused, but it blocks others until this time.
    Until(Time),
    /// There was no such holder.
    NotHeld,
}

/// The arguments of [`Leases::list`].
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    /// List gates instead of locks.
    pub gates: bool,
    /// The prefix of the names.
    pub prefix: String,
    /// List only work items in this state, oldest first.
    pub state: Option<Text>,
    /// List only held names, or only free ones; `None` for both.
    pub held: Option<bool>,
    /// The cursor of the previous page.
    pub cursor: Option<String>,
    /// The maximum number of names in the page; zero stands for 100. A page may have fewer even if it is not the last.
    pub limit: usize,
}

/// A page of leases.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The leases.
    pub leases: Vec<(Name, View)>,
    /// The cursor of the next page; `None` on the last page.
    pub cursor: Option<String>,
}
