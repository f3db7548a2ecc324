//! One SQLite file and several processes: races, kills, and full disks.
//!
//! The children are this program, with a role set in the environment.

#![cfg(feature = "sqlite")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::Error;
use leasehold::core::Name;
use leasehold::store::sqlite::Sqlite;
use leasehold::store::{Store, Swapped};
use rusqlite::Connection;

mod sqlite_support;
use sqlite_support::*;

const ROLE: &str = "LEASEHOLD_TEST_ROLE";
const FILE: &str = "LEASEHOLD_TEST_FILE";

/// The entry point of the children. Does nothing without a role.
#[tokio::test]
async fn child_process_entry_point() {
    let (Ok(role), Ok(file)) = (std::env::var(ROLE), std::env::var(FILE)) else {
        return;
    };
    let file = Path::new(&file);
    match role.as_str() {
        "create" => create_and_write(file).await,
        "count" => count(&*open(file).await, 50).await,
        "report" => report(file).await,
        "fill the disk" => fill_the_disk(file).await,
        "fill the file" => fill_the_file(file).await,
        "read-only" => check_read_only(file).await,
        other => panic!("unknown role `{other}`"),
    }
    println!("\ndone");
}

/// Starts a child with a role, through a wrapper command.
fn child_with_wrapper(wrapper: &[&str], role: &str, file: &Path) -> Child {
    let program = std::env::current_exe().unwrap();
    let mut words = wrapper
        .iter()
        .map(|word| word.as_ref())
        .chain([program.as_os_str()]);
    Command::new(words.next().unwrap())
        .args(words)
        .args(["--exact", "child_process_entry_point", "--nocapture"])
        .envs([(ROLE, role.as_ref()), (FILE, file.as_os_str())])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn child(role: &str, file: &Path) -> Child {
    child_with_wrapper(&[], role, file)
}

#[track_caller]
fn assert_done(child: Child) {
    let output = child.wait_with_output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && output_text.contains("\ndone"),
        "{output_text}"
    );
}

#[tokio::test]
async fn eight_processes_can_create_the_file_concurrently() {
    let folder = Folder::new();
    for round in 0..3 {
        let path = folder.join(&format!("{round}.db"));
        let children: Vec<_> = (0..8).map(|_| child("create", &path)).collect();
        children.into_iter().for_each(assert_done);
        assert_eq!(sqlite3(&path, "select count(*) from leases").trim(), "8");
        assert_eq!(sqlite3(&path, "select count(*) from clock").trim(), "1");
    }
}

async fn create_and_write(file: &Path) {
    let store = open(file).await;
    let name = Name::lock(std::process::id().to_string()).unwrap();
    row_of(&swap_one(&*store, create(&name, record(1, ""))).await);
}

#[tokio::test]
async fn no_update_of_any_process_is_lost() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    let name = Name::lock("counter").unwrap();
    let store = open(&path).await;
    swap_one(&*store, create(&name, record(1, "0"))).await;
    let children: Vec<_> = (0..4).map(|_| child("count", &path)).collect();
    count(&*store, 50).await;
    children.into_iter().for_each(assert_done);
    let end = load_one(&*store, &name).await.unwrap();
    assert_eq!(&*end.record.body, "250");
}

/// Increments the counter this many times, each by compare-and-swap.
async fn count(store: &dyn Store, times: usize) {
    let name = Name::lock("counter").unwrap();
    let mut seen = load_one(store, &name).await.unwrap();
    for _ in 0..times {
        loop {
            let sum: u32 = seen.record.body.parse().unwrap();
            let next = record(1, &(sum + 1).to_string());
            let write = replace(&name, &seen, next);
            let (id, next) = write.put.clone().unwrap();
            match swap_one(store, write).await {
                Swapped::Conflict(Some(current)) => seen = current,
                swapped => {
                    seen.version.write = id;
                    seen.version.tag = row_of(&swapped);
                    seen.record = next;
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn acknowledged_writes_survive_sigkill() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    let name = Name::lock("progress").unwrap();
    swap_one(&*open(&path).await, create(&name, record(1, "0"))).await;
    for _ in 0..10 {
        let mut child = child("report", &path);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let steps = lines
            .by_ref()
            .filter_map(|line| line.unwrap().parse::<u64>().ok());
        let mut acknowledged = steps.take(20).last().unwrap();
        child.kill().unwrap();
        // Lines that it printed before the kill count as well.
        let rest = lines.filter_map(|line| line.ok()?.parse::<u64>().ok());
        acknowledged = rest.last().unwrap_or(acknowledged);
        child.wait().unwrap();

        let kept = load_one(&*open(&path).await, &name).await.unwrap();
        let kept: u64 = kept.record.body.parse().unwrap();
        // The last write may have landed without its answer.
        assert!(
            (acknowledged..=acknowledged + 1).contains(&kept),
            "{acknowledged} {kept}"
        );
    }
}

/// Writes step after step, and prints each acknowledged one.
async fn report(file: &Path) {
    let store = open(file).await;
    let name = Name::lock("progress").unwrap();
    let mut out = std::io::stdout();
    loop {
        let seen = load_one(&*store, &name).await.unwrap();
        let step = seen.record.body.parse::<u64>().unwrap() + 1;
        let write = replace(&name, &seen, record(1, &step.to_string()));
        row_of(&swap_one(&*store, write).await);
        writeln!(out, "\n{step}").unwrap();
    }
}

#[tokio::test]
async fn lock_of_another_process_is_an_error_in_bounded_time() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    let store = open(&path).await;
    let name = Name::lock("x").unwrap();
    let locker = Connection::open(&path).unwrap();
    locker.execute_batch("begin immediate").unwrap();

    let begun = Instant::now();
    let (refused, loaded) = tokio::join!(store.swap(vec![create(&name, record(1, ""))]), async {
        let found = load_one(&*store, &name).await;
        (found, begun.elapsed())
    });
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    // Reads continue meanwhile.
    assert_eq!(loaded.0, None);
    assert!(loaded.1 < begun.elapsed());

    locker.execute_batch("rollback").unwrap();
    assert_eq!(load_one(&*store, &name).await, None);
    row_of(&swap_one(&*store, create(&name, record(1, ""))).await);
}

/// Returns whether this machine allows a shell to mount in namespaces of its own.
fn can_mount() -> bool {
    Command::new("unshare")
        .args(["-rm", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[tokio::test]
async fn full_disk_is_a_clear_error_and_changes_nothing() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    if can_mount() {
        let disk = folder.path().to_str().unwrap();
        let script = format!("mount -t tmpfs -o size=2m none {disk} && exec \"$0\" \"$@\"");
        let wrapper = ["unshare", "-rm", "sh", "-c", &script];
        assert_done(child_with_wrapper(&wrapper, "fill the disk", &path));
    }
    // Another kind of failure: files cannot grow beyond a megabyte or two.
    let script = "trap '' XFSZ; ulimit -f 2048; exec \"$0\" \"$@\"";
    assert_done(child_with_wrapper(
        &["sh", "-c", script],
        "fill the file",
        &path,
    ));
}

async fn fill_the_disk(file: &Path) {
    let ballast = file.with_extension("ballast");
    std::fs::write(&ballast, vec![0; 500_000]).unwrap();
    let store = open(file).await;
    let (written, refusal) = fill(&*store).await;
    let Error::Unavailable(message) = &refusal else {
        panic!("a full disk is never ambiguous: {refusal:?}");
    };
    assert!(message.contains("full") && message.contains("free some space"));
    assert_kept(&*store, written).await;

    // The same store continues as soon as there is space.
    std::fs::remove_file(ballast).unwrap();
    let again = create(&item(written), record(1, "small"));
    row_of(&swap_one(&*store, again).await);
    drop(store);
    assert_kept(&*open(file).await, written + 1).await;
}

async fn fill_the_file(file: &Path) {
    let written = {
        let store = open(file).await;
        let (written, refusal) = fill(&*store).await;
        assert!(matches!(refusal, Error::Indeterminate(_)), "{refusal:?}");
        assert_kept(&*store, written).await;
        written
    };
    assert_kept(&*open(file).await, written).await;
}

fn item(number: usize) -> Name {
    Name::lock(format!("item {number}")).unwrap()
}

/// Writes items until the disk is full. Returns how many were acknowledged, and the error.
async fn fill(store: &dyn Store) -> (usize, Error) {
    let body = "x".repeat(40_000);
    for written in 0..1_000 {
        let write = create(&item(written), record(1, &body));
        match store.swap(vec![write]).await {
            Ok(swapped) => {
                row_of(&swapped.value[0]);
            }
            Err(error) => return (written, error),
        }
    }
    panic!("the disk never filled up");
}

/// Asserts that exactly the acknowledged items exist.
async fn assert_kept(store: &dyn Store, written: usize) {
    assert!(written > 0);
    for number in 0..=written {
        let found = load_one(store, &item(number)).await;
        assert_eq!(found.is_some(), number < written, "{number} of {written}");
    }
}

/// Without the right to mount, `sqlite_file.rs` still tests a folder that not even the superuser can write to.
#[tokio::test]
async fn store_on_a_read_only_disk_is_refused() {
    let folder = Folder::new();
    let path = folder.join("leases.db");
    open(&path).await;
    if can_mount() {
        let disk = folder.path().to_str().unwrap();
        let script = format!("mount --bind -o ro {disk} {disk} && exec \"$0\" \"$@\"");
        let wrapper = ["unshare", "-rm", "sh", "-c", &script];
        assert_done(child_with_wrapper(&wrapper, "read-only", &path));
    }
}

async fn check_read_only(file: &Path) {
    for path in [file.to_owned(), file.with_extension("new")] {
        match Sqlite::open(&path).await {
            Err(Error::Denied(message)) => assert!(message.contains("writable"), "{message}"),
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("it was opened"),
        }
    }
}
