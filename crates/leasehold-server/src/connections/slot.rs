//! One connection's place in the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold::core::BootTime;
use leasehold::host::Host;

use super::{ClientAddress, ConnectionLimiter};

/// A complete request is being answered.
const BUSY: u64 = u64::MAX;
/// The connection is about to be closed.
const DISPLACED: u64 = u64::MAX - 1;

/// What happens on one connection.
pub(crate) struct ConnectionSlot {
    /// Since when the connection is idle, in microseconds of the boot clock; or one of the constants above.
    state: AtomicU64,
    /// Whether it is one of the reserve, on which only probes are answered.
    pub(super) reserved: AtomicBool,
    /// Whether a request on it waits for a slot.
    waiting: AtomicBool,
    host: Arc<dyn Host>,
}

impl ConnectionSlot {
    pub(crate) fn new(host: Arc<dyn Host>, now: BootTime, reserved: bool) -> Self {
        Self {
            state: AtomicU64::new(now.as_micros()),
            reserved: AtomicBool::new(reserved),
            waiting: AtomicBool::new(false),
            host,
        }
    }

    /// A complete request is here: the connection is not displaced until it is answered. Returns `false` if it has been
    /// displaced already, and the request must not be performed.
    pub(super) fn mark_busy(&self) -> bool {
        self.state.swap(BUSY, Ordering::Relaxed) != DISPLACED
    }

    /// The same, and waits for its end if it has been displaced.
    pub(crate) async fn begin(&self) {
        if !self.mark_busy() {
            std::future::pending::<()>().await;
        }
    }

    /// From now on it is the client's turn: to send a request, the rest of one, or to read the answer. A connection that was
    /// displaced meanwhile stays so.
    pub(crate) fn mark_idle(&self, now: BootTime) {
        let idle = |state| (state != DISPLACED).then_some(now.as_micros());
        let _ = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, idle);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.state.load(Ordering::Relaxed) == BUSY
    }

    /// The client has stopped reading. Returns since when a busy connection counts as idle.
    pub(crate) fn stall(&self) -> Option<BootTime> {
        let now = self.host.boot_time();
        let stalled = self.state.compare_exchange(
            BUSY,
            now.as_micros(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        stalled.is_ok().then_some(now)
    }

    /// The client reads again: a connection that was busy before [`stall`](Self::stall) is so again.
    pub(crate) fn resume(&self, stalled: BootTime) {
        let _ = self.replace(stalled.as_micros(), BUSY);
    }

    pub(super) fn is_reserved(&self) -> bool {
        self.reserved.load(Ordering::Relaxed)
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Since when it has been idle, if for at least this long.
    pub(super) fn idle_since(&self, now: BootTime, at_least: Duration) -> Option<u64> {
        let since = self.state.load(Ordering::Relaxed);
        let idle = since < DISPLACED && now.since(BootTime::from_micros(since)) >= at_least;
        idle.then_some(since)
    }

    /// Displaces it, unless something has happened since then.
    pub(super) fn displace(&self, since: u64) -> bool {
        self.replace(since, DISPLACED)
    }

    /// Displaces it, whatever happens on it.
    pub(super) fn displace_at_once(&self) {
        self.state.store(DISPLACED, Ordering::Relaxed);
    }

    fn replace(&self, current: u64, new: u64) -> bool {
        let replaced =
            self.state
                .compare_exchange(current, new, Ordering::Relaxed, Ordering::Relaxed);
        replaced.is_ok()
    }
}

/// A connection that was admitted; dropped, it gives up its slot.
pub(crate) struct Connection {
    pub(super) limiter: Arc<ConnectionLimiter>,
    pub(super) number: u64,
    pub(super) address: ClientAddress,
    pub(super) slot: Arc<ConnectionSlot>,
}

impl Connection {
    pub(crate) fn slot(&self) -> &Arc<ConnectionSlot> {
        &self.slot
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn address(&self) -> ClientAddress {
        self.address
    }

    /// Whether only probes are answered on it, unless [`promote`](Self::promote) succeeds.
    pub(crate) fn is_reserved(&self) -> bool {
        self.slot.is_reserved()
    }

    /// Moves it from the reserve to a slot, for a request that came on it, if one is free or can be freed. Otherwise newcomers
    /// whose addresses have no fewer connections do not get one before it does.
    pub(crate) fn promote(&self) -> bool {
        let promoted = self.limiter.promote(self);
        self.slot.waiting.store(!promoted, Ordering::Relaxed);
        promoted
    }

    /// Counts a connection whose request was refused for want of a slot.
    pub(crate) fn count_refused(&self) {
        self.limiter.refused.count();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.limiter.remove(self.number);
    }
}
