//! Two never run at once: not when `leasehold` is killed, not when it is stopped, not when clocks are an hour apart.
//!
//! The commands append to one file, so what they did is in order without any clock.

use std::process::Command;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use leasehold_testbed::wall_clock_off_by;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{Home, Running, eventually};

/// How late a successor may be; more than that is the machine's doing only if it does not happen every time.
const LATE_MS: i64 = 100;
const ATTEMPTS: usize = 5;

/// The command and a grandchild write `old` again and again; neither ends when it is told to.
const OLD: &str = r#"
    trap '' TERM INT HUP
    beat() { while :; do echo old >>order; sleep 0.005; done; }
    (beat) & (beat) & beat & echo ready; wait; beat"#;
const NEW: &str = r#"echo new >>order; "$LEASEHOLD" show job --json"#;

fn time(moment: &Value) -> Timestamp {
    moment.as_str().unwrap().parse().unwrap()
}

/// By how much the wall clock of each of the two is off.
type WallClocks = [&'static str; 2];

/// One that holds and goes on until it is ended, and one that waits to be next.
fn holder_and_waiter(home: &Home, clocks: WallClocks) -> (Running, Running) {
    let start = |script: &str, off: &str| {
        let mut run = home.command(["run", "job", "--ttl", "2s", "--", "sh", "-c", script]);
        if !off.is_empty() {
            run.envs(wall_clock_off_by(off).expect("it is installed"));
        }
        Running::start(&mut run)
    };
    let mut holder = start(OLD, clocks[0]);
    holder.expect("ready");
    let mut waiter = start(NEW, clocks[1]);
    waiter.expect("waiting for job");
    eventually("work of the holder", || {
        (order(home).lines().count() > 20).then_some(())
    });
    (holder, waiter)
}

fn order(home: &Home) -> String {
    std::fs::read_to_string(home.file("order")).unwrap_or_default()
}

/// The successor came after everything that the old command did.
#[track_caller]
fn assert_in_order(home: &Home) {
    let order = order(home);
    let lines: Vec<_> = order.lines().collect();
    let (last, before) = lines.split_last().unwrap();
    assert_eq!(*last, "new");
    assert!(before.iter().all(|line| *line == "old"), "{lines:?}");
}

/// How long after the old lease's end the new one was granted, in milliseconds of the store's time.
fn take_over(home: &Home, clocks: WallClocks) -> i64 {
    let (holder, mut waiter) = holder_and_waiter(home, clocks);
    holder.signal(Signal::SIGKILL);
    let (status, _) = holder.wait();
    assert!(!status.success());
    // Nobody renews any more, so this is when it ends.
    let ended = time(&home.show("job")["holders"][0]["expireTime"]);
    let shown = waiter.expect("acquireTime");
    waiter.ends_with(0);
    assert_in_order(home);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let granted = time(&shown["holders"][0]["acquireTime"]);
    granted.as_millisecond() - ended.as_millisecond()
}

#[test]
fn whoever_is_killed_is_replaced_right_after_its_ttl() {
    within_a_tenth_of_a_second(WallClocks::default());
}

#[test]
fn a_wall_clock_that_is_an_hour_off_changes_nothing() {
    let hour = Duration::from_secs(3600);
    for off in [["+3600s", "-3600s"], ["-3600s", "+3600s"], ["", "+3600s"]] {
        let ahead = wall_clock(off[1]).duration_since(SystemTime::now());
        assert_eq!(
            ahead.is_ok_and(|ahead| ahead > hour / 2),
            off[1] == "+3600s"
        );
        within_a_tenth_of_a_second(off);
    }
}

/// What time it is for those who are lied to.
fn wall_clock(off: &str) -> SystemTime {
    let mut date = Command::new("date");
    date.arg("+%s");
    date.envs(wall_clock_off_by(off).expect("it is installed"));
    let seconds = String::from_utf8(date.output().unwrap().stdout).unwrap();
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.trim().parse().unwrap())
}

/// Noise only ever makes a take-over later, so one that is in time shows that all can be.
fn within_a_tenth_of_a_second(clocks: WallClocks) {
    let mut late = Vec::new();
    for _ in 0..ATTEMPTS {
        let after = take_over(&Home::new(), clocks);
        assert!(after >= 0, "{after} ms: two held it at once");
        late.push(after);
        if after <= LATE_MS {
            return;
        }
    }
    panic!("never within {LATE_MS} ms after the ttl: {late:?}");
}

#[test]
fn whoever_is_stopped_is_ended_before_its_lease_passes() {
    let home = Home::new();
    let (mut holder, waiter) = holder_and_waiter(&home, WallClocks::default());
    holder.signal(Signal::SIGSTOP);
    waiter.ends_with(0);
    assert_in_order(&home);
    holder.signal(Signal::SIGCONT);
    holder.expect("job is lost, and its command was ended");
    holder.ends_with(76);
}
