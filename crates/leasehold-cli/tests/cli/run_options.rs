//! `run`: its options for scripts, cron jobs and long-running commands.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::{Home, eventually};

/// Runs until its input is closed.
const UNTIL_CLOSED: &str = "echo ready; cat >/dev/null";

#[test]
fn contention_with_exit_code_zero_is_silent() {
    let home = Home::new();
    let holder = home.hold(&["job"], UNTIL_CLOSED);
    home.run(["gate", "alert", "--every", "1h"]).ok();
    for arguments in [
        &["run", "job", "-n", "-E", "0", "--", "touch", "ran"][..],
        &[
            "gate", "alert", "--every", "1h", "-E", "0", "--", "touch", "ran",
        ],
        &["acquire", "job", "-n", "-E", "0"],
    ] {
        let ran = home.run(arguments).ok();
        assert_eq!((&*ran.stdout, &*ran.stderr), ("", ""), "{arguments:?}");
    }
    assert!(!home.file("ran").exists());
    holder.ends_with(0);
}

#[test]
fn quiet_commands_print_results_and_errors_only() {
    let home = Home::new();
    let mut holder = home.hold(&["job"], UNTIL_CLOSED);
    for (arguments, code) in [
        (&["-q", "run", "job", "-w", "0.05", "--", "true"][..], 75),
        (&["put", "item", "--state", "NEW", "--quiet"], 0),
        (&["gate", "alert", "--every", "1h", "-q"], 0),
        (&["gate", "alert", "--every", "1h", "-q"], 75),
        (&["remove", "item", "-q"], 0),
    ] {
        let ran = home.run(arguments);
        assert_eq!(ran.code, Some(code), "{arguments:?} {ran:?}");
        assert_eq!((&*ran.stdout, &*ran.stderr), ("", ""), "{arguments:?}");
    }
    home.run(["-q", "run", "free", "--", "./missing"])
        .failed(127, "cannot run ./missing");
    home.run(["-q", "renew", "job", "1000"])
        .failed(76, "leasehold: ");
    assert!(home.run(["-q", "list"]).ok().stdout.contains("job"));
    holder.close_input();
    holder.ends_with(0);
}

#[test]
fn plain_numbers_are_seconds() {
    let home = Home::new();
    let holder = home.hold(&["job", "--ttl", "10"], UNTIL_CLOSED);
    assert_eq!(home.show("job")["holders"][0]["ttl"], 10_000);
    home.run(["run", "job", "-w", "0.05", "true"])
        .failed(75, "held");
    for invalid in ["1.2.3", ".", "1e3", "-1", "inf"] {
        home.run(["run", "other", "-w", invalid, "true"])
            .failed(2, invalid);
    }
    holder.ends_with(0);
}

#[test]
fn shell_line_runs_under_the_lease() {
    let home = Home::new();
    let ran = home.run(["run", "job", "-c", "echo $LEASEHOLD_NAME | tr j J; exit 3"]);
    assert_eq!((ran.code, &*ran.stdout), (Some(3), "Job\n"), "{ran:?}");
    home.run(["run", "job", "-c", "true", "--", "true"])
        .failed(2, "cannot be used with");
}

#[test]
fn lease_is_kept_for_at_least_the_given_time() {
    let home = Home::new();
    let started = Instant::now();
    let mut run = home.start(["run", "job", "--at-least", "1s", "-c", "echo done; exit 4"]);
    run.expect("done");
    home.run(["run", "job", "-n", "true"])
        .failed(75, "job is held by");
    run.ends_with(4);
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert!(!home.is_held("job"));
}

#[test]
fn signal_ends_the_wait_for_at_least_and_the_lease_expires() {
    let home = Home::new();
    let mut run = home.start([
        "run",
        "job",
        "--ttl",
        "1s",
        "--at-least",
        "1h",
        "-c",
        "trap '' TERM; echo done",
    ]);
    run.expect("done");
    // Until the command has ended, the signal is forwarded to it.
    eventually("the end of the wait", || {
        run.signal(Signal::SIGTERM);
        let line = run.next_line(Duration::from_millis(50))?;
        line.contains("job stays held until it expires")
            .then_some(())
    });
    run.ends_with(0);
    eventually("the expiry", || (!home.is_held("job")).then_some(()));
}

#[test]
fn command_is_ended_after_the_maximum_hold() {
    let home = Home::new();
    let script = "trap 'echo ending; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let mut run = home.hold(&["job", "--max-hold", "200ms"], script);
    run.expect("ending");
    run.expect("ended the command, which held job for longer than 200ms");
    run.ends_with(124);
    assert!(!home.is_held("job"));
}

#[test]
fn lost_lease_sends_the_chosen_signal() {
    let home = Home::new();
    let script = "trap 'echo got usr1; exit 0' USR1; echo ready; while :; do sleep 0.01; done";
    let mut run = home.hold(&["job", "--ttl", "2s", "--on-loss", "usr1"], script);
    home.run(["break", "job", "--force", "--now", "--reason", "test"])
        .ok();
    run.expect("got usr1");
    run.ends_with(76);

    // The watchdog sends it too, if `leasehold run` is killed.
    let mut run = home.hold(&["other", "--ttl", "2s", "--on-loss", "SIGUSR1"], script);
    run.signal(Signal::SIGKILL);
    run.expect("got usr1");

    let script = "trap 'echo got term' TERM; echo ready; while :; do sleep 0.01; done";
    let run = home.hold(&["third", "--ttl", "2s", "--on-loss", "kill"], script);
    home.run(["break", "third", "--force", "--now", "--reason", "test"])
        .ok();
    let lines = run.ends_with(76);
    assert!(
        !lines.iter().any(|line| line.contains("got term")),
        "{lines:?}"
    );
    home.run(["run", "job", "--on-loss", "hammer", "true"])
        .failed(2, "unknown signal");
}

#[test]
fn lost_lease_is_acquired_again_and_the_command_restarted() {
    let home = Home::new();
    let script = "echo ready; cat >/dev/null; exit 7";
    let mut run = home.hold(&["job", "--ttl", "2s", "--restart"], script);
    let first = home.show("job")["fence"].as_u64();
    home.run(["break", "job", "--force", "--now", "--reason", "test"])
        .ok();
    run.expect("acquiring it again");
    run.expect("ready");
    assert!(home.show("job")["fence"].as_u64() > first);
    run.close_input();
    run.ends_with(7);
    assert!(!home.is_held("job"));
}

#[test]
fn nested_run_of_a_held_name_is_refused() {
    let home = Home::new();
    for options in [&[][..], &["-n"], &["-n", "-E", "0"], &["-w", "1s"]] {
        let inner = [&["run", "job"], options, &["--", "touch", "ran"]]
            .concat()
            .join(" ");
        home.run(["run", "job", "-c", &format!("$LEASEHOLD {inner}")])
            .failed(2, "the enclosing `leasehold run` holds it");
    }
    let also = [
        "run",
        "ada",
        "--also",
        "job",
        "-c",
        "$LEASEHOLD run job -- touch ran",
    ];
    home.run(also)
        .failed(2, "the enclosing `leasehold run` holds it");
    assert!(!home.file("ran").exists());
    // Another name, and another store, are none of its business.
    home.run(["run", "job", "-c", "$LEASEHOLD run other -- true"])
        .ok();
    home.run([
        "run",
        "job",
        "-c",
        "$LEASEHOLD --store sqlite:other.db run job -- true",
    ])
    .ok();
}

#[test]
fn nested_run_is_allowed_under_the_enclosing_lease() {
    let home = Home::new();
    let script = r#"$LEASEHOLD run job --nested -- sh -c 'echo $LEASEHOLD_FENCE; exit 5'"#;
    let ran = home.run(["run", "job", "-c", script]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert_eq!(ran.stdout.trim(), home.show("job")["fence"].to_string());
    let script = "$LEASEHOLD run job --also other --nested -- true";
    home.run(["run", "job", "-c", script])
        .failed(2, "but not all of job, other");
    // Without an enclosing run, the option changes nothing.
    home.run(["run", "job", "--nested", "--", "true"]).ok();
}

#[test]
fn environment_of_an_ended_run_does_not_refuse_a_new_one() {
    let home = Home::new();
    let environment = home.run(["run", "job", "-c", "env"]).ok().stdout;
    let mut later = home.command(["run", "job", "-n", "--", "true"]);
    for line in environment.lines() {
        if let Some((name, value)) = line.split_once('=')
            && name.starts_with("LEASEHOLD_")
        {
            later.env(name, value);
        }
    }
    assert!(later.status().unwrap().success());
}

#[test]
fn script_locks_itself() {
    let home = Home::new();
    let script = home.file("report.sh");
    std::fs::write(
        &script,
        "#!/bin/sh\n\
         [ \"$LEASEHOLD_NAME\" = report ] || exec \"$LEASEHOLD\" run report -n -- \"$0\" \"$@\"\n\
         echo \"$LEASEHOLD_NAME $*\"; cat >/dev/null\n",
    )
    .unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut first = crate::support::Running::start(home.program(&script).args(["a b", "c"]));
    first.expect("report a b c");
    let second = home.program(&script).output().unwrap();
    assert_eq!(second.status.code(), Some(75), "{second:?}");
    first.close_input();
    first.ends_with(0);
}
