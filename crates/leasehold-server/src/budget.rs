//! Bounds the memory of all answers in progress: those being built, and those that their clients have not read yet.
//!
//! Pages and batches reserve their maximum size before they are built, and wait for it. The size of other answers is unknown
//! until they are built: large ones then reserve it from a second pool, without waiting. One address has only a share of each
//! pool.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use leasehold::wire::{Problem, ProblemType};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::connections::{ClientAddress, ConnectionLimits};
use crate::rejection::Rejection;

/// The maximum size of a page or a claim, unless a single record is larger.
pub(crate) const PAGE_BYTES: usize = 1024 * 1024;
/// The maximum size of answers that need no reservation.
pub(crate) const MAX_UNRESERVED_BYTES: usize = 16 * 1024;
/// How long an answer waits for its reservation.
const RESERVATION_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of one semaphore permit.
const UNIT: usize = 1024;

/// The memory budget of answers in progress.
pub(crate) struct AnswerBudget {
    /// For answers that wait for their reservation.
    waiting_pool: Pool,
    /// For answers that are already built.
    immediate_pool: Pool,
    /// The number of answers that wait for a reservation.
    waiting: AtomicUsize,
}

impl AnswerBudget {
    /// Creates a budget of `bytes` for pages and batches, and half of that for other answers.
    pub(crate) fn new(bytes: usize, connections: ConnectionLimits) -> Arc<Self> {
        let pool = |bytes: usize| {
            let units = units_of(bytes.max(PAGE_BYTES));
            let share = (units * connections.per_address).div_ceil(connections.total);
            Pool::new(units, share.max(units_of(PAGE_BYTES)))
        };
        Arc::new(Self {
            waiting_pool: pool(bytes),
            immediate_pool: pool(bytes / 2),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Reserves bytes for an answer to this address. Waits up to [`RESERVATION_TIMEOUT`] for them, then fails.
    pub(crate) async fn reserve(
        &self,
        address: ClientAddress,
        bytes: usize,
    ) -> Result<BudgetPermit, Rejection> {
        let share = self.waiting_pool.share_of(address);
        self.reserve_from(&share, bytes).await
    }

    /// Reserves bytes from a [share](Self::share_of), for one of several answers to an address.
    pub(crate) async fn reserve_from(
        &self,
        share: &Share,
        bytes: usize,
    ) -> Result<BudgetPermit, Rejection> {
        if let Some(permit) = self.waiting_pool.try_acquire(share, bytes) {
            return Ok(permit);
        }
        let _waiting = WaitingGuard::new(&self.waiting);
        let acquiring = self.waiting_pool.acquire(share, bytes);
        let permit = timeout(RESERVATION_TIMEOUT, acquiring).await;
        permit.ok().flatten().ok_or_else(too_many_answers)
    }

    /// Returns the share of an address, from which it may reserve.
    pub(crate) fn share_of(&self, address: ClientAddress) -> Share {
        self.waiting_pool.share_of(address)
    }

    /// Reserves bytes for an answer that is already built; `None` if there are too few.
    pub(crate) fn try_reserve(&self, address: ClientAddress, bytes: usize) -> Option<BudgetPermit> {
        let pool = &self.immediate_pool;
        pool.try_acquire(&pool.share_of(address), bytes)
    }

    /// Returns whether answers wait for a reservation.
    pub(crate) fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Returns how many bytes are reserved.
    pub(crate) fn used(&self) -> usize {
        self.waiting_pool.used() + self.immediate_pool.used()
    }
}

/// Returns the refusal of an answer that exceeds the budget.
pub(crate) fn too_many_answers() -> Rejection {
    let mut problem = Problem::new(
        ProblemType::TooManyRequests,
        "too many large answers are in progress: retry later, or request less at a time",
    );
    problem.retry_after = Some(1_000);
    problem.into()
}

/// A budget of bytes for all addresses. Each address has a share.
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

    /// Converts bytes to units, at most the share of an address.
    fn units(&self, bytes: usize) -> u32 {
        units_of(bytes).min(self.share) as u32
    }

    fn try_acquire(&self, share: &Share, bytes: usize) -> Option<BudgetPermit> {
        let units = self.units(bytes);
        let own = share.0.clone().try_acquire_many_owned(units).ok()?;
        let all = self.all.clone().try_acquire_many_owned(units).ok()?;
        Some(BudgetPermit { own, all })
    }

    /// Waits for the share before the pool, so that an address that has used up its share blocks no other.
    async fn acquire(&self, share: &Share, bytes: usize) -> Option<BudgetPermit> {
        let units = self.units(bytes);
        let own = share.0.clone().acquire_many_owned(units).await.ok()?;
        let all = self.all.clone().acquire_many_owned(units).await.ok()?;
        Some(BudgetPermit { own, all })
    }

    fn used(&self) -> usize {
        (self.units - self.all.available_permits()) * UNIT
    }
}

fn units_of(bytes: usize) -> usize {
    bytes.div_ceil(UNIT)
}

/// Reserved bytes of an answer, released on drop.
pub(crate) struct BudgetPermit {
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

impl BudgetPermit {
    /// Releases all but this many bytes.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        for permit in [&mut self.own, &mut self.all] {
            let excess = permit.num_permits().saturating_sub(units_of(bytes));
            drop(permit.split(excess));
        }
    }

    /// Adds another permit of the same [`Share`].
    pub(crate) fn add(&mut self, other: Self) {
        self.own.merge(other.own);
        self.all.merge(other.all);
    }
}

/// Counts an answer that waits for its reservation, until it is dropped.
struct WaitingGuard<'b>(&'b AtomicUsize);

impl<'b> WaitingGuard<'b> {
    fn new(count: &'b AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for WaitingGuard<'_> {
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
        // By default, the share of an address is a half.
        AnswerBudget::new(8 * MIB, ConnectionLimits::new(&crate::Config::default()))
    }

    fn address(last: u8) -> ClientAddress {
        IpAddr::from([127, 0, 0, last]).into()
    }

    #[tokio::test(start_paused = true)]
    async fn address_that_has_used_up_its_share_blocks_no_other() {
        let budget = budget();
        let first = budget.reserve(address(1), 4 * MIB).await.unwrap();
        let refused = budget.reserve(address(1), 1).await;
        assert!(refused.is_err(), "its share is used up");
        assert!(!budget.is_short());
        let mut second = budget.reserve(address(2), 5 * MIB).await.unwrap();
        assert_eq!(budget.used(), 8 * MIB, "at most its share");
        assert!(budget.reserve(address(3), 1).await.is_err());
        second.shrink_to(MIB);
        assert_eq!(budget.used(), 5 * MIB);
        second.add(budget.reserve(address(2), MIB).await.unwrap());
        budget.reserve(address(3), MIB).await.unwrap();
        drop((first, second));
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn answer_waits_until_another_is_read() {
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
    fn answers_that_never_wait_have_a_separate_limit() {
        let budget = budget();
        let permit = budget.try_reserve(address(1), 2 * MIB).unwrap();
        assert!(budget.try_reserve(address(1), 1).is_none());
        let _other = budget.try_reserve(address(2), 2 * MIB).unwrap();
        assert!(budget.try_reserve(address(3), 1).is_none());
        drop(permit);
        assert!(budget.try_reserve(address(3), 1).is_some());
    }
}
