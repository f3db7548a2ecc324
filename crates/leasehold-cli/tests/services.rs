//! Several services, and the command line, on one SQLite file: nobody starves, and no holder is overlapped.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use leasehold::core::{Fence, Mode, Name, Nonce};
use leasehold::host::{Host as _, Machine};
use leasehold::{
    AcquireRequest, Acquired, ClaimRequest, Claimed, Holding, Leases, PutRequest, Remote,
};
use leasehold_testbed::wall_clock_off_by;
use support::{Folder, Service};
use tokio::sync::mpsc;

const LONG: Duration = Duration::from_secs(600);

/// Clients of a service that take one lease after another, without end: the service always has some in line.
fn crowd(service: &Service, number: usize, turns: &mpsc::UnboundedSender<(Fence, usize)>) {
    let remote = Remote::connect(&service.url).expect("a good URL");
    for client in 0..4 {
        let (remote, turns) = (remote.clone(), turns.clone());
        tokio::spawn(async move {
            let name = Name::lock("job").expect("a good name");
            for turn in 0.. {
                let request = AcquireRequest {
                    name: name.clone(),
                    nonce: Nonce::new(format!("{number} {client} {turn}")).expect("short"),
                    owner: "crowd".into(),
                    ttl: LONG,
                    mode: Mode::Exclusive,
                    fence: None,
                    wait: LONG,
                };
                let fence = match remote.acquire(request).await.expect("the service answers") {
                    Acquired::Granted(hold) => hold.grant.fence,
                    Acquired::Held(held) => panic!("waited for ten minutes: {held:?}"),
                };
                if turns.send((fence, number)).is_err() {
                    return;
                }
                remote
                    .release(&name, Holding::Fence(fence))
                    .await
                    .expect("the service answers");
            }
        });
    }
}

#[tokio::test]
async fn two_services_with_waiters_on_one_name_take_turns() {
    let folder = Folder::new();
    let services = [
        Service::start(&folder.join("leases.db")),
        Service::start(&folder.join("leases.db")),
    ];
    let (told, mut turns) = mpsc::unbounded_channel();
    for (number, service) in services.iter().enumerate() {
        crowd(service, number, &told);
    }
    let (mut last, mut changes) = ((Fence::default(), 0), 0);
    for _ in 0..20_000 {
        let turn = turns.recv().await.expect("the clients go on");
        assert!(turn.0 > last.0, "fence {} after {}", turn.0, last.0);
        changes += usize::from(turn.1 != last.1);
        last = turn;
        if changes == 6 {
            return;
        }
    }
    panic!("in 20,000 turns the name changed services {changes} times only");
}

/// A service whose wall clock is off by so much, while its boot clock is true.
fn service_off_by(store: &Path, off: &str) -> Service {
    let lie = wall_clock_off_by(off).expect("it is installed");
    Service::start_with(store, lie)
}

async fn acquire(remote: &Remote, nonce: &str, wait: Duration) -> Acquired {
    let request = AcquireRequest {
        name: Name::lock("job").expect("a good name"),
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
        let [one, other] = [0, 1].map(|at| Remote::connect(&services[at].url).expect("a good URL"));
        let Acquired::Granted(first) = acquire(&one, "one", LONG).await else {
            panic!("it was free")
        };
        assert!(
            first.grant.fence > last,
            "{} after {last}",
            first.grant.fence
        );
        match acquire(&other, "other", Duration::ZERO).await {
            // The ttl and what nobody knows of the time, not an hour.
            Acquired::Held(held) => assert!(held.retry_after < Duration::from_secs(3), "{held:?}"),
            granted => panic!("two held it at once: {granted:?}"),
        }
        let Acquired::Granted(second) = acquire(&other, "other", LONG).await else {
            panic!("it has expired")
        };
        assert!(
            Machine.boot_time() > first.deadline,
            "taken while its holder believed"
        );
        last = second.grant.fence;
    }
}

/// The machine of the file boots again: the next process finds that the time which the file keeps is another boot's.
fn reboot(store: &Path) {
    let sql = "update clock set boot_id = 'the boot before'; select changes()";
    let sqlite3 = Command::new("sqlite3").arg(store).arg(sql).output();
    let output = sqlite3.expect("the tests need the `sqlite3` command");
    assert_eq!(output.stdout, b"1\n", "{output:?}");
}

/// The ttl of items: long enough that a wall clock two minutes ahead has passed it, short enough to wait for it twice.
const ITEM_TTL: Duration = Duration::from_secs(4);

async fn claim(remote: &Remote) -> Vec<Claimed> {
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

/// Remote holders outlive a reboot of the service's machine, after which its wall clock is off by so much.
async fn reboots_with_a_wall_clock_off_by(off: &str) {
    let folder = Folder::new();
    let store = folder.join("leases.db");
    let service = Service::start(&store);
    let remote = Remote::connect(&service.url).expect("a good URL");
    for number in 0..10 {
        let put = PutRequest {
            name: Name::lock(format!("order {number}")).expect("a good name"),
            state: "REQUESTED".into(),
            body: Some("work".into()),
            nonce: None,
        };
        remote.put(put).await.expect("it is free");
    }
    let claimed = claim(&remote).await.into_iter();
    let mut dead: BTreeMap<_, _> = claimed
        .map(|item| (item.name, item.hold.deadline))
        .collect();
    assert_eq!(dead.len(), 10);
    let Acquired::Granted(job) = acquire(&remote, "holder", Duration::ZERO).await else {
        panic!("it was free")
    };
    drop(service);
    reboot(&store);

    let service = service_off_by(&store, off);
    let remote = Remote::connect(&service.url).expect("a good URL");
    let (booted, contender) = (Machine.boot_time(), remote.clone());
    let taking = tokio::spawn(async move {
        let taken = acquire(&contender, "contender", LONG).await;
        (taken, Machine.boot_time())
    });
    while !dead.is_empty() {
        for item in claim(&remote).await {
            let deadline = dead.remove(&item.name).expect("it is claimed once");
            let now = Machine.boot_time();
            assert!(now > deadline, "{off}: {now}, its worker until {deadline}");
            assert_eq!(&*item.hold.grant.body, "work");
        }
        let since = Machine.boot_time().since(booted);
        assert!(since < ITEM_TTL * 2, "{off}: {dead:?} stay leased");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    match taking.await.expect("no panic") {
        (Acquired::Granted(taken), at) => {
            assert!(at > job.deadline, "{off}: taken at {at}");
            assert!(taken.grant.fence > job.grant.fence);
        }
        (Acquired::Held(held), _) => panic!("{off}: {held:?}"),
    }
}

#[tokio::test]
async fn remote_holders_outlive_a_reboot_with_a_wall_clock_two_minutes_off() {
    for off in ["+120s", "-120s"] {
        reboots_with_a_wall_clock_off_by(off).await;
    }
}

#[tokio::test]
async fn a_service_that_is_always_busy_does_not_keep_the_command_line_out() {
    let folder = Folder::new();
    let store = folder.join("leases.db");
    let service = Service::start(&store);
    let (told, mut turns) = mpsc::unbounded_channel();
    crowd(&service, 0, &told);
    turns.recv().await.expect("the crowd is there");
    let run = tokio::task::spawn_blocking(move || run(&store));
    let code = tokio::time::timeout(Duration::from_secs(60), run)
        .await
        .expect("it had its turn");
    assert_eq!(code.expect("no panic"), Some(0));
}

fn run(store: &Path) -> Option<i32> {
    let mut run = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    run.arg("--store")
        .arg(format!("sqlite:{}", store.display()));
    run.args(["run", "job", "-w", "50s", "--", "true"]);
    run.status().expect("leasehold runs").code()
}
