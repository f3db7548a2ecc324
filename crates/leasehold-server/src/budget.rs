//! Bounds the bytes of all answers under way: those being made, and those that their clients have not read yet.
//!
//! Pages and batches reserve what they may take before they are made, and wait for it. Answers about few names cannot be
//! foreseen and never wait: they are counted once they are made, if they are large. One address has only a share of either.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use leasehold::wire::{Problem, Trouble};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::connections::{ClientAddress, ConnectionLimits};
use crate::refused::Refused;

/// Bytes of a page or of a claim, as far as a single record allows it.
pub(crate) const PAGE_BYTES: usize = 1024 * 1024;
/// Up to this size an answer is not counted.
pub(crate) const UNCOUNTED_BYTES: usize = 16 * 1024;
/// How long an answer waits for its reservation.
const RESERVATION_TIMEOUT: Duration = Duration::from_secs(2);
/// What is counted: so many bytes.
const UNIT: usize = 1024;

/// The bytes that answers under way may have.
pub(crate) struct AnswerBudget {
    /// For what is reserved.
    reserved: Pool,
    /// For what is counted once it is made.
    counted: Pool,
    /// How many answers wait for a reservation.
    waiting: AtomicUsize,
}

impl AnswerBudget {
    /// A budget of this many bytes for reservations, and half of that for other answers.
    pub(crate) fn new(bytes: usize, connections: ConnectionLimits) -> Arc<Self> {
        let pool = |bytes: usize| {
            let units = units_of(bytes.max(PAGE_BYTES));
            let share = (units * connections.per_address).div_ceil(connections.total);
            Pool::new(units, share.max(units_of(PAGE_BYTES)))
        };
        Arc::new(Self {
            reserved: pool(bytes),
            counted: pool(bytes / 2),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Reserves bytes for an answer to this address. Waits for a while if there are too few; refuses if there still are.
    pub(crate) async fn reserve(
        &self,
        address: ClientAddress,
        bytes: usize,
    ) -> Result<Reserved, Refused> {
        let share = self.reserved.share_of(address);
        self.reserve_of(&share, bytes).await
    }

    /// The same where several answers go to one address: see [`share_of`](Self::share_of).
    pub(crate) async fn reserve_of(
        &self,
        share: &Share,
        bytes: usize,
    ) -> Result<Reserved, Refused> {
        if let Some(reserved) = self.reserved.take(share, bytes) {
            return Ok(reserved);
        }
        let _waiting = Waiting::new(&self.waiting);
        let reserving = self.reserved.wait_for(share, bytes);
        let reserved = timeout(RESERVATION_TIMEOUT, reserving).await;
        reserved.ok().flatten().ok_or_else(too_many_answers)
    }

    /// The share of reservations that an address has.
    pub(crate) fn share_of(&self, address: ClientAddress) -> Share {
        self.reserved.share_of(address)
    }

    /// Counts an answer that is made; `None` if there is no room for it.
    pub(crate) fn count(&self, address: ClientAddress, bytes: usize) -> Option<Reserved> {
        self.counted.take(&self.counted.share_of(address), bytes)
    }

    /// Whether answers wait for others to be read.
    pub(crate) fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// The bytes that are reserved or counted now.
    pub(crate) fn used(&self) -> usize {
        self.reserved.used() + self.counted.used()
    }
}

/// There is no room for an answer.
pub(crate) fn too_many_answers() -> Refused {
    let mut problem = Problem::new(
        Trouble::TooManyRequests,
        "too many large answers are under way: try again later, or ask for less at a time",
    );
    problem.retry_after = Some(1_000);
    problem.into()
}

/// Bytes, for all addresses and for each.
struct Pool {
    all: Arc<Semaphore>,
    units: usize,
    share: usize,
    shares: Mutex<HashMap<ClientAddress, Weak<Semaphore>>>,
}

/// The share of one address.
pub(crate) struct Share(Arc<Semaphore>);

impl Pool {
    fn new(units: usize, share: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(units)),
            units,
            share: share.min(units),
            shares: Mutex::default(),
        }
    }

    fn share_of(&self, address: ClientAddress) -> Share {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&address).and_then(Weak::upgrade) {
            return Share(share);
        }
        if shares.len() == shares.capacity() {
            shares.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::new(Semaphore::new(self.share));
        shares.insert(address, Arc::downgrade(&share));
        Share(share)
    }

    /// What is asked for, or all that an address may have.
    fn units(&self, bytes: usize) -> u32 {
        units_of(bytes).min(self.share) as u32
    }

    fn take(&self, share: &Share, bytes: usize) -> Option<Reserved> {
        let units = self.units(bytes);
        let own = share.0.clone().try_acquire_many_owned(units).ok()?;
        let all = self.all.clone().try_acquire_many_owned(units).ok()?;
        Some(Reserved { own, all })
    }

    /// The share comes first, so that what waits for that keeps no other address waiting.
    async fn wait_for(&self, share: &Share, bytes: usize) -> Option<Reserved> {
        let units = self.units(bytes);
        let own = share.0.clone().acquire_many_owned(units).await.ok()?;
        let all = self.all.clone().acquire_many_owned(units).await.ok()?;
        Some(Reserved { own, all })
    }

    fn used(&self) -> usize {
        (self.units - self.all.available_permits()) * UNIT
    }
}

fn units_of(bytes: usize) -> usize {
    bytes.div_ceil(UNIT)
}

/// Bytes of an answer, until it is dropped.
pub(crate) struct Reserved {
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

impl Reserved {
    /// Gives back what is beyond this.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        for permit in [&mut self.own, &mut self.all] {
            let excess = permit.num_permits().saturating_sub(units_of(bytes));
            drop(permit.split(excess));
        }
    }

    /// Adds another one of the same [`Share`].
    pub(crate) fn add(&mut self, other: Self) {
        self.own.merge(other.own);
        self.all.merge(other.all);
    }
}

/// Counts an answer that waits.
struct Waiting<'b>(&'b AtomicUsize);

impl<'b> Waiting<'b> {
    fn new(count: &'b AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const MIB: usize = 1024 * 1024;

    fn budget() -> Arc<AnswerBudget> {
        // An address may have half of the connections.
        AnswerBudget::new(8 * MIB, ConnectionLimits::new(&crate::Config::default()))
    }

    fn address(last: u8) -> ClientAddress {
        IpAddr::from([127, 0, 0, last]).into()
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_has_a_share_and_keeps_no_other_waiting() {
        let budget = budget();
        let first = budget.reserve(address(1), 4 * MIB).await.unwrap();
        let refused = budget.reserve(address(1), 1).await;
        assert!(refused.is_err(), "it has all of its share");
        assert!(!budget.is_short());
        let mut second = budget.reserve(address(2), 5 * MIB).await.unwrap();
        assert_eq!(budget.used(), 8 * MIB, "no more than its share");
        assert!(budget.reserve(address(3), 1).await.is_err());
        second.shrink_to(MIB);
        assert_eq!(budget.used(), 5 * MIB);
        second.add(budget.reserve(address(2), MIB).await.unwrap());
        budget.reserve(address(3), MIB).await.unwrap();
        drop((first, second));
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_waits_until_another_is_read() {
        let budget = budget();
        let read = budget.reserve(address(1), 4 * MIB).await.unwrap();
        let waiting = tokio::spawn({
            let budget = budget.clone();
            async move { budget.reserve(address(1), MIB).await.is_ok() }
        });
        while !budget.is_short() {
            tokio::task::yield_now().await;
        }
        drop(read);
        assert!(waiting.await.unwrap());
    }

    #[test]
    fn what_is_only_counted_never_waits_and_has_its_own_limit() {
        let budget = budget();
        let counted = budget.count(address(1), 2 * MIB).unwrap();
        assert!(budget.count(address(1), 1).is_none());
        let _other = budget.count(address(2), 2 * MIB).unwrap();
        assert!(budget.count(address(3), 1).is_none());
        drop(counted);
        assert!(budget.count(address(3), 1).is_some());
    }
}
