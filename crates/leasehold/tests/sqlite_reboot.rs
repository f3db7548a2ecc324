//! Leases in a SQLite file across a reboot: remote holders keep them, whatever the wall clock shows afterwards.

#![cfg(feature = "sqlite")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold::core::{Mode, Name, Nonce};
use leasehold::engine::{Config, Engine};
use leasehold::host::{Host, Machine};
use leasehold::{
    AcquireOutcome, AcquireRequest, ClaimRequest, Hold, Leases, ListRequest, PutRequest,
    RenewRequest,
};

mod sqlite_support;
use sqlite_support::*;

const MINUTE: u64 = 60 * SECOND;
const TTL: Duration = Duration::from_secs(60);
/// Wall clocks after a boot: correct, off by minutes, and off by decades.
const WALL_CLOCKS: [(&str, u64); 5] = [
    ("two minutes ahead", TODAY + 2 * MINUTE + 3 * SECOND),
    ("two minutes behind", TODAY - 2 * MINUTE + 3 * SECOND),
    ("correct", TODAY + 3 * SECOND),
    ("in 1970", 5 * SECOND),
    ("in 2099", 4_070_908_800 * SECOND),
];

/// Starts an engine of a process on this machine, with this wall clock.
async fn engine(machine: &SimulatedMachine, path: &Path, wall: u64) -> Arc<dyn Leases> {
    let store = Arc::new(machine.open(path, wall).await.unwrap());
    let host: Arc<dyn Host> = machine.clock.clone();
    let config = Config::default();
    Arc::new(Engine::start_with(store, host, config).await.unwrap())
}

async fn try_acquire(engine: &Arc<dyn Leases>, name: Name, ttl: Duration) -> AcquireOutcome {
    let request = AcquireRequest {
        name,
        nonce: Nonce::new(format!("{:032x}", Machine.random())).unwrap(),
        owner: "contender".into(),
        ttl,
        mode: Mode::Exclusive,
        fence: None,
        wait: Duration::ZERO,
    };
    engine.acquire(request).await.unwrap()
}

#[track_caller]
fn expect_granted(acquired: AcquireOutcome) -> Hold {
    match acquired {
        AcquireOutcome::Granted(hold) => hold,
        AcquireOutcome::Held(held) => panic!("{held:?}"),
    }
}

fn is_granted(acquired: &AcquireOutcome) -> bool {
    matches!(acquired, AcquireOutcome::Granted(_))
}

fn job() -> Name {
    Name::lock("job").unwrap()
}

/// Creates the file of a service that granted `job` to a remote holder three seconds ago.
async fn grant_before_reboot(path: &Path) -> Hold {
    let old = SimulatedMachine::booted_ago(HOUR);
    let hold = expect_granted(try_acquire(&engine(&old, path, TODAY).await, job(), TTL).await);
    old.advance(3 * SECOND);
    hold
}

#[tokio::test]
async fn remote_holder_keeps_its_lease_across_a_reboot_with_any_wall_clock() {
    for (wall_clock, wall) in WALL_CLOCKS {
        let folder = Folder::new();
        let path = folder.join("leases.db");
        grant_before_reboot(&path).await;

        // The holder has another 57 s, but no process of the new boot has observed it before.
        let new = SimulatedMachine::booted_ago(SECOND);
        for span in [0, 28 * SECOND, 28 * SECOND] {
            new.advance(span);
            let contender = engine(&new, &path, wall).await;
            let acquired = try_acquire(&contender, job(), TTL).await;
            assert!(
                !is_granted(&acquired),
                "wall clock {wall_clock}: {acquired:?}"
            );
            let held = ListRequest {
                held: Some(true),
                ..ListRequest::default()
            };
            assert_eq!(
                contender.list(held).await.unwrap().leases.len(),
                1,
                "{wall_clock}"
            );
        }
        // A full ttl after the boot the lease has expired, also for a process that never observed it before.
        new.advance(5 * SECOND);
        let contender = engine(&new, &path, wall).await;
        expect_granted(try_acquire(&contender, job(), TTL).await);
    }
}

#[tokio::test]
async fn remote_holder_keeps_its_lease_across_repeated_reboots() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    grant_before_reboot(&path).await;
    let walls = [TODAY + 2 * MINUTE, TODAY + HOUR, TODAY + 2 * HOUR];
    for wall in walls {
        let new = SimulatedMachine::booted_ago(SECOND);
        new.advance(20 * SECOND);
        let acquired = try_acquire(&engine(&new, &path, wall).await, job(), TTL).await;
        assert!(!is_granted(&acquired), "{acquired:?}");
    }
}

#[tokio::test]
async fn shorter_ttl_after_a_reboot_starts_after_the_longer_one() {
    for (wall_clock, wall) in WALL_CLOCKS {
        let folder = Folder::new();
        let path = folder.join("leases.db");
        let hold = grant_before_reboot(&path).await;

        let new = SimulatedMachine::booted_ago(SECOND);
        let service = engine(&new, &path, wall).await;
        let renew = RenewRequest {
            name: job(),
            fence: hold.grant.fence,
            ttl: Some(Duration::from_secs(2)),
        };
        let renewed = service.renew(vec![renew], TTL).await.remove(0);
        renewed.unwrap_or_else(|error| panic!("wall clock {wall_clock}: {error}"));
        // If the answer was lost, the holder still relies on the 57 s that it had before.
        new.advance(56 * SECOND);
        let acquired = try_acquire(&engine(&new, &path, wall).await, job(), TTL).await;
        assert!(
            !is_granted(&acquired),
            "wall clock {wall_clock}: {acquired:?}"
        );
        new.advance(5 * SECOND);
        expect_granted(try_acquire(&engine(&new, &path, wall).await, job(), TTL).await);
    }
}

#[tokio::test]
async fn items_of_dead_workers_are_claimed_again_one_ttl_after_a_reboot() {
    for (wall_clock, wall) in WALL_CLOCKS {
        let folder = Folder::new();
        let path = folder.join("leases.db");
        let old = SimulatedMachine::booted_ago(HOUR);
        let worker = engine(&old, &path, TODAY).await;
        let put = |number: u32| PutRequest {
            name: Name::lock(format!("order-{number}")).unwrap(),
            state: "REQUESTED".into(),
            body: None,
            nonce: None,
        };
        for number in 0..20 {
            worker.put(put(number)).await.unwrap();
        }
        let claim = || ClaimRequest {
            state: "REQUESTED".into(),
            prefix: String::new(),
            limit: 20,
            ttl: TTL,
            owner: "worker".into(),
            nonce: Nonce::new(format!("{:032x}", Machine.random())).unwrap(),
            wait: Duration::ZERO,
        };
        assert_eq!(worker.claim(claim()).await.unwrap().len(), 20);
        drop(worker);

        let new = SimulatedMachine::booted_ago(SECOND);
        let contender = engine(&new, &path, wall).await;
        assert_eq!(contender.claim(claim()).await.unwrap(), [], "{wall_clock}");
        new.advance(61 * SECOND);
        let contender = engine(&new, &path, wall).await;
        assert_eq!(
            contender.claim(claim()).await.unwrap().len(),
            20,
            "{wall_clock}"
        );
    }
}

#[tokio::test]
async fn gate_opens_by_the_wall_clock_after_a_reboot() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    let day = Duration::from_secs(24 * 3_600);
    let gate = || Name::gate("report").unwrap();
    let old = SimulatedMachine::booted_ago(HOUR);
    expect_granted(try_acquire(&engine(&old, &path, TODAY).await, gate(), day).await);

    // A gate has no holder that could survive the reboot. It must open every day on a machine that is off every night.
    let evening = SimulatedMachine::booted_ago(SECOND);
    let early = engine(&evening, &path, TODAY + 12 * HOUR).await;
    assert!(!is_granted(&try_acquire(&early, gate(), day).await));
    let morning = SimulatedMachine::booted_ago(SECOND);
    let late = engine(&morning, &path, TODAY + 24 * HOUR + SECOND).await;
    expect_granted(try_acquire(&late, gate(), day).await);
}

#[tokio::test]
async fn machine_that_takes_over_a_shared_disk_grants_remote_holders_their_ttl() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    // The other machine booted long ago, so its boot time is unrelated to this file.
    let [here, there] = [
        SimulatedMachine::booted_ago(HOUR),
        SimulatedMachine::booted_ago(48 * HOUR),
    ];
    let service = engine(&here, &path, TODAY).await;
    expect_granted(try_acquire(&service, job(), TTL).await);
    let contender = engine(&there, &path, TODAY + 2 * MINUTE).await;
    assert!(!is_granted(&try_acquire(&contender, job(), TTL).await));
    there.advance(61 * SECOND);
    expect_granted(try_acquire(&contender, job(), TTL).await);
}

#[tokio::test]
async fn file_of_version_1_is_migrated() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    let machine = SimulatedMachine::booted_ago(HOUR);
    expect_granted(try_acquire(&engine(&machine, &path, TODAY).await, job(), TTL).await);
    sqlite3(
        &path,
        "alter table clock drop column restarted_us; pragma user_version = 1",
    );
    machine.advance(30 * SECOND);
    let contender = engine(&machine, &path, TODAY).await;
    assert!(!is_granted(&try_acquire(&contender, job(), TTL).await));
    assert_eq!(sqlite3(&path, "pragma user_version").trim(), "2");
    machine.advance(31 * SECOND);
    expect_granted(try_acquire(&contender, job(), TTL).await);
}
