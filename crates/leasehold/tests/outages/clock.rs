//! Servers whose clock steps or is slewed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::core::{BootTime, Name, Nonce};
use leasehold::engine::Engine;
use leasehold::host::{Host as _, Machine};
use leasehold::store::{self, Store};
use leasehold::{Acquired, ClaimRequest, Client, Hold, Lease, Leases as _, PutRequest};
use leasehold_testbed::Server;

/// The number of names of each kind: enough for several concurrent calls at the step.
const NAMES: usize = 4;
const PAUSE: Duration = Duration::from_millis(50);

/// Steps the server's clock by 0.4 s, more than its margin, and by 5 s, more than a ttl, in both directions.
pub(crate) async fn clock_steps(scheme: &str) {
    tokio::join!(
        steps_by(scheme, 5.0),
        steps_by(scheme, -5.0),
        steps_by(scheme, 0.4),
        steps_by(scheme, -0.4),
    );
}

/// Runs the server's clock too fast and too slowly, by almost as much as chrony slews it.
pub(crate) async fn clock_is_slewed(scheme: &str) {
    tokio::join!(runs_at(scheme, 1.08), runs_at(scheme, 0.92));
}

async fn steps_by(scheme: &str, step: f64) {
    let server = Server::builder(scheme).own_clock();
    let server = server.start().await.expect("installed");
    let clock = store::open(&server.url()).await.expect("opens");
    let how = format!("step {step}");
    let fleet = Fleet::start(&server, Duration::from_secs(4), how).await;
    let before = ahead(&*clock).await;
    server.step_clock(step);
    let after = ahead(&*clock).await;
    let seen = after[0] - before[1]..=after[1] - before[0];
    assert!(seen.contains(&step), "stepped by {seen:?}, not by {step}");
    fleet.check().await;
}

async fn runs_at(scheme: &str, rate: f64) {
    let server = Server::builder(scheme).slewed_clock(rate);
    let server = server.start().await.expect("installed");
    // Long enough for the clock to be off by more than the margin at the end.
    let ttl = Duration::from_secs(8);
    let fleet = Fleet::start(&server, ttl, format!("rate {rate}")).await;
    fleet.check().await;
}

/// Returns bounds, in seconds, for how far the server's clock is ahead of this machine's boot clock.
async fn ahead(clock: &dyn Store) -> [f64; 2] {
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

/// The leases and items of a holder, and a contender that connected before the clock was off.
struct Fleet {
    how: String,
    ttl: Duration,
    contender: Engine,
    /// Leases that are renewed.
    kept: Vec<Lease>,
    /// Leases of a dead holder, each with its deadline.
    left: BTreeMap<Name, BootTime>,
    /// Items of a dead worker, each with its deadline.
    items: BTreeMap<Name, BootTime>,
}

impl Fleet {
    async fn start(server: &Server, ttl: Duration, how: String) -> Self {
        let holder = super::engine(&server.url()).await;
        let renewing = Client::new(Arc::new(holder.clone()));
        let mut fleet = Self {
            how,
            ttl,
            contender: super::engine(&server.url()).await,
            kept: Vec::new(),
            left: BTreeMap::new(),
            items: BTreeMap::new(),
        };
        for number in 0..NAMES {
            let lease = renewing.lease(format!("kept {number}")).ttl(ttl);
            fleet.kept.push(lease.acquire().await.expect("granted"));
            let name = super::name(&format!("left {number}"));
            let hold = ask(&holder, &name, ttl).await.expect("it is free");
            fleet.left.insert(name, hold.deadline);
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
        // The contender observes all of them before the clock is off.
        let all = fleet.kept.iter().map(Lease::name);
        for name in all.chain(fleet.left.keys()) {
            let granted = ask(&fleet.contender, name, ttl).await;
            assert_eq!(granted, None, "{}: `{name}`", fleet.how);
        }
        assert_eq!(claim(&fleet.contender, ttl).await, [], "{}", fleet.how);
        fleet
    }

    /// Checks that no live holder is overlapped, that a renewed lease is kept, and that orphaned leases are granted
    /// again within two ttls.
    async fn check(&self) {
        let refused = join_all(self.kept.iter().map(|lease| self.stays_refused(lease)));
        let left = self.left.iter();
        let taken = join_all(left.map(|(name, deadline)| self.granted_after(name, *deadline)));
        tokio::join!(refused, taken, self.reclaimed_after_expiry());
        let steps = self.contender.measures().steps.get();
        println!("{}: {steps} steps were counted", self.how);
        assert!(steps > 0, "{}: the step was not noticed", self.how);
    }

    /// Checks that a renewed lease is refused to contenders for longer than it would last without renewals.
    async fn stays_refused(&self, lease: &Lease) {
        let (how, name) = (&self.how, lease.name());
        let until = Machine.boot_time() + self.ttl * 3 / 2;
        while Machine.boot_time() < until {
            assert!(!lease.is_lost(), "{how}: `{name}` is lost");
            let granted = ask(&self.contender, name, self.ttl).await;
            assert_eq!(granted, None, "{how}: `{name}` was taken");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Checks that a lease that is not renewed is refused until its holder's deadline, and then granted.
    async fn granted_after(&self, name: &Name, deadline: BootTime) {
        while ask(&self.contender, name, self.ttl).await.is_none() {
            self.check_not_late(name, deadline);
            tokio::time::sleep(PAUSE).await;
        }
        self.check_not_early(name, deadline);
    }

    /// Checks that items of a dead worker are all claimed again, but not before the worker's deadline.
    async fn reclaimed_after_expiry(&self) {
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
        let (how, now) = (&self.how, Machine.boot_time());
        assert!(
            now > deadline,
            "{how}: `{name}` taken at {now}, held until {deadline}"
        );
        println!("{how}: `{name}` taken {:?} later", now.since(deadline));
    }

    fn check_not_late(&self, name: &Name, deadline: BootTime) {
        let late = Machine.boot_time().since(deadline);
        assert!(late < self.ttl * 2, "{}: `{name}` stays locked", self.how);
    }
}

/// Tries to acquire a lease that is not renewed; `None` if it is held.
async fn ask(engine: &Engine, name: &Name, ttl: Duration) -> Option<Hold> {
    let answer = super::ask(engine, name, ttl, Duration::ZERO).await;
    match answer.expect("the store answers") {
        Acquired::Granted(hold) => Some(hold),
        Acquired::Held(_) => None,
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
    let item = |item: leasehold::Claimed| {
        assert_eq!(&*item.hold.grant.body, "work", "`{}`", item.name);
        (item.name, item.hold.deadline)
    };
    claimed.map(item).collect()
}
