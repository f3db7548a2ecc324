//! Servers whose clock steps or is slewed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::core::{BootTime, Name, Nonce};
use leasehold::engine::Engine;
use leasehold::host::{Host as _, Machine};
use leasehold::store::{self, Store};
use leasehold::{AcquireOutcome, ClaimRequest, Client, Hold, Lease, Leases as _, PutRequest};
use leasehold_testbed::Server;

/// The number of names of each kind: enough for several concurrent calls at the step.
const NAMES: usize = 4;
const PAUSE: Duration = Duration::from_millis(50);

/// Steps the server's clock by 0.4 s, more than its margin, and by 5 s, more than a ttl, in both directions.
pub(crate) async fn check_clock_steps(scheme: &str) {
    tokio::join!(
        check_step(scheme, 5.0),
        check_step(scheme, -5.0),
        check_step(scheme, 0.4),
        check_step(scheme, -0.4),
    );
}

/// Runs the server's clock too fast and too slowly, by almost as much as chrony slews it.
pub(crate) async fn check_clock_slew(scheme: &str) {
    tokio::join!(check_rate(scheme, 1.08), check_rate(scheme, 0.92));
}

async fn check_step(scheme: &str, step: f64) {
    let server = Server::builder(scheme).own_clock();
    let server = server.start().await.expect("installed");
    let clock = store::open(&server.url()).await.expect("opens");
    let fault = format!("step {step}");
    let fleet = Fleet::start(&server, Duration::from_secs(4), fault).await;
    let before = clock_offset(&*clock).await;
    server.step_clock(step);
    let after = clock_offset(&*clock).await;
    let measured = after[0] - before[1]..=after[1] - before[0];
    assert!(
        measured.contains(&step),
        "stepped by {measured:?}, not by {step}"
    );
    fleet.check().await;
}

async fn check_rate(scheme: &str, rate: f64) {
    let server = Server::builder(scheme).slewed_clock(rate);
    let server = server.start().await.expect("installed");
    // Long enough for the clock to be off by more than the margin at the end.
    let ttl = Duration::from_secs(8);
    let fleet = Fleet::start(&server, ttl, format!("rate {rate}")).await;
    fleet.check().await;
}

/// Returns bounds, in seconds, for how far the server's clock is ahead of this machine's boot clock.
async fn clock_offset(clock: &dyn Store) -> [f64; 2] {
    let sent = Machine.boot_time();
    let stamp = clock.load(&[]).await.expect("the store answers").stamp;
    let received = Machine.boot_time();
    let ahead = |time: u64, boot: BootTime| (time as f64 - boot.as_micros() as f64) / 1e6;
    let latest = stamp.time + stamp.resolution;
    [
        ahead(stamp.time.as_micros(), received),
        ahead(latest.as_micros(), sent),
    ]
}

/// The leases and items of a holder, and a contender that connected before the clock fault.
struct Fleet {
    fault: String,
    ttl: Duration,
    contender: Engine,
    /// Leases that are renewed.
    renewed: Vec<Lease>,
    /// Leases of a dead holder, each with its deadline.
    orphaned: BTreeMap<Name, BootTime>,
    /// Items of a dead worker, each with its deadline.
    items: BTreeMap<Name, BootTime>,
}

impl Fleet {
    async fn start(server: &Server, ttl: Duration, fault: String) -> Self {
        let holder = super::engine(&server.url()).await;
        let renewing = Client::new(Arc::new(holder.clone()));
        let mut fleet = Self {
            fault,
            ttl,
            contender: super::engine(&server.url()).await,
            renewed: Vec::new(),
            orphaned: BTreeMap::new(),
            items: BTreeMap::new(),
        };
        for number in 0..NAMES {
            let lease = renewing.lease(format!("renewed {number}")).ttl(ttl);
            fleet.renewed.push(lease.acquire().await.expect("granted"));
            let name = super::name(&format!("orphaned {number}"));
            let hold = try_acquire(&holder, &name, ttl).await.expect("it is free");
            fleet.orphaned.insert(name, hold.deadline);
            let put = PutRequest {
                name: super::name(&format!("item {number}")),
                state: "REQUESTED".into(),
                body: Some("work".into()),
                nonce: None,
            };
            holder.put(put).await.expect("it is free");
        }
        fleet.items = claim(&holder, ttl).await.into_iter().collect();
        assert_eq!(fleet.items.len(), NAMES);
        // The contender observes all of them before the clock fault.
        let all = fleet.renewed.iter().map(Lease::name);
        for name in all.chain(fleet.orphaned.keys()) {
            let granted = try_acquire(&fleet.contender, name, ttl).await;
            assert_eq!(granted, None, "{}: `{name}`", fleet.fault);
        }
        assert_eq!(claim(&fleet.contender, ttl).await, [], "{}", fleet.fault);
        fleet
    }

    /// Checks that no live holder is overlapped, that a renewed lease is kept, and that orphaned leases are granted
    /// again within two ttls.
    async fn check(&self) {
        let refused = join_all(
            self.renewed
                .iter()
                .map(|lease| self.check_stays_refused(lease)),
        );
        let orphaned = self.orphaned.iter();
        let taken =
            join_all(orphaned.map(|(name, deadline)| self.check_granted_after(name, *deadline)));
        tokio::join!(refused, taken, self.check_reclaimed_after_expiry());
        let steps = self.contender.metrics().steps.get();
        println!("{}: {steps} steps were detected", self.fault);
        assert!(steps > 0, "{}: the step was not detected", self.fault);
    }

    /// Checks that a renewed lease is refused to contenders for longer than it would last without renewals.
    async fn check_stays_refused(&self, lease: &Lease) {
        let (fault, name) = (&self.fault, lease.name());
        let until = Machine.boot_time() + self.ttl * 3 / 2;
        while Machine.boot_time() < until {
            assert!(!lease.is_lost(), "{fault}: `{name}` is lost");
            let granted = try_acquire(&self.contender, name, self.ttl).await;
            assert_eq!(granted, None, "{fault}: `{name}` was taken");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Checks that a lease that is not renewed is refused until its holder's deadline, and then granted.
    async fn check_granted_after(&self, name: &Name, deadline: BootTime) {
        while try_acquire(&self.contender, name, self.ttl).await.is_none() {
            self.check_not_late(name, deadline);
            tokio::time::sleep(PAUSE).await;
        }
        self.check_not_early(name, deadline);
    }

    /// Checks that items of a dead worker are all claimed again, but not before the worker's deadline.
    async fn check_reclaimed_after_expiry(&self) {
        let mut items = self.items.clone();
        while let Some((name, deadline)) = items.first_key_value() {
            self.check_not_late(name, *deadline);
            for (name, _) in claim(&self.contender, self.ttl).await {
                let deadline = items.remove(&name).expect("claimed once");
                self.check_not_early(&name, deadline);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn check_not_early(&self, name: &Name, deadline: BootTime) {
        let (fault, now) = (&self.fault, Machine.boot_time());
        assert!(
            now > deadline,
            "{fault}: `{name}` taken at {now}, held until {deadline}"
        );
        println!("{fault}: `{name}` taken {:?} later", now.since(deadline));
    }

    fn check_not_late(&self, name: &Name, deadline: BootTime) {
        let late = Machine.boot_time().since(deadline);
        assert!(late < self.ttl * 2, "{}: `{name}` stays locked", self.fault);
    }
}

/// Tries to acquire a lease that is not renewed; `None` if it is held.
async fn try_acquire(engine: &Engine, name: &Name, ttl: Duration) -> Option<Hold> {
    let answer = super::try_acquire(engine, name, ttl, Duration::ZERO).await;
    match answer.expect("the store answers") {
        AcquireOutcome::Granted(hold) => Some(hold),
        AcquireOutcome::Held(_) => None,
    }
}

/// Claims all free items, and returns the deadline of each.
async fn claim(engine: &Engine, ttl: Duration) -> Vec<(Name, BootTime)> {
    let request = ClaimRequest {
        state: "REQUESTED".into(),
        prefix: String::new(),
        limit: NAMES,
        ttl,
        owner: "worker".into(),
        nonce: Nonce::new(format!("{:032x}", Machine.random())).expect("short"),
        wait: Duration::ZERO,
    };
    let claimed = leasehold::Leases::claim(engine, request).await;
    let claimed = claimed.expect("the store answers").into_iter();
    let item = |item: leasehold::NamedHold| {
        assert_eq!(&*item.hold.grant.body, "work", "`{}`", item.name);
        (item.name, item.hold.deadline)
    };
    claimed.map(item).collect()
}
