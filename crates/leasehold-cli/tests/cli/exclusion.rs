//! Two commands never run at the same time, even if `leasehold` is killed or stopped, or wall clocks differ by an hour.
//!
//! The commands append to one file, which orders their actions without any clock.

use std::process::Command;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use leasehold_testbed::wall_clock_off_by;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{Home, Running, eventually};

/// How late a takeover may be. A busy machine may delay some takeovers, but not all of them.
const LATE_MS: i64 = 100;
const ATTEMPTS: usize = 5;

/// The command and its descendants write `old` repeatedly, and ignore TERM.
const OLD: &str = r#"
    trap '' TERM INT HUP
    beat() { while :; do echo old >>order; sleep 0.005; done; }
    (beat) & (beat) & beat & echo ready; wait; beat"#;
const NEW: &str = r#"echo new >>order; "$LEASEHOLD" show job --json"#;

fn time(moment: &Value) -> Timestamp {
    moment.as_str().unwrap().parse().unwrap()
}

/// The offsets of the wall clocks of holder and waiter.
type WallClocks = [&'static str; 2];

/// Starts a holder, which works until it is ended, and a waiter.
fn holder_and_waiter(home: &Home, clocks: WallClocks) -> (Running, Running) {
    let start = |script: &str, off: &str| {
        let mut run = home.command(["run", "job", "--ttl", "2s", "--", "sh", "-c", script]);
        if !off.is_empty() {
            run.envs(wall_clock_off_by(off).expect("faketime is installed"));
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

/// Asserts that the new command started after the last action of the old one.
#[track_caller]
fn assert_in_order(home: &Home) {
    let order = order(home);
    let lines: Vec<_> = order.lines().collect();
    let (last, before) = lines.split_last().unwrap();
    assert_eq!(*last, "new");
    assert!(before.iter().all(|line| *line == "old"), "{lines:?}");
}

/// Kills the holder, and returns the delay of the takeover after the expiry of the old lease, in milliseconds.
fn takeover_delay(home: &Home, clocks: WallClocks) -> i64 {
    let (holder, mut waiter) = holder_and_waiter(home, clocks);
    holder.signal(Signal::SIGKILL);
    let (status, _) = holder.wait();
    assert!(!status.success());
    // The lease is no longer renewed, so this expiry is final.
    let expiry = time(&home.show("job")["holders"][0]["expireTime"]);
    let shown = waiter.expect("acquireTime");
    waiter.ends_with(0);
    assert_in_order(home);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let granted = time(&shown["holders"][0]["acquireTime"]);
    granted.as_millisecond() - expiry.as_millisecond()
}

#[test]
fn killed_holder_is_replaced_right_after_its_ttl() {
    assert_prompt_takeover(WallClocks::default());
}

#[test]
fn takeover_is_prompt_with_wall_clocks_an_hour_apart() {
    let hour = Duration::from_secs(3600);
    for off in [["+3600s", "-3600s"], ["-3600s", "+3600s"], ["", "+3600s"]] {
        let ahead = wall_clock(off[1]).duration_since(SystemTime::now());
        assert_eq!(
            ahead.is_ok_and(|ahead| ahead > hour / 2),
            off[1] == "+3600s"
        );
        assert_prompt_takeover(off);
    }
}

/// Returns the wall clock time that a process with this offset sees.
fn wall_clock(off: &str) -> SystemTime {
    let mut date = Command::new("date");
    date.arg("+%s");
    date.envs(wall_clock_off_by(off).expect("faketime is installed"));
    let seconds = String::from_utf8(date.output().unwrap().stdout).unwrap();
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.trim().parse().unwrap())
}

/// Asserts that a takeover is prompt. Load only delays takeovers, so one prompt takeover of several suffices.
fn assert_prompt_takeover(clocks: WallClocks) {
    let mut delays = Vec::new();
    for _ in 0..ATTEMPTS {
        let delay = takeover_delay(&Home::new(), clocks);
        assert!(delay >= 0, "{delay} ms: two holders overlapped");
        delays.push(delay);
        if delay <= LATE_MS {
            return;
        }
    }
    panic!("never within {LATE_MS} ms after the ttl: {delays:?}");
}

#[test]
fn stopped_holder_is_ended_before_the_takeover() {
    let home = Home::new();
    let (mut holder, waiter) = holder_and_waiter(&home, WallClocks::default());
    holder.signal(Signal::SIGSTOP);
    waiter.ends_with(0);
    assert_in_order(&home);
    holder.signal(Signal::SIGCONT);
    holder.expect("lost job, and its command was ended");
    holder.ends_with(76);
}
