//! `pkill -9 leasehold`, with and without `-f`, kills `leasehold run` but not its watchdog.
//!
//! `pkill` is emulated on the process tree of the test, because the machine runs other tests at the same time.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Home, children_of, eventually, name_and_command_line, stat, watchdog_of};

const PATTERN: &str = "leasehold";
/// Ignores TERM, and ends at the latest when the folder of the test is deleted.
const STUBBORN: &str =
    "trap '' TERM; echo $$; echo ready; while [ -e \"$0\" ]; do sleep 0.01; done";

/// Returns a process and all its descendants.
fn process_tree(root: Pid) -> Vec<Pid> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        found.extend(children_of(*parent));
        next += 1;
    }
    found
}

/// Kills the processes of a tree that `pkill -9 leasehold` or, with `full`, `pkill -9 -f leasehold` would kill.
fn pkill(root: Pid, full: bool) {
    let is_matched = |pid: &Pid| {
        let (name, command_line) = name_and_command_line(*pid);
        name.contains(PATTERN) || (full && command_line.contains(PATTERN))
    };
    for pid in process_tree(root).into_iter().filter(is_matched) {
        // The process may have ended already.
        let _ = kill(pid, Signal::SIGKILL);
    }
}

#[test]
fn watchdog_does_not_show_the_lease_or_the_store_in_ps() {
    let home = Home::new();
    let run = home.hold(&["leasehold/nightly", "--ttl", "3s"], "echo ready; cat");
    let (name, command_line) = name_and_command_line(watchdog_of(run.pid()));
    for word in [PATTERN, "nightly", "sqlite", "leases.db"] {
        assert!(!name.contains(word), "{name}");
        assert!(!command_line.contains(word), "{command_line}");
    }
}

#[test]
fn next_holder_never_overlaps_the_command_of_a_killed_run() {
    for full in [false, true] {
        let home = Home::new();
        let folder = home.path().to_str().unwrap();
        let mut run = home.start([
            "run", "job", "--ttl", "2s", "--", "sh", "-c", STUBBORN, folder,
        ]);
        let command = Pid::from_raw(run.expect("").parse().unwrap());
        run.expect("ready");
        pkill(run.pid(), full);
        let mut next = home.start(["run", "job", "--", "sh", "-c", "echo mine; cat"]);
        next.expect("mine");
        assert_eq!(stat(command), None, "pkill -f: {full}");
    }
}

#[test]
fn pkill_at_any_moment_leaves_no_command_behind() {
    let home = Home::new();
    let folder = home.path().to_str().unwrap();
    for millis in 0..40 {
        let name = format!("job-{millis}");
        let run = home.start([
            "run", &name, "--ttl", "1s", "--", "sh", "-c", STUBBORN, folder,
        ]);
        // Varies the moment of the kill during the start; this does not wait for anything.
        std::thread::sleep(std::time::Duration::from_millis(millis));
        pkill(run.pid(), true);
        run.wait();
    }
    eventually("the end of every command", || {
        let processes = std::fs::read_dir("/proc").unwrap();
        let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let mut command_lines = pids.map(|pid| name_and_command_line(Pid::from_raw(pid)).1);
        let is_left = command_lines.any(|line| line.contains(folder));
        (!is_left).then_some(())
    });
}
