//! Servers whose clock steps.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::core::{BootTime, Name};
use leasehold::engine::Engine;
use leasehold::host::{Host as _, Machine};
use leasehold::store::{self, Store};
use leasehold::{Acquired, Client, Hold, Lease};
use leasehold_testbed::Server;

const TTL: Duration = Duration::from_secs(4);
/// Names of each sort: enough for several calls to be under way at the step.
const NAMES: usize = 4;
const PAUSE: Duration = Duration::from_millis(50);

/// The server's clock steps by five seconds either way: among those who were connected before, no holder that believes is
/// overlapped. One that renews keeps its lease; one that does not loses it to others, in the end.
pub(crate) async fn its_clock_steps(scheme: &str) {
    tokio::join!(steps_by(scheme, 5), steps_by(scheme, -5));
}

async fn steps_by(scheme: &str, step: i64) {
    let server = Server::builder(scheme).own_clock();
    let server = server.start().await.expect("installed");
    let holder = super::engine(&server.url()).await;
    let contender = super::engine(&server.url()).await;
    let clock = store::open(&server.url()).await.expect("opens");
    let renewing = Client::new(Arc::new(holder.clone()));
    let (mut kept, mut left) = (Vec::new(), Vec::new());
    for number in 0..NAMES {
        let lease = renewing.lease(format!("kept {number}")).ttl(TTL);
        kept.push(lease.acquire().await.expect("granted"));
        let name = super::name(&format!("left {number}"));
        let hold = ask(&holder, &name).await.expect("nobody else has it");
        left.push((name, hold.deadline));
    }
    // The contender knows all of them, by the clock as it was.
    let all = kept.iter().map(Lease::name);
    for name in all.chain(left.iter().map(|(name, _)| name)) {
        assert_eq!(ask(&contender, name).await, None, "step {step}: `{name}`");
    }

    let before = ahead(&*clock).await;
    server.step_clock(i32::try_from(step).expect("a few seconds"));
    let seen = ahead(&*clock).await - before;
    assert!((seen - step).abs() <= 1, "stepped by {seen}, not by {step}");

    let refused = join_all(kept.iter().map(|lease| refused(&contender, lease)));
    let taken = left.iter();
    let taken = join_all(taken.map(|(name, deadline)| taken_after(&contender, name, *deadline)));
    tokio::join!(refused, taken);
}

/// Asks for a lease that nobody renews. What it is answered: that it is granted, or that somebody else holds it.
async fn ask(engine: &Engine, name: &Name) -> Option<Hold> {
    let answer = super::ask(engine, name, TTL, Duration::ZERO).await;
    match answer.expect("the store answers") {
        Acquired::Granted(hold) => Some(hold),
        Acquired::Held(_) => None,
    }
}

/// How many seconds the server's clock is ahead of this machine's boot clock.
async fn ahead(clock: &dyn Store) -> i64 {
    let time = clock.load(&[]).await.expect("the store answers").stamp.time;
    let seconds = |micros: u64| i64::try_from(micros / 1_000_000).expect("not for ages");
    seconds(time.as_micros()) - seconds(Machine.boot_time().as_micros())
}

/// A lease that its holder renews is refused to others for longer than it could last without that.
async fn refused(contender: &Engine, lease: &Lease) {
    let until = Machine.boot_time() + TTL * 2;
    while Machine.boot_time() < until {
        assert!(!lease.is_lost(), "`{}` is lost", lease.name());
        let granted = ask(contender, lease.name()).await;
        assert_eq!(granted, None, "`{}` was taken", lease.name());
        tokio::time::sleep(PAUSE).await;
    }
}

/// A lease that its holder does not renew is refused to others for as long as the holder believes, and then granted.
async fn taken_after(contender: &Engine, name: &Name, deadline: BootTime) {
    let given_up = Machine.boot_time() + TTL * 4;
    while ask(contender, name).await.is_none() {
        assert!(Machine.boot_time() < given_up, "`{name}` stays locked");
        tokio::time::sleep(PAUSE).await;
    }
    let taken = Machine.boot_time();
    assert!(
        taken > deadline,
        "`{name}` taken at {taken}, held until {deadline}"
    );
}
