//! Work items: put with a state, leased by it.

use std::ops::Deref;
use std::pin::Pin;
use std::time::Duration;

use leasehold_core::{Name, Nonce, Text};
use tokio::runtime::Handle;

use super::asking::Asking;
use super::{Client, Lease};
use crate::{ClaimRequest, PutRequest, Result};

/// What a builder becomes when it is awaited.
type Doing<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// A work item to be put: created, or put into another state. Nothing happens until it is awaited: then
/// [`Error::Held`](crate::Error::Held) while it is leased. An item that is there keeps its body unless it is given
/// another one.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// client.put("order-17").state("REQUESTED").body("3 apples").await?;
/// // Packing it has failed, and is to be tried again:
/// client.put("order-17").state("REQUESTED").await?;
/// for order in client.claim("REQUESTED").await? {
///     assert_eq!(&*order.body(), "3 apples");
///     order.release().await?;
/// }
/// client.remove("order-17").await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is put until it is awaited"]
pub struct PutBuilder {
    client: Client,
    name: String,
    state: Text,
    body: Option<Text>,
    nonce: Option<String>,
}

impl PutBuilder {
    pub(super) fn new(client: Client, name: String) -> Self {
        Self {
            client,
            name,
            state: Text::default(),
            body: None,
            nonce: None,
        }
    }

    /// The state that it is claimed by. An item needs one.
    pub fn state(mut self, state: impl Into<Text>) -> Self {
        self.state = state.into();
        self
    }

    /// What the work is about. Without this an item that is there keeps its body, and a new one has none; an empty
    /// text empties it.
    pub fn body(mut self, body: impl Into<Text>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// What identifies this put; random unless told otherwise.
    ///
    /// After [`Error::Indeterminate`](crate::Error::Indeterminate) a put can be repeated with the same nonce: while it is
    /// the item's last put that changes nothing, so that it cannot reset an item that was finished meanwhile. After
    /// another put it is a new one.
    pub fn nonce(mut self, nonce: impl Into<String>) -> Self {
        self.nonce = Some(nonce.into());
        self
    }

    async fn put(self) -> Result<()> {
        let nonce = match &self.nonce {
            Some(nonce) => Nonce::new(nonce)?,
            None => self.client.fresh_nonce()?,
        };
        let request = PutRequest {
            name: Name::lock(&self.name)?,
            state: self.state,
            body: self.body,
            nonce: Some(nonce),
        };
        self.client.leases().put(request).await
    }
}

impl IntoFuture for PutBuilder {
    type Output = Result<()>;
    type IntoFuture = Doing<()>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.put())
    }
}

/// Work items to be leased: those of a state that nobody holds, oldest first. Nothing happens until it is awaited.
///
/// Items that one client put one after the other come in that order. Each process has its own estimate of the store's
/// time, so items that several processes put at almost the same time may come in another order: within milliseconds on
/// most stores, within some seconds where the store's time has whole seconds.
///
/// Each item comes as a [`Lease`] of its own, all renewed together. Two claims never get the same item, whichever
/// processes make them. A worker moves an item on and releases it in one write, with [`complete`](Lease::complete); it
/// [releases](Lease::release) or drops what it leaves to others; and what it had when it died is free again after
/// the ttl.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// client.put("order-17").state("REQUESTED").body("3 apples").await?;
///
/// for item in client.claim("REQUESTED").limit(10).await? {
///     println!("packs {}", item.body());
///     item.complete().state("DONE").await?;
/// }
/// assert!(client.claim("REQUESTED").await?.is_empty());
/// # assert_eq!(&*client.claim("DONE").await?[0].body(), "3 apples");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is claimed until it is awaited"]
pub struct ClaimBuilder {
    client: Client,
    state: Text,
    prefix: String,
    limit: usize,
    ttl: Duration,
    wait: Duration,
    owner: Text,
}

impl ClaimBuilder {
    pub(super) fn new(client: Client, state: Text) -> Self {
        Self {
            state,
            prefix: String::new(),
            limit: 1,
            ttl: Duration::from_secs(60),
            wait: Duration::ZERO,
            owner: client.owner().clone(),
            client,
        }
    }

    /// At most so many items: one unless told otherwise, and 1,000 at most.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Only items whose names start like this.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long an item stays leased after its worker's last sign of life: 60 s unless told otherwise. Leases are
    /// renewed by themselves, so this is not how long the work may take.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait for the first item while there is none: not at all unless told otherwise.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Waits for the first item for as long as it takes.
    pub fn wait_forever(self) -> Self {
        self.wait(Duration::MAX)
    }

    /// Who asks, for people: `host:pid` unless told otherwise.
    pub fn owner(mut self, owner: impl Into<Text>) -> Self {
        self.owner = owner.into();
        self
    }

    async fn claim(self) -> Result<Claims> {
        let runtime = Handle::current();
        let mut asking = Asking::new(&self.client, self.wait, self.ttl);
        loop {
            let request = ClaimRequest {
                state: self.state.clone(),
                prefix: self.prefix.clone(),
                limit: self.limit,
                ttl: self.ttl,
                owner: self.owner.clone(),
                nonce: self.client.fresh_nonce()?,
                wait: asking.next_wait(),
            };
            let claimed = self.client.leases().claim(request).await?;
            let now = self.client.now();
            let any = !claimed.is_empty();
            // No await between the grants and their guards: a caller that goes away now drops the guards.
            let claimed = claimed.into_iter();
            let in_time = claimed.filter(|item| now < item.hold.deadline);
            let leases: Vec<_> = in_time
                .map(|item| Lease::new(self.client.clone(), item.name, item.hold, runtime.clone()))
                .collect();
            match (any, leases.is_empty()) {
                (true, true) => asking.late()?,
                (false, _) if asking.has_time() => {}
                _ => return Ok(Claims(leases)),
            }
        }
    }
}

impl IntoFuture for ClaimBuilder {
    type Output = Result<Claims>;
    type IntoFuture = Doing<Claims>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.claim())
    }
}

/// The work items of one claim, oldest first: a slice of [leases](Lease), each completed or released on its own.
///
/// Dropping them releases those that are left, so they are kept while the work lasts:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # async fn unprotected(client: leasehold::Client) -> leasehold::Result<()> {
/// client.claim("REQUESTED").limit(10).await?; // released at once
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "items that are not kept are released at once"]
pub struct Claims(Vec<Lease>);

impl Claims {
    /// Returns the leases, to be moved apart.
    pub fn into_leases(self) -> Vec<Lease> {
        self.0
    }
}

impl Deref for Claims {
    type Target = [Lease];

    fn deref(&self) -> &[Lease] {
        &self.0
    }
}

impl IntoIterator for Claims {
    type Item = Lease;
    type IntoIter = std::vec::IntoIter<Lease>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'c> IntoIterator for &'c Claims {
    type Item = &'c Lease;
    type IntoIter = std::slice::Iter<'c, Lease>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
