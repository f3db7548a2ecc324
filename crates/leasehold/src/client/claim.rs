//! Builders that put and claim work items.

use std::ops::Deref;
use std::pin::Pin;
use std::time::Duration;

use leasehold_core::{Name, Nonce, Text};
use tokio::runtime::Handle;

use super::attempts::Attempts;
use super::{Client, Lease};
use crate::{ClaimRequest, PutRequest, Result};

/// The future of a builder.
type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// Options for putting a work item: creating it, or moving it to another state. Nothing happens until it is awaited.
///
/// An existing item keeps its body unless a new one is given.
///
/// # Errors
/// [`Error::Held`](crate::Error::Held) while the item is leased.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// client.put("order-17").state("REQUESTED").body("3 apples").await?;
/// // Packing has failed and must be retried:
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

    /// Sets the state, by which the item is claimed. Required.
    pub fn state(mut self, state: impl Into<Text>) -> Self {
        self.state = state.into();
        self
    }

    /// Sets the body, which describes the work. By default an existing item keeps its body, and the body of a new item is
    /// empty.
    pub fn body(mut self, body: impl Into<Text>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sets the nonce, which identifies this put: a random one by default.
    ///
    /// After [`Error::Indeterminate`](crate::Error::Indeterminate) a put can be retried with the same nonce. If it was
    /// already applied and no other put followed, the retry changes nothing, so it cannot reset an item that was completed
    /// meanwhile. After another put, it counts as a new one.
    pub fn nonce(mut self, nonce: impl Into<String>) -> Self {
        self.nonce = Some(nonce.into());
        self
    }

    async fn put(self) -> Result<()> {
        let nonce = match &self.nonce {
            Some(nonce) => Nonce::new(nonce)?,
            None => self.client.new_nonce()?,
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
    type IntoFuture = BoxFuture<()>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.put())
    }
}

/// Options for claiming work items: the oldest free items in a state. Nothing happens until it is awaited.
///
/// Each item is returned as a [`Lease`]; the leases are renewed together. Two claims never get the same item, even in
/// different processes. A worker [completes](Lease::complete) an item, which moves it to the next state and releases it in one
/// write, or [releases](Lease::release) or drops it for other workers. The items of a worker that dies are free again after
/// the ttl.
///
/// Items that one client puts one after the other are claimed in that order. Each process has its own estimate of the
/// store's time, so items that several processes put at almost the same time may be claimed in another order: within
/// milliseconds on most stores, within seconds if the store's time has whole seconds.
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

    /// Sets the maximum number of items: one by default, at most 1,000.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Claims only items whose names start with this prefix.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long the leases last without a renewal: 60 s by default.
    ///
    /// The leases are renewed automatically, so the ttl limits how soon items are free after a crash, not how long the work
    /// may take.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how long to wait while there is no item: no time by default.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Waits for an item without a timeout.
    pub fn wait_forever(self) -> Self {
        self.wait(Duration::MAX)
    }

    /// Sets the description of the holder that other clients see: `host:pid` by default.
    pub fn owner(mut self, owner: impl Into<Text>) -> Self {
        self.owner = owner.into();
        self
    }

    async fn claim(self) -> Result<Claims> {
        let runtime = Handle::current();
        let mut attempts = Attempts::new(&self.client, self.wait, self.ttl);
        loop {
            let request = ClaimRequest {
                state: self.state.clone(),
                prefix: self.prefix.clone(),
                limit: self.limit,
                ttl: self.ttl,
                owner: self.owner.clone(),
                nonce: self.client.new_nonce()?,
                wait: attempts.next_wait(),
            };
            let granted = self.client.leases().claim(request).await?;
            let now = self.client.now();
            let has_grants = !granted.is_empty();
            // No await between the grants and their guards: a caller that is cancelled now drops the guards.
            let in_time = granted.into_iter().filter(|item| now < item.hold.deadline);
            let leases: Vec<_> = in_time
                .map(|item| Lease::new(self.client.clone(), item.name, item.hold, runtime.clone()))
                .collect();
            match (has_grants, leases.is_empty()) {
                (true, true) => attempts.count_late_grant()?,
                (false, _) if attempts.can_wait_longer() => {}
                _ => return Ok(Claims(leases)),
            }
        }
    }
}

impl IntoFuture for ClaimBuilder {
    type Output = Result<Claims>;
    type IntoFuture = BoxFuture<Claims>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.claim())
    }
}

/// The work items of one claim, oldest first: a slice of [leases](Lease), each completed or released separately.
///
/// Dropping it releases the remaining items, so keep it while the work lasts:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # async fn unprotected(client: leasehold::Client) -> leasehold::Result<()> {
/// client.claim("REQUESTED").limit(10).await?; // released at once
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "items are released when they are dropped"]
pub struct Claims(Vec<Lease>);

impl Claims {
    /// Returns the leases as a vector.
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
