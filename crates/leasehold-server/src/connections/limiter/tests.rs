//! Tests of the limiter with a clock that only advances by hand.

use std::sync::atomic::AtomicU64;

use super::*;

/// A host whose clock only advances by [`advance`](Self::advance).
#[derive(Default)]
struct ManualHost(AtomicU64);

impl ManualHost {
    fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap();
        self.0.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Host for ManualHost {
    fn boot_time(&self) -> BootTime {
        BootTime::from_micros(self.0.load(Ordering::Relaxed))
    }

    fn random(&self) -> u128 {
        unreachable!("the limiter uses no randomness")
    }
}

fn limiter(total: usize, per_address: usize) -> (Arc<ConnectionLimiter>, Arc<ManualHost>) {
    let host: Arc<ManualHost> = Arc::default();
    let config = Config {
        max_connections: total,
        max_connections_per_address: Some(per_address),
        ..Config::default()
    };
    let limiter = ConnectionLimiter::new(ConnectionLimits::new(&config), host.clone());
    (limiter, host)
}

fn from(limiter: &Arc<ConnectionLimiter>, host: u8) -> Connection {
    limiter.admit(IpAddr::from([10, 0, 0, host]))
}

/// Whether it has been displaced. Marks it busy otherwise.
fn is_displaced(connection: &Connection) -> bool {
    !connection.slot().mark_busy()
}

#[test]
fn longest_idle_connection_is_displaced_and_a_busy_one_never() {
    let (limiter, host) = limiter(3, 3);
    let [oldest, busy, idle] = [1, 2, 3].map(|number| {
        host.advance(Duration::from_secs(1));
        from(&limiter, number)
    });
    assert!(busy.slot().mark_busy());
    assert!(!from(&limiter, 4).is_reserved() && is_displaced(&oldest));
    // The newcomer was dropped above, so its slot is free.
    let newcomer = from(&limiter, 5);
    assert!(
        from(&limiter, 6).is_reserved(),
        "all were idle for too short a time"
    );
    host.advance(GRACE);
    assert!(!from(&limiter, 6).is_reserved() && is_displaced(&idle));
    assert!(!is_displaced(&newcomer) && !is_displaced(&busy));
    host.advance(GRACE);
    let _last = from(&limiter, 7);
    assert!(from(&limiter, 8).is_reserved(), "all are busy or new");
    busy.slot().mark_idle(host.boot_time());
    host.advance(GRACE);
    assert!(!from(&limiter, 8).is_reserved());
}

#[test]
fn address_with_most_connections_gives_way_first_and_sooner() {
    let (limiter, host) = limiter(4, 4);
    let single = from(&limiter, 1);
    host.advance(GRACE - SHORT_GRACE);
    let crowd = [(); 3].map(|()| from(&limiter, 2));
    assert!(
        from(&limiter, 3).is_reserved(),
        "all were idle for too short a time"
    );
    host.advance(SHORT_GRACE);
    assert!(!from(&limiter, 3).is_reserved());
    assert!(is_displaced(&crowd[0]) && !is_displaced(&single));
}

#[test]
fn address_at_its_limit_displaces_only_its_own_connections() {
    let (limiter, host) = limiter(10, 2);
    let other = from(&limiter, 1);
    let own = [(); 2].map(|()| from(&limiter, 2));
    assert!(from(&limiter, 2).is_reserved());
    host.advance(GRACE);
    assert!(!from(&limiter, 2).is_reserved());
    assert!(is_displaced(&own[0]) && !is_displaced(&other));
}

#[test]
fn reserved_connection_is_promoted_when_a_slot_becomes_free() {
    let (limiter, host) = limiter(1, 1);
    let busy = from(&limiter, 1);
    assert!(busy.slot().mark_busy());
    let reserved = from(&limiter, 2);
    assert!(reserved.is_reserved() && !reserved.promote());
    drop(busy);
    assert!(reserved.promote() && !reserved.is_reserved());
    host.advance(GRACE);
    let next = from(&limiter, 1);
    assert!(!next.is_reserved() && is_displaced(&reserved));
}

#[test]
fn full_reserve_displaces_a_connection_of_its_largest_address() {
    let (limiter, _host) = limiter(1, 1);
    let busy = from(&limiter, 1);
    assert!(busy.slot().mark_busy());
    let probe = from(&limiter, 2);
    let crowd = [(); RESERVE].map(|()| from(&limiter, 3));
    assert!(is_displaced(&crowd[0]) && !is_displaced(&probe));
    let mut others = crowd[1..].iter();
    assert!(others.all(|connection| !is_displaced(connection)));
    assert_eq!(limiter.refused.get(), 1);
}

#[test]
fn stalled_stream_is_idle_until_its_client_reads_again() {
    let (limiter, host) = limiter(1, 1);
    let stream = from(&limiter, 1);
    assert!(stream.slot().mark_busy());
    let since = stream.slot().stall().unwrap();
    host.advance(GRACE / 2);
    assert!(from(&limiter, 2).is_reserved());
    stream.slot().resume(since);
    host.advance(GRACE);
    assert!(from(&limiter, 2).is_reserved(), "it is busy again");
    assert!(stream.slot().stall().is_some());
    host.advance(GRACE);
    assert!(!from(&limiter, 2).is_reserved() && is_displaced(&stream));
}

#[test]
fn subscribers_are_limited_in_total_and_by_address() {
    let (limiter, _host) = limiter(8, 4);
    let subscribe = |host| limiter.subscribe(IpAddr::from([10, 0, 0, host]).into());
    let first = subscribe(1);
    let second = subscribe(1);
    assert!(first.is_some() && second.is_some());
    assert!(subscribe(1).is_none(), "half of half the connections");
    let others = [subscribe(2), subscribe(3)];
    assert!(others.iter().all(Option::is_some) && subscribe(4).is_none());
    drop(first);
    assert!(subscribe(1).is_some());
}

#[test]
fn address_is_forgotten_with_its_last_connection() {
    let (limiter, _host) = limiter(8, 4);
    let connection = from(&limiter, 1);
    let subscription = limiter.subscribe(connection.address());
    drop(connection);
    assert_eq!(limiter.state().addresses.len(), 1);
    drop(subscription);
    assert!(limiter.state().addresses.is_empty());
    assert!(limiter.state().connections.is_empty());
}

#[test]
fn request_waiting_in_the_reserve_precedes_newcomers_with_as_many_connections() {
    let (limiter, host) = limiter(2, 2);
    let [first, second] = [(); 2].map(|()| from(&limiter, 1));
    assert!(first.slot().mark_busy() && second.slot().mark_busy());
    let waiting = from(&limiter, 1);
    assert!(waiting.is_reserved() && !waiting.promote());
    drop(first);
    assert!(from(&limiter, 1).is_reserved(), "another waits");
    assert!(!from(&limiter, 2).is_reserved(), "its address has fewer");
    host.advance(SEARCH_PAUSE);
    assert!(waiting.promote() && !waiting.is_reserved());
}

#[test]
fn promoted_request_is_not_displaced_before_it_begins() {
    let (limiter, host) = limiter(1, 1);
    let busy = from(&limiter, 1);
    assert!(busy.slot().mark_busy());
    let waiting = from(&limiter, 2);
    host.advance(GRACE);
    drop(busy);
    assert!(waiting.promote());
    assert!(from(&limiter, 3).is_reserved() && !is_displaced(&waiting));
}

#[test]
fn displaced_connection_performs_no_request() {
    let (limiter, host) = limiter(1, 1);
    let reading = from(&limiter, 1);
    host.advance(GRACE);
    assert!(!from(&limiter, 2).is_reserved());
    // At the same moment its client reads the rest of its answer.
    reading.slot().mark_idle(host.boot_time());
    assert!(is_displaced(&reading));
}
