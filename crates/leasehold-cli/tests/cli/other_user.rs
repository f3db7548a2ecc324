//! Commands that change to another user, as `sudo` does, and cannot be signalled.
//!
//! `leasehold` runs as an unprivileged user; a setuid copy of `setpriv` that belongs to root replaces `sudo`. Only root can set
//! this up.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Home, LEASEHOLD, Ran, Running, stat};

/// The id of an unprivileged user.
const UNPRIVILEGED_UID: u32 = 65_534;

/// A home folder of an unprivileged user, with a `sudo` in it.
struct Unprivileged(Home);

impl Unprivileged {
    /// Returns `None` if the tests do not run as root.
    fn new() -> Option<Self> {
        let home = Home::new();
        if home.path().metadata().unwrap().uid() != 0 {
            eprintln!("skipped: only root can install a setuid program of root");
            return None;
        }
        let install = |from: &str, name: &str, mode: u32| {
            std::fs::copy(from, home.file(name)).unwrap();
            std::fs::set_permissions(home.file(name), Permissions::from_mode(mode)).unwrap();
        };
        // The user may not have access to the folder that the program was built in.
        install(LEASEHOLD, "leasehold", 0o755);
        install("/usr/bin/setpriv", "setpriv", 0o4755);
        let sudo = "#!/bin/sh\nexec ./setpriv --reuid 0 --regid 0 --clear-groups \"$@\"\n";
        std::fs::write(home.file("sudo"), sudo).unwrap();
        std::fs::set_permissions(home.file("sudo"), Permissions::from_mode(0o755)).unwrap();
        chown(home.path(), Some(UNPRIVILEGED_UID), Some(UNPRIVILEGED_UID)).unwrap();
        Some(Self(home))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let ids = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
        let mut command = self.0.program("setpriv");
        command.args(ids).arg("./leasehold").args(arguments);
        command
    }

    fn start(&self, arguments: &[&str]) -> Running {
        Running::start(&mut self.command(arguments))
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        Ran::from(self.command(arguments).output().unwrap())
    }
}

/// A process that only root can signal. It is killed when this is dropped.
struct RootProcess(Pid);

impl RootProcess {
    fn expected_from(run: &mut Running) -> Self {
        let line = run.expect("root is ");
        Self(Pid::from_raw(line["root is ".len()..].parse().unwrap()))
    }

    fn is_running(&self) -> bool {
        stat(self.0).is_some()
    }
}

impl Drop for RootProcess {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = kill(self.0, Signal::SIGKILL);
        }
    }
}

/// A process of root, which ends at the latest when the folder of the test is deleted.
const AS_ROOT: &str =
    "./sudo sh -c 'echo root is $$; touch started; while [ -e sudo ]; do sleep 0.05; done'";

/// Returns a script that leaves a process of root behind, and exits with 7.
fn script_that_leaves_a_root_process() -> String {
    format!("({AS_ROOT}) & while [ ! -e started ]; do sleep 0.05; done; exit 7")
}

#[test]
fn processes_that_cannot_be_killed_are_named_when_the_lease_is_lost() {
    let Some(home) = Unprivileged::new() else {
        return;
    };
    let mut run = home.start(&["run", "job", "--ttl", "2s", "--", "sh", "-c", AS_ROOT]);
    let root = RootProcess::expected_from(&mut run);
    home.run(&[
        "break",
        "job",
        "--force",
        "--now",
        "--reason",
        "maintenance",
    ])
    .ok();
    run.expect(&format!(
        "still run and cannot be killed: process {} (sh)",
        root.0
    ));
    let lines = run.ends_with(76);
    let claims_end = lines.iter().any(|line| line.contains("command was ended"));
    assert!(!claims_end, "{lines:?}");
    assert!(root.is_running());
}

#[test]
fn lease_is_held_for_processes_that_cannot_be_killed_and_exit_code_is_kept() {
    let Some(home) = Unprivileged::new() else {
        return;
    };
    let script = script_that_leaves_a_root_process();
    let mut run = home.start(&["run", "job", "--ttl", "1s", "--", "sh", "-c", &script]);
    let root = RootProcess::expected_from(&mut run);
    run.expect(&format!(
        "waiting for processes that cannot be killed: process {} (sh)",
        root.0
    ));
    let fence = home.run(&["show", "job", "--json"]).json()["fence"].clone();
    // The grant lasts several ttls, because it is renewed.
    let renewed = |home: &Unprivileged| {
        let shown = home.run(&["show", "job", "--json"]).json();
        assert_eq!((&shown["held"], &shown["fence"]), (&true.into(), &fence));
        shown["holders"][0]["expireTime"].to_string()
    };
    let mut expiries = std::collections::BTreeSet::new();
    crate::support::eventually("five renewals", || {
        expiries.insert(renewed(&home));
        (expiries.len() > 5).then_some(())
    });
    drop(root);
    let lines = run.ends_with(7);
    assert!(
        !lines.iter().any(|line| line.contains("lost job")),
        "{lines:?}"
    );
    assert_eq!(home.run(&["show", "job", "--json"]).json()["held"], false);
}

#[test]
fn signal_ends_the_wait_and_the_lease_is_left_to_expire() {
    let Some(home) = Unprivileged::new() else {
        return;
    };
    let script = script_that_leaves_a_root_process();
    let mut run = home.start(&["run", "job", "--ttl", "1h", "--", "sh", "-c", &script]);
    let root = RootProcess::expected_from(&mut run);
    run.expect("waiting for processes");
    run.signal(Signal::SIGTERM);
    run.expect("cannot release job, because these processes still run");
    run.ends_with(7);
    assert!(root.is_running());
    assert_eq!(home.run(&["show", "job", "--json"]).json()["held"], true);
}

#[test]
fn processes_that_cannot_be_signalled_are_named() {
    let Some(home) = Unprivileged::new() else {
        return;
    };
    let mut run = home.start(&["run", "job", "--ttl", "1s", "--", "sh", "-c", AS_ROOT]);
    let root = RootProcess::expected_from(&mut run);
    run.expect("cannot kill processes of another user if the lease is lost");
    run.signal(Signal::SIGUSR1);
    run.expect(&format!(
        "cannot send SIGUSR1 to processes of another user: process {} (sh)",
        root.0
    ));
    drop(root);
    run.wait();
}

#[test]
fn users_of_the_systems_store_exclude_each_other_and_others_are_warned() {
    let Some(alice) = Unprivileged::new() else {
        return;
    };
    let system = tempfile::TempDir::new().unwrap();
    std::fs::set_permissions(system.path(), Permissions::from_mode(0o755)).unwrap();
    let store = system.path().join("leasehold/leases.db");
    let root = Home::new();
    let as_root = |arguments: &[&str]| {
        let mut command = root.command(arguments);
        command.env("LEASEHOLD_SYSTEM_STORE", &store);
        command
    };
    let as_alice = |arguments: &[&str]| {
        let mut command = alice.command(arguments);
        command.env("LEASEHOLD_SYSTEM_STORE", &store);
        Ran::from(command.output().unwrap())
    };
    let run = |command: &mut Command| Ran::from(command.output().unwrap());

    run(&mut as_root(&[
        "init",
        "--system",
        "--group",
        "no such group",
    ]))
    .failed(77, "the group `no such group` does not exist");
    as_alice(&["init", "--system", "--group", "65534"]).failed(77, "Permission denied");
    assert!(!store.exists());
    let created = run(&mut as_root(&["init", "--system", "--group", "65534"])).ok();
    assert!(created.stdout.contains("is ready"), "{created:?}");

    // The files beside the store belong to the group also if root creates them.
    let mut holder = Running::start(&mut as_root(&[
        "run",
        "job",
        "--",
        "sh",
        "-c",
        "echo ready; cat",
    ]));
    holder.expect("ready");
    let refused = as_alice(&["run", "job", "-n", "--", "true"]);
    assert_eq!(refused.code, Some(75), "{refused:?}");
    assert!(!refused.stderr.contains("default store"), "{refused:?}");
    holder.close_input();
    holder.ends_with(0);
    as_alice(&["run", "job", "-n", "--", "true"]).ok();
    run(&mut as_root(&["run", "job", "-n", "--", "true"])).ok();
    let doctor = as_alice(&["doctor"]).ok();
    assert!(
        doctor.stdout.contains("(the default store of this system)"),
        "{doctor:?}"
    );

    // A member cannot replace the file of root, and a link beside it is not followed.
    let mut remove = alice.0.program("setpriv");
    remove.args([
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "rm",
        "-f",
    ]);
    assert!(!remove.arg(&store).status().unwrap().success());
    let victim = system.path().join("victim");
    std::fs::write(&victim, "").unwrap();
    let mode = || victim.metadata().unwrap().permissions().mode() & 0o777;
    let before = mode();
    let log = store.with_extension("db-wal");
    std::fs::rename(&log, system.path().join("log")).unwrap();
    std::os::unix::fs::symlink(&victim, &log).unwrap();
    run(&mut as_root(&["init", "--system", "--group", "65534"])).failed(77, "cannot create");
    assert_eq!(mode(), before);
    std::fs::rename(system.path().join("log"), &log).unwrap();

    // A user outside the group uses another store, and is warned.
    chown(&store, None, Some(0)).unwrap();
    let warned = as_alice(&["run", "job", "-n", "--", "true"]).ok();
    assert!(
        warned.stderr.contains("is not the store of the system"),
        "{warned:?}"
    );
}

#[test]
fn default_store_is_found_without_home() {
    let Some(alice) = Unprivileged::new() else {
        return;
    };
    // The home folder of this user, by the list of users, does not exist and cannot be created.
    let mut run = alice.command(&["run", "job", "-n", "--", "true"]);
    let ran = Ran::from(
        run.env_remove("HOME")
            .env_remove("XDG_DATA_HOME")
            .output()
            .unwrap(),
    );
    ran.failed(77, ".local/share/leasehold: ");
}
