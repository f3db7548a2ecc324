//! The waist: everything above knows only [`Leases`], which the engine implements directly and
//! `Remote` over HTTP.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Fence, Grant, Held, Mode, Name, Nonce, Renewal, Text, Time, View};

use crate::Result;
use leasehold_core::BootTime;

/// Leases, however they are reached. A lease taken through one implementation is the same lease through another on
/// the same store.
#[async_trait]
pub trait Leases: Send + Sync + 'static {
    /// Takes a lease, waiting for it if the request says so. A gate is passed like this too: its ttl is the period.
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquired>;

    /// Takes several exclusive leases, all or none, one after the other in the order of their names, so that two who
    /// want the same never wait for each other.
    async fn acquire_all(&self, request: AcquireAllRequest) -> Result<AcquiredAll>;

    /// Leases work items of a state that nobody holds, oldest first, as far as they fit into
    /// [`MOST_BYTES`](ClaimRequest::MOST_BYTES); waits for one if there is none and the request says so. Empty if there
    /// still is none.
    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>>;

    /// Creates a work item, or puts it into another state: [`Error::Held`](crate::Error::Held) while it is leased.
    async fn put(&self, request: PutRequest) -> Result<()>;

    /// Empties a work item: [`Error::Held`](crate::Error::Held) while somebody has it.
    async fn remove(&self, name: &Name) -> Result<()>;

    /// The longest that one `acquire` may wait in line. Clients that want to wait longer ask again.
    fn longest_wait(&self) -> Duration {
        Duration::MAX
    }

    /// Renews many leases in one call, each for itself, in the same order. Gives up before `within` is over.
    async fn renew(&self, requests: Vec<RenewRequest>, within: Duration) -> Vec<Result<Renewed>>;

    /// Writes body or state, and renews or lets go.
    async fn update(&self, request: UpdateRequest) -> Result<Updated>;

    /// Lets go. Whether there was something to let go of (now, or by this same call before).
    /// [`Error::Indeterminate`](crate::Error::Indeterminate) if a lost answer leaves that open.
    async fn release(&self, name: &Name, who: Holding) -> Result<bool>;

    /// Ends somebody's lease.
    async fn break_lease(&self, name: &Name, how: BreakRequest) -> Result<Broke>;

    /// What is known of a name; `None` if there is no record.
    async fn show(&self, name: &Name) -> Result<Option<View>>;

    /// What is known of many names.
    async fn list(&self, request: ListRequest) -> Result<Listing>;
}

/// Takes a lease.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    /// Its name.
    pub name: Name,
    /// What identifies this acquisition: a repeated call with the same nonce gets the lease again.
    pub nonce: Nonce,
    /// Who asks, for people.
    pub owner: Text,
    /// How long to hold without a renewal.
    pub ttl: Duration,
    /// Exclusive or shared.
    pub mode: Mode,
    /// The fence that the caller holds already, if it only wants to keep it.
    pub fence: Option<Fence>,
    /// How long to wait while somebody else holds it.
    pub wait: Duration,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// It is the caller's.
    Granted(Hold),
    /// It is somebody else's, also after waiting.
    Held(Held),
}

/// Takes several leases, all or none.
#[derive(Clone, Debug)]
pub struct AcquireAllRequest {
    /// Their names: from 1 to [`MOST_NAMES`](Self::MOST_NAMES), in any order.
    pub names: Vec<Name>,
    /// What identifies this acquisition.
    pub nonce: Nonce,
    /// Who asks, for people.
    pub owner: Text,
    /// How long to hold without a renewal.
    pub ttl: Duration,
    /// How long to wait for all of them together.
    pub wait: Duration,
}

impl AcquireAllRequest {
    /// The most names in one request.
    pub const MOST_NAMES: usize = 64;
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquiredAll {
    /// All are the caller's, in the order of their names, each once.
    Granted(Vec<Claimed>),
    /// None is: this one is somebody else's, also after waiting.
    Held(Name, Held),
}

/// Leases work items.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Items in this state…
    pub state: Text,
    /// …whose names start like this.
    pub prefix: String,
    /// At most so many: from 1 to [`MOST_ITEMS`](Self::MOST_ITEMS).
    pub limit: usize,
    /// How long to hold without a renewal.
    pub ttl: Duration,
    /// Who asks, for people.
    pub owner: Text,
    /// What identifies this claim. Each claim has its own: two never get the same item.
    pub nonce: Nonce,
    /// How long to wait for the first item while there is none.
    pub wait: Duration,
}

impl ClaimRequest {
    /// The most items in one claim.
    pub const MOST_ITEMS: usize = 1_000;
    /// The most bytes of items in one claim, as they are written in JSON: what does not fit is left for the next claim. The
    /// first item always fits.
    pub const MOST_BYTES: usize = 1024 * 1024;
}

/// A lease that is the caller's, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Its name.
    pub name: Name,
    /// What was granted, with the item's body and state.
    pub hold: Hold,
}

/// Creates a work item, or puts it into another state.
#[derive(Clone, Debug)]
pub struct PutRequest {
    /// Its name.
    pub name: Name,
    /// Its state.
    pub state: Text,
    /// Its body. `None` keeps the present one; a new item then has an empty one.
    pub body: Option<Text>,
    /// What identifies this put. Repeated while it is the item's last put, it changes nothing: a retried put cannot reset
    /// a finished item. A put whose answer was lost, and that the item does not show, is
    /// [`Error::Indeterminate`](crate::Error::Indeterminate).
    pub nonce: Option<Nonce>,
}

/// A granted lease and how long its holder may believe in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// What was granted.
    pub grant: Grant,
    /// By this machine's boot clock: counted from the send of the request, so it is over here before anybody else
    /// can get it.
    pub deadline: BootTime,
}

/// Renews a lease.
#[derive(Clone, Debug)]
pub struct RenewRequest {
    /// Its name.
    pub name: Name,
    /// The holder's fence.
    pub fence: Fence,
    /// Another ttl than before.
    pub ttl: Option<Duration>,
}

/// A renewed lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// As it now stands. A service that renews many leases with long bodies at once may answer with the beginnings of some
    /// bodies; its holder knows the body.
    pub renewal: Renewal,
    /// Until when its holder may believe, by this machine's boot clock.
    pub deadline: BootTime,
}

/// Writes body or state.
#[derive(Clone, Debug)]
pub struct UpdateRequest {
    /// The lease's name.
    pub name: Name,
    /// The holder's fence.
    pub fence: Fence,
    /// The new body; `None` leaves it.
    pub body: Option<Text>,
    /// The new state; `None` leaves it, `Some(None)` clears it.
    pub state: Option<Option<Text>>,
    /// Let go in the same write.
    pub then_release: bool,
}

/// What came of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Updated {
    /// Written and renewed.
    Renewed(Renewed),
    /// Written and released.
    Completed,
}

/// By what a caller holds a lease.
#[derive(Clone, Debug)]
pub enum Holding {
    /// By its fence.
    Fence(Fence),
    /// By the nonce that it acquired with.
    Nonce(Nonce),
}

/// Ends somebody's lease.
#[derive(Clone, Debug)]
pub enum BreakRequest {
    /// The caller's own.
    Own(Holding),
    /// Anybody's.
    Force {
        /// Only the holder with this fence.
        fence: Option<Fence>,
        /// Why.
        reason: Text,
        /// At once, although the holder may still believe. Unsafe.
        now: bool,
    },
}

/// What came of breaking a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broke {
    /// It is free.
    Free,
    /// The holder's fence acts no more, but it stays in the way until then.
    Until(Time),
    /// Nobody held it.
    NotHeld,
}

/// Which leases to list.
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    /// Gates instead of locks.
    pub gates: bool,
    /// Names that start like this.
    pub prefix: String,
    /// Only work items in this state, oldest first.
    pub state: Option<Text>,
    /// Only those that somebody holds, or nobody.
    pub held: Option<bool>,
    /// Go on after a page.
    pub cursor: Option<String>,
    /// At most so many in one page; zero: 100. A page may have fewer although there are more.
    pub limit: usize,
}

/// A page of leases.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Them.
    pub leases: Vec<(Name, View)>,
    /// Where to go on; `None` at the end.
    pub cursor: Option<String>,
}
