//! Who has a connection, and who gives way when there are too many: so that those who only take up room, slowly or
//! silently, keep nobody out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::core::BootTime;
use tokio::task::{AbortHandle, Id};

/// How long somebody may take to ask for something before the connection can be given to somebody else.
const GRACE: Duration = Duration::from_secs(1);

/// A request is being answered.
const BUSY: u64 = u64::MAX;
/// The connection is about to be closed.
const LOST: u64 = u64::MAX - 1;

/// What goes on on one connection: since when, in microseconds of the boot clock, nobody has asked for anything; or one
/// of the words above. A request whose head is not complete has not been asked.
pub(crate) struct Seat(AtomicU64);

impl Seat {
    pub(crate) fn new(now: BootTime) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(now.as_micros())))
    }

    /// A request is here. Unless it comes too late, the connection stays until it is answered.
    pub(crate) fn begin(&self) -> bool {
        self.0.swap(BUSY, Ordering::Relaxed) != LOST
    }

    /// It is answered.
    pub(crate) fn end(&self, now: BootTime) {
        self.0.store(now.as_micros(), Ordering::Relaxed);
    }

    /// Since when it has been idle, if so for long enough.
    fn idle_since(&self, now: BootTime) -> Option<u64> {
        let since = self.0.load(Ordering::Relaxed);
        let free = since < LOST && now.since(BootTime::from_micros(since)) >= GRACE;
        free.then_some(since)
    }

    /// Takes it away, unless somebody has asked for something since.
    fn lose(&self, since: u64) -> bool {
        let taken = self
            .0
            .compare_exchange(since, LOST, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok()
    }
}

/// All connections, by the tasks that serve them.
#[derive(Default)]
pub(crate) struct Seats(HashMap<Id, (Arc<Seat>, AbortHandle)>);

impl Seats {
    pub(crate) fn add(&mut self, seat: Arc<Seat>, task: AbortHandle) {
        self.0.insert(task.id(), (seat, task));
    }

    pub(crate) fn remove(&mut self, task: Id) {
        self.0.remove(&task);
    }

    /// Closes the connections that have been idle longest, one in a hundred: how many that were.
    pub(crate) fn make_room(&self, now: BootTime) -> usize {
        let all = self.0.values();
        let idle = all.filter_map(|(seat, task)| Some((seat.idle_since(now)?, seat, task)));
        let mut idle: Vec<_> = idle.collect();
        idle.sort_unstable_by_key(|(since, ..)| *since);
        idle.truncate(1 + self.0.len() / 100);
        let lost = idle.iter().filter(|(since, seat, _)| seat.lose(*since));
        lost.map(|(.., task)| task.abort()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime::from_micros(seconds * 1_000_000)
    }

    #[tokio::test]
    async fn whoever_has_been_idle_longest_gives_way_and_whoever_is_served_never() {
        let mut seats = Seats::default();
        let mut tasks = Vec::new();
        let mut add = |since| {
            let (seat, task) = (
                Seat::new(at(since)),
                tokio::spawn(std::future::pending::<()>()),
            );
            seats.add(seat.clone(), task.abort_handle());
            tasks.push(task);
            seat
        };
        let (idle, served, longest) = (add(3), add(1), add(2));
        assert!(served.begin());
        assert_eq!(seats.make_room(at(2)), 0, "it may take its time to ask");
        assert_eq!(seats.make_room(at(9)), 1);
        assert!(!longest.begin(), "what is asked now is not performed");
        assert_eq!(seats.make_room(at(9)), 1);
        assert!(!idle.begin());
        assert_eq!(seats.make_room(at(9)), 0);
        served.end(at(9));
        assert_eq!(seats.make_room(at(9)), 0, "it was just answered");
        assert_eq!(seats.make_room(at(10)), 1);
        for task in tasks {
            assert!(task.await.unwrap_err().is_cancelled());
        }
    }
}
