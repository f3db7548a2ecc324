//! The helper processes of `run`: the watchdog, and the shim that executes the command.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::host::{Host as _, Machine};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::support::{Home, LEASEHOLD, Running, eventually, stat, watchdog_of};

const FOREVER: &str = "echo ready; while :; do sleep 0.01; done";
const STUBBORN: &str = "trap '' TERM INT HUP; echo ready; while :; do sleep 0.01; done";

/// A process group to watch.
struct Group(Running);

impl Group {
    fn start(script: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0);
        let mut group = Running::start(&mut command);
        group.expect("ready");
        Self(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = killpg(self.0.pid(), Signal::SIGKILL);
    }
}

fn watchdog(ttl: Duration) -> Running {
    let mut command = Command::new(LEASEHOLD);
    let mut watchdog =
        Running::start(command.args(["__watchdog", &ttl.as_micros().to_string(), "SIGTERM"]));
    watchdog.expect("ready");
    watchdog
}

/// Lets a watchdog watch a group until `span` from now.
fn watch(watchdog: &mut Running, group: &Group, span: Duration) {
    let deadline = (Machine.boot_time() + span).as_micros();
    watchdog.write(&format!("watch {} {deadline}\n", group.0.pid()));
    watchdog.expect("watching");
}

#[test]
fn watchdog_ends_a_group_before_the_deadline_even_if_it_ignores_term() {
    for script in [FOREVER, STUBBORN] {
        let group = Group::start(script);
        let mut watchdog = watchdog(Duration::from_secs(2));
        watch(&mut watchdog, &group, Duration::from_secs(1));
        watchdog.expect("ended");
        let (status, _) = watchdog.wait();
        assert!(status.success());
        eventually("the end of the group", || {
            stat(group.0.pid()).is_none().then_some(())
        });
    }
}

#[test]
fn new_deadline_replaces_the_old_one() {
    let group = Group::start(FOREVER);
    let mut watchdog = watchdog(Duration::from_secs(1));
    watch(&mut watchdog, &group, Duration::from_secs(3600));
    watch(&mut watchdog, &group, Duration::from_millis(500));
    watchdog.expect("ended");
}

#[test]
fn watchdog_ends_the_group_when_its_input_closes() {
    for script in [FOREVER, STUBBORN] {
        let group = Group::start(script);
        let mut watchdog = watchdog(Duration::from_secs(1));
        watch(&mut watchdog, &group, Duration::from_secs(3600));
        assert_eq!(watchdog.ends_with(0), ["ended"]);
        eventually("the end of the group", || {
            stat(group.0.pid()).is_none().then_some(())
        });
    }
}

#[test]
fn watchdog_closes_inherited_files_and_ignores_signals() {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        r#"exec 7</dev/null "$0" __watchdog 1000000 SIGTERM"#,
        LEASEHOLD,
    ]);
    let mut watchdog = Running::start(&mut command);
    watchdog.expect("ready");
    let pid = watchdog.pid();
    let session = &stat(pid).unwrap()[3];
    assert_eq!(*session, pid.to_string(), "a session of its own");
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let names = open.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(!names.into_iter().any(|name| name == "7"));
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        watchdog.signal(signal);
    }
    assert_eq!(watchdog.ends_with(0), Vec::<String>::new());
}

#[test]
fn command_does_not_start_without_the_start_byte() {
    let home = Home::new();
    let mut shim = home.command(["__exec", "0", "-", "touch", "ran"]);
    let status = shim.stdin(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(76));
    assert!(!home.file("ran").exists());
}

#[test]
fn command_is_ended_when_its_watchdog_is_killed() {
    let home = Home::new();
    let script = "trap '' TERM; echo $$; echo ready; while :; do sleep 0.01; done";
    let mut run = home.start(["run", "job", "--ttl", "2s", "--", "sh", "-c", script]);
    let command = loop {
        if let Ok(pid) = run.expect("").parse() {
            break Pid::from_raw(pid);
        }
    };
    run.expect("ready");
    kill(watchdog_of(run.pid()), Signal::SIGKILL).unwrap();
    run.expect("lost job, and its command was ended: its watchdog was killed");
    run.ends_with(76);
    assert_eq!(stat(command), None);
    assert!(!home.is_held("job"));
}

#[test]
fn command_is_ended_when_its_lease_is_broken() {
    let home = Home::new();
    for how in [&["--now"][..], &[]] {
        let mut run = home.hold(&["job", "--ttl", "2s"], FOREVER);
        let force = ["break", "job", "--force", "--reason", "maintenance"];
        home.run(force.iter().chain(how)).ok();
        run.expect("lost job, and its command was ended");
        run.ends_with(76);
    }
}

#[test]
fn run_killed_at_any_moment_leaves_no_command_behind() {
    let home = Home::new();
    let mark = home.path().display().to_string();
    for millis in 0..40 {
        let name = format!("job-{millis}");
        let script = "while :; do sleep 0.01; done";
        let run = home.start(["run", &name, "--ttl", "1s", "--", "sh", "-c", script, &mark]);
        // Varies the moment of the kill during the start; this does not wait for anything.
        std::thread::sleep(Duration::from_millis(millis));
        run.signal(Signal::SIGKILL);
        run.wait();
    }
    let is_left = |pid: String| {
        let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split('\0').any(|word| word == mark)
    };
    eventually("the end of every command", || {
        let mut processes = std::fs::read_dir("/proc").unwrap();
        let left =
            processes.any(|entry| is_left(entry.unwrap().file_name().into_string().unwrap()));
        (!left).then_some(())
    });
}

#[test]
fn stopped_watchdog_does_not_delay_the_release() {
    let home = Home::new();
    let mut run = home.hold(&["job"], "echo ready; cat >/dev/null; exit 6");
    kill(watchdog_of(run.pid()), Signal::SIGSTOP).unwrap();
    run.close_input();
    run.ends_with(6);
    assert!(!home.is_held("job"));
}

#[test]
fn run_leaves_no_process_behind() {
    let home = Home::new();
    let mut run = home.hold(&["job"], "echo ready; cat >/dev/null");
    let watchdog = watchdog_of(run.pid());
    run.close_input();
    run.ends_with(0);
    assert_eq!(stat(watchdog), None);
}
