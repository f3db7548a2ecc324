//! Commands that become another user, as `sudo` does, and cannot be sent signals.
//!
//! `leasehold` runs as `nobody`; a copy of `setpriv` that belongs to root and is setuid stands in for `sudo`. Only root can
//! set that up.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Home, LEASEHOLD, Ran, Running, stat};

const NOBODY: u32 = 65_534;

/// A home of `nobody`, with a `sudo` in it.
struct Unprivileged(Home);

impl Unprivileged {
    /// `None` where the tests do not run as root.
    fn new() -> Option<Self> {
        let home = Home::new();
        if home.path().metadata().unwrap().uid() != 0 {
            eprintln!("skipped: only root can set up a program that becomes another user");
            return None;
        }
        let install = |from: &str, name: &str, mode: u32| {
            std::fs::copy(from, home.file(name)).unwrap();
            std::fs::set_permissions(home.file(name), Permissions::from_mode(mode)).unwrap();
        };
        // That user may not be allowed to read the folder that the program was built in.
        install(LEASEHOLD, "leasehold", 0o755);
        install("/usr/bin/setpriv", "setpriv", 0o4755);
        let sudo = "#!/bin/sh\nexec ./setpriv --reuid 0 --regid 0 --clear-groups \"$@\"\n";
        std::fs::write(home.file("sudo"), sudo).unwrap();
        std::fs::set_permissions(home.file("sudo"), Permissions::from_mode(0o755)).unwrap();
        chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
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

/// A process that only root can end. It is ended when this is dropped.
struct Root(Pid);

impl Root {
    fn expected_from(run: &mut Running) -> Self {
        let line = run.expect("root is ");
        Self(Pid::from_raw(line["root is ".len()..].parse().unwrap()))
    }

    fn runs(&self) -> bool {
        stat(self.0).is_some()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if self.runs() {
            let _ = kill(self.0, Signal::SIGKILL);
        }
    }
}

/// Ends with the test's folder at the latest.
const AS_ROOT: &str =
    "./sudo sh -c 'echo root is $$; touch started; while [ -e sudo ]; do sleep 0.05; done'";

/// Leaves a process of root behind, and ends with 7.
fn leaving_root_behind() -> String {
    format!("({AS_ROOT}) & while [ ! -e started ]; do sleep 0.05; done; exit 7")
}

#[test]
fn a_lost_lease_names_what_could_not_be_ended() {
    let Some(home) = Unprivileged::new() else {
        return;
    };
    let mut run = home.start(&["run", "job", "--ttl", "2s", "--", "sh", "-c", AS_ROOT]);
    let root = Root::expected_from(&mut run);
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
        "still run that cannot be ended: process {} (sh)",
        root.0
    ));
    let lines = run.ends_with(76);
    let claims_end = lines.iter().any(|line| line.contains("command was ended"));
    assert!(!claims_end, "{lines:?}");
    assert!(root.runs());
}

#[test]
fn the_lease_is_kept_for_what_cannot_be_ended_and_the_exit_code_is_the_commands() {
    let Some(home) = Unprivileged::new() else {
        return;
    };
    let script = leaving_root_behind();
    let mut run = home.start(&["run", "job", "--ttl", "1s", "--", "sh", "-c", &script]);
    let root = Root::expected_from(&mut run);
    run.expect(&format!(
        "waiting for processes that cannot be ended: process {} (sh)",
        root.0
    ));
    let fence = home.run(&["show", "job", "--json"]).json()["fence"].clone();
    // Several ttls, which the same grant outlives because it is renewed.
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
        !lines.iter().any(|line| line.contains("job is lost")),
        "{lines:?}"
    );
    assert_eq!(home.run(&["show", "job", "--json"]).json()["held"], false);
}

#[test]
fn a_signal_ends_the_wait_and_the_lease_is_left_to_expire() {
    let Some(home) = Unprivileged::new() else {
        return;
    };
    let script = leaving_root_behind();
    let mut run = home.start(&["run", "job", "--ttl", "1h", "--", "sh", "-c", &script]);
    let root = Root::expected_from(&mut run);
    run.expect("waiting for processes");
    run.signal(Signal::SIGTERM);
    run.expect("job is left to expire, as processes still run");
    run.ends_with(7);
    assert!(root.runs());
    assert_eq!(home.run(&["show", "job", "--json"]).json()["held"], true);
}

#[test]
fn a_command_that_cannot_be_sent_a_signal_is_named() {
    let Some(home) = Unprivileged::new() else {
        return;
    };
    let mut run = home.start(&["run", "job", "--ttl", "1s", "--", "sh", "-c", AS_ROOT]);
    let root = Root::expected_from(&mut run);
    run.expect("processes of another user cannot be ended if the lease is lost");
    run.signal(Signal::SIGUSR1);
    run.expect(&format!(
        "SIGUSR1 cannot be sent to processes of another user: process {} (sh)",
        root.0
    ));
    drop(root);
    run.wait();
}
