//! One connection's place in the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold::core::BootTime;
use leasehold::host::Host;

use super::{ClientAddress, ConnectionLimiter};

/// The state while a complete request is being answered.
const BUSY: u64 = u64::MAX;
/// The state before the connection is closed in favour of another.
const DISPLACED: u64 = u64::MAX - 1;

/// The state of one connection: busy, idle or displaced.
pub(crate) struct ConnectionSlot {
    /// When the connection became idle, in microseconds of the boot clock; or one of the constants above.
    state: AtomicU64,
    /// Whether it belongs to the reserve, on which only probes are answered.
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

    /// Protects the connection from displacement while a complete request is answered. Returns `false` if it was displaced
    /// already: then the request must not be performed.
    pub(super) fn mark_busy(&self) -> bool {
        self.state.swap(BUSY, Ordering::Relaxed) != DISPLACED
    }

    /// Marks the connection busy. If it was displaced, waits until its task is aborted.
    pub(crate) async fn begin(&self) {
        if !self.mark_busy() {
            std::future::pending::<()>().await;
        }
    }

    /// Marks the connection idle while the client has to send a request, send the rest of one, or read the answer. A
    /// displaced connection stays displaced.
    pub(crate) fn mark_idle(&self, now: BootTime) {
        let idle = |state| (state != DISPLACED).then_some(now.as_micros());
        let _ = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, idle);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.state.load(Ordering::Relaxed) == BUSY
    }

    /// Marks a busy connection idle because its client does not read. Returns the time for [`resume`](Self::resume), or
    /// `None` if it was not busy.
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

    /// Marks a connection busy again that was busy before [`stall`](Self::stall), because its client reads again.
    pub(crate) fn resume(&self, stalled: BootTime) {
        let _ = self.replace(stalled.as_micros(), BUSY);
    }

    pub(super) fn is_reserved(&self) -> bool {
        self.reserved.load(Ordering::Relaxed)
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns when it became idle, if it has been idle for at least this long.
    pub(super) fn idle_since(&self, now: BootTime, at_least: Duration) -> Option<u64> {
        let since = self.state.load(Ordering::Relaxed);
        let idle = since < DISPLACED && now.since(BootTime::from_micros(since)) >= at_least;
        idle.then_some(since)
    }

    /// Displaces it, unless its state has changed since then.
    pub(super) fn displace(&self, since: u64) -> bool {
        self.replace(since, DISPLACED)
    }

    /// Displaces it, even if it is busy.
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

/// An admitted connection. Dropping it frees its slot.
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

    /// Moves it from the reserve to a slot, if one is free or can be freed, because a request arrived on it. Otherwise it
    /// comes before newcomers whose addresses have no fewer connections.
    pub(crate) fn promote(&self) -> bool {
        let promoted = self.limiter.promote(self);
        self.slot.waiting.store(!promoted, Ordering::Relaxed);
        promoted
    }

    /// Counts a connection whose request was refused because there was no slot.
    pub(crate) fn count_refused(&self) {
        self.limiter.refused.count();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.limiter.remove(self.number);
    }
}
