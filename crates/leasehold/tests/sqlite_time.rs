//! The time in a SQLite file never goes back, whatever boot and wall clocks do.

#![cfg(feature = "sqlite")]

use std::sync::atomic::Ordering;

use leasehold::Error;
use leasehold::core::Name;
use leasehold::host::{Host as _, Machine};
use leasehold::store::Store;
use leasehold::store::sqlite::Sqlite;

mod sqlite_support;
use sqlite_support::*;

async fn time(store: &dyn Store) -> u64 {
    store.load(&[]).await.unwrap().stamp.time.as_micros()
}

async fn write_new_record(store: &dyn Store) {
    let name = Name::lock(format!("{:x}", Machine.random())).unwrap();
    let swapped = swap_one(store, create(&name, record(1, ""))).await;
    row_of(&swapped);
}

#[tokio::test]
async fn new_file_starts_from_the_wall_clock_and_follows_the_boot_clock() {
    let folder = Folder::new();
    let machine = SimulatedMachine::booted_ago(HOUR);
    let store = machine.open(&folder.join("a.db"), TODAY).await.unwrap();
    assert_eq!(time(&store).await, TODAY);
    machine.advance(7);
    assert_eq!(time(&store).await, TODAY + 7);
}

#[tokio::test]
async fn wall_clock_of_a_later_process_is_ignored() {
    let folder = Folder::new();
    let machine = SimulatedMachine::booted_ago(HOUR);
    let path = folder.join("a.db");
    let first = machine.open(&path, TODAY).await.unwrap();
    for wall in [TODAY - HOUR, TODAY + HOUR, 5 * HOUR] {
        machine.advance(SECOND);
        let other = machine.open(&path, wall).await.unwrap();
        assert_eq!(time(&other).await, time(&first).await);
        write_new_record(&other).await;
        write_new_record(&first).await;
    }
    assert_eq!(time(&first).await, TODAY + 3 * SECOND);
}

#[tokio::test]
async fn new_boot_continues_from_the_later_of_high_water_mark_and_wall_clock() {
    let folder = Folder::new();
    let path = folder.join("a.db");
    let old = SimulatedMachine::booted_ago(HOUR);
    {
        let store = old.open(&path, TODAY).await.unwrap();
        old.advance(10 * SECOND);
        write_new_record(&store).await;
        // No process wrote at this time, so nothing depends on it.
        old.advance(SECOND);
    }

    // The wall clock fell back to 1970, as with an empty battery.
    let reset = SimulatedMachine::booted_ago(3 * SECOND);
    let store = reset.open(&path, 5 * SECOND).await.unwrap();
    assert_eq!(time(&store).await, TODAY + 11 * SECOND);
    reset.advance(SECOND);
    assert_eq!(time(&store).await, TODAY + 12 * SECOND);
    drop(store);

    // The next boot has the correct time again.
    let right = SimulatedMachine::booted_ago(2 * HOUR);
    let store = right.open(&path, TODAY + HOUR).await.unwrap();
    assert_eq!(time(&store).await, TODAY + HOUR);
}

#[tokio::test]
async fn time_after_a_boot_is_later_than_any_write_before() {
    let folder = Folder::new();
    let path = folder.join("a.db");
    let mut written = 0;
    // For any write frequency, and therefore whether or not the last write persisted its time.
    for every in [1, SECOND / 7, SECOND / 2, SECOND - 1, 3 * SECOND] {
        let machine = SimulatedMachine::booted_ago(SECOND);
        let store = machine.open(&path, TODAY).await.unwrap();
        assert!(time(&store).await > written, "{every}");
        for _ in 0..20 {
            machine.advance(every);
            written = time(&store).await;
            write_new_record(&store).await;
        }
    }
}

#[tokio::test]
async fn processes_that_open_the_file_first_after_a_boot_agree_on_the_time() {
    let folder = Folder::new();
    let path = folder.join("a.db");
    drop(
        SimulatedMachine::booted_ago(HOUR)
            .open(&path, TODAY)
            .await
            .unwrap(),
    );

    let machine = SimulatedMachine::booted_ago(SECOND);
    let openings = (0..8).map(|i| {
        // Each with another wall clock.
        let boot = machine.boot(TODAY + HOUR + i * SECOND, "time:[1]");
        let path = path.clone();
        tokio::spawn(async move { Sqlite::open_on(path, boot).await.unwrap() })
    });
    let mut times = Vec::new();
    for opening in openings.collect::<Vec<_>>() {
        let store = opening.await.unwrap();
        write_new_record(&store).await;
        times.push(time(&store).await);
    }
    assert!(times.iter().all(|time| *time == times[0]), "{times:?}");
    assert!(times[0] >= TODAY + HOUR);
}

#[tokio::test]
async fn another_time_namespace_of_the_same_boot_is_refused() {
    let folder = Folder::new();
    let path = folder.join("a.db");
    let machine = SimulatedMachine::booted_ago(HOUR);
    let store = machine.open(&path, TODAY).await.unwrap();
    let error = Sqlite::open_on(&path, machine.boot(TODAY, "time:[2]"))
        .await
        .err()
        .expect("clocks differ there");
    let Error::Denied(message) = &error else {
        panic!("{error:?}");
    };
    assert!(message.contains("time namespace") && message.contains("time:[2]"));
    write_new_record(&store).await;

    // After a boot, any namespace may be the first.
    let next = SimulatedMachine::booted_ago(SECOND).boot(TODAY, "time:[2]");
    Sqlite::open_on(&path, next).await.unwrap();
}

#[tokio::test]
async fn file_that_another_machine_uses_is_not_written() {
    let folder = Folder::new();
    let path = folder.join("a.db");
    let [here, there] = [
        SimulatedMachine::booted_ago(HOUR),
        SimulatedMachine::booted_ago(HOUR),
    ];
    let mine = here.open(&path, TODAY).await.unwrap();
    let theirs = there.open(&path, TODAY).await.unwrap();
    let name = Name::lock("x").unwrap();
    let error = mine.swap(vec![create(&name, record(1, ""))]).await;
    assert!(matches!(error, Err(Error::Denied(_))), "{error:?}");
    assert_eq!(load_one(&theirs, &name).await, None);
    write_new_record(&theirs).await;
}

#[tokio::test]
async fn time_does_not_go_back_on_a_machine_restored_from_a_snapshot() {
    let folder = Folder::new();
    let path = folder.join("a.db");
    let machine = SimulatedMachine::booted_ago(HOUR);
    {
        let store = machine.open(&path, TODAY).await.unwrap();
        machine.advance(HOUR);
        write_new_record(&store).await;
    }
    // Same boot id, older boot clock.
    machine.clock.0.store(HOUR, Ordering::SeqCst);
    let store = machine.open(&path, TODAY).await.unwrap();
    assert_eq!(time(&store).await, TODAY + HOUR + SECOND);
}

#[tokio::test]
async fn time_of_a_new_file_is_this_machines_wall_clock() {
    let folder = Folder::new();
    let before = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let store = open(folder.join("a.db")).await;
    let now = time(&*store).await;
    let after = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let slack = u128::from(SECOND);
    assert!((before.as_micros() - slack..=after.as_micros() + slack).contains(&now.into()));
}
