//! Several services and the command line on one SQLite file: no waiter starves, and holders never overlap.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use leasehold::core::{Fence, Mode, Name, Nonce};
use leasehold::host::{Host as _, Machine};
use leasehold::{
    AcquireOutcome, AcquireRequest, ClaimRequest, HolderKey, Leases, NamedHold, PutRequest, Remote,
};
use leasehold_testbed::wall_clock_off_by;
use support::{Folder, Service};
use tokio::sync::mpsc;

const LONG: Duration = Duration::from_secs(600);

/// Starts clients of a service that acquire and release one lease in a loop, so that the service always has waiters.
fn start_clients(service: &Service, number: usize, turns: &mpsc::UnboundedSender<(Fence, usize)>) {
    let remote = Remote::connect(&service.url).expect("the URL is valid");
    for client in 0..4 {
        let (remote, turns) = (remote.clone(), turns.clone());
        tokio::spawn(async move {
            let name = Name::lock("job").expect("the name is valid");
            for turn in 0.. {
                let request = AcquireRequest {
                    name: name.clone(),
                    nonce: Nonce::new(format!("{number} {client} {turn}")).expect("short"),
                    owner: "client".into(),
                    ttl: LONG,
                    mode: Mode::Exclusive,
                    fence: None,
                    wait: LONG,
                };
                let fence = match remote.acquire(request).await.expect("the service answers") {
                    AcquireOutcome::Granted(hold) => hold.grant.fence,
                    AcquireOutcome::Held(held) => panic!("waited for ten minutes: {held:?}"),
                };
                if turns.send((fence, number)).is_err() {
                    return;
                }
                remote
                    .release(&name, HolderKey::Fence(fence))
                    .await
                    .expect("the service answers");
            }
        });
    }
}

#[tokio::test]
async fn services_with_waiters_on_one_name_take_turns() {
    let folder = Folder::new();
    let services = [
        Service::start(&folder.join("leases.db")),
        Service::start(&folder.join("leases.db")),
    ];
    let (sender, mut turns) = mpsc::unbounded_channel();
    for (number, service) in services.iter().enumerate() {
        start_clients(service, number, &sender);
    }
    let (mut last, mut changes) = ((Fence::default(), 0), 0);
    for _ in 0..20_000 {
        let turn = turns.recv().await.expect("the clients are running");
        assert!(turn.0 > last.0, "fence {} after {}", turn.0, last.0);
        changes += usize::from(turn.1 != last.1);
        last = turn;
        if changes == 6 {
            return;
        }
    }
    panic!("in 20,000 turns the lease passed between the services only {changes} times");
}

/// Starts a service whose wall clock has this offset, while its boot clock is correct.
fn service_off_by(store: &Path, off: &str) -> Service {
    let environment = wall_clock_off_by(off).expect("faketime is installed");
    Service::start_with(store, environment)
}

async fn acquire(remote: &Remote, nonce: &str, wait: Duration) -> AcquireOutcome {
    let request = AcquireRequest {
        name: Name::lock("job").expect("the name is valid"),
        nonce: Nonce::new(nonce).expect("short"),
        owner: nonce.into(),
        ttl: Duration::from_secs(2),
        mode: Mode::Exclusive,
        fence: None,
        wait,
    };
    remote.acquire(request).await.expect("the service answers")
}

#[tokio::test]
async fn services_whose_wall_clocks_are_hours_apart_exclude_each_other() {
    let folder = Folder::new();
    let store = folder.join("leases.db");
    let mut last = Fence::default();
    for offs in [["+3600s", "-3600s"], ["-3600s", "+3600s"]] {
        let services = offs.map(|off| service_off_by(&store, off));
        let [one, other] =
            [0, 1].map(|at| Remote::connect(&services[at].url).expect("the URL is valid"));
        let AcquireOutcome::Granted(first) = acquire(&one, "one", LONG).await else {
            panic!("the lease was free")
        };
        assert!(
            first.grant.fence > last,
            "{} after {last}",
            first.grant.fence
        );
        match acquire(&other, "other", Duration::ZERO).await {
            // The ttl and the uncertainty of the clock, not an hour.
            AcquireOutcome::Held(held) => {
                assert!(held.retry_after < Duration::from_secs(3), "{held:?}")
            }
            granted => panic!("two holders overlapped: {granted:?}"),
        }
        let AcquireOutcome::Granted(second) = acquire(&other, "other", LONG).await else {
            panic!("the lease has expired")
        };
        assert!(
            Machine.boot_time() > first.deadline,
            "granted before the deadline of the first holder"
        );
        last = second.grant.fence;
    }
}

/// Simulates a reboot: the next process finds the boot id of another boot in the file.
fn simulate_reboot(store: &Path) {
    let sql = "update clock set boot_id = 'previous boot'; select changes()";
    let sqlite3 = Command::new("sqlite3").arg(store).arg(sql).output();
    let output = sqlite3.expect("the tests need the `sqlite3` command");
    assert_eq!(output.stdout, b"1\n", "{output:?}");
}

/// The ttl of items: shorter than the two minutes by which the wall clock is off, and short enough to wait for it twice.
const ITEM_TTL: Duration = Duration::from_secs(4);

async fn claim(remote: &Remote) -> Vec<NamedHold> {
    let request = ClaimRequest {
        state: "REQUESTED".into(),
        prefix: String::new(),
        limit: 10,
        ttl: ITEM_TTL,
        owner: "worker".into(),
        nonce: Nonce::new(format!("{:032x}", Machine.random())).expect("short"),
        wait: Duration::ZERO,
    };
    remote.claim(request).await.expect("the service answers")
}

/// Asserts that remote holders keep their leases over a reboot of the service, after which its wall clock has this offset.
async fn assert_holders_outlive_a_reboot(off: &str) {
    let folder = Folder::new();
    let store = folder.join("leases.db");
    let service = Service::start(&store);
    let remote = Remote::connect(&service.url).expect("the URL is valid");
    for number in 0..10 {
        let put = PutRequest {
            name: Name::lock(format!("order {number}")).expect("the name is valid"),
            state: "REQUESTED".into(),
            body: Some("work".into()),
            nonce: None,
        };
        remote.put(put).await.expect("the name is free");
    }
    let claimed = claim(&remote).await.into_iter();
    let mut leased: BTreeMap<_, _> = claimed
        .map(|item| (item.name, item.hold.deadline))
        .collect();
    assert_eq!(leased.len(), 10);
    let AcquireOutcome::Granted(job) = acquire(&remote, "holder", Duration::ZERO).await else {
        panic!("the lease was free")
    };
    drop(service);
    simulate_reboot(&store);

    let service = service_off_by(&store, off);
    let remote = Remote::connect(&service.url).expect("the URL is valid");
    let (booted, contender) = (Machine.boot_time(), remote.clone());
    let acquiring = tokio::spawn(async move {
        let acquired = acquire(&contender, "contender", LONG).await;
        (acquired, Machine.boot_time())
    });
    while !leased.is_empty() {
        for item in claim(&remote).await {
            let deadline = leased
                .remove(&item.name)
                .expect("each item is claimed once");
            let now = Machine.boot_time();
            assert!(now > deadline, "{off}: claimed at {now}, before {deadline}");
            assert_eq!(&*item.hold.grant.body, "work");
        }
        let since = Machine.boot_time().since(booted);
        assert!(since < ITEM_TTL * 2, "{off}: {leased:?} stay leased");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    match acquiring.await.expect("no panic") {
        (AcquireOutcome::Granted(acquired), at) => {
            assert!(at > job.deadline, "{off}: granted at {at}");
            assert!(acquired.grant.fence > job.grant.fence);
        }
        (AcquireOutcome::Held(held), _) => panic!("{off}: {held:?}"),
    }
}

#[tokio::test]
async fn remote_holders_outlive_a_reboot_with_a_wall_clock_two_minutes_off() {
    for off in ["+120s", "-120s"] {
        assert_holders_outlive_a_reboot(off).await;
    }
}

#[tokio::test]
async fn command_line_gets_the_lease_although_a_service_always_has_waiters() {
    let folder = Folder::new();
    let store = folder.join("leases.db");
    let service = Service::start(&store);
    let (sender, mut turns) = mpsc::unbounded_channel();
    start_clients(&service, 0, &sender);
    turns.recv().await.expect("the clients are running");
    let run = tokio::task::spawn_blocking(move || run(&store));
    let code = tokio::time::timeout(Duration::from_secs(60), run)
        .await
        .expect("the command line gets its turn");
    assert_eq!(code.expect("no panic"), Some(0));
}

fn run(store: &Path) -> Option<i32> {
    let mut run = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    run.arg("--store")
        .arg(format!("sqlite:{}", store.display()));
    run.args(["run", "job", "-w", "50s", "--", "true"]);
    run.status().expect("leasehold runs").code()
}
