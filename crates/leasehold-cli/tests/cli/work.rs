//! `work`: runs a command for each item, and moves the item to its next state.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::support::{Home, LEASEHOLD, Ran, Running, eventually, stat};

const STATES: [&str; 6] = ["work", "NEW", "--next", "DONE", "--failed", "FAILED"];

/// Returns the arguments of a `work` with these options and a shell script as its command.
fn work<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let command = ["--", "sh", "-c", script];
    [&STATES, options, &command].concat()
}

fn put(home: &Home, name: &str, body: &str) {
    home.run(["put", name, "--state", "NEW", "--body", body])
        .ok();
}

/// Asserts that a free item has this state and body.
#[track_caller]
fn assert_item(home: &Home, name: &str, state: &str, body: &str) {
    let shown = home.show(name);
    let found = (&shown["state"], &shown["body"], &shown["held"]);
    assert_eq!(found, (&state.into(), &body.into(), &false.into()));
}

/// Prints the name of its item, and works on it until a file `go` exists.
const UNTIL_GO: &str =
    "echo at $LEASEHOLD_NAME; while ! test -e go; do sleep 0.01; done; echo finished";
/// Prints the name of its item, and never ends.
const FOREVER: &str = "echo at $LEASEHOLD_NAME $$; while :; do sleep 0.01; done";

#[test]
fn items_move_to_the_state_that_the_exit_code_selects() {
    let home = Home::new();
    put(&home, "good", "line 1\nline 2\n");
    put(&home, "bad", "x");
    put(&home, "killed", "kill");
    let script = r#"cat >"$LEASEHOLD_NAME.in"
        test "$LEASEHOLD_STATE" = NEW || exit 9
        test "$LEASEHOLD_BODY" = kill && kill -9 $$
        test "$LEASEHOLD_NAME" = good"#;
    let ran = home.run(work(&["--drain"], script));
    let ran = ran.failed(1, "bad → FAILED in ");
    for words in ["exit code 1", "ended by SIGKILL", "1 done, 2 failed"] {
        assert!(ran.stderr.contains(words), "{ran:?}");
    }
    assert!(
        !ran.stderr.contains("good"),
        "without a terminal, only failures are reported: {ran:?}"
    );
    assert_item(&home, "good", "DONE", "line 1\nline 2\n");
    assert_item(&home, "bad", "FAILED", "x");
    assert_item(&home, "killed", "FAILED", "kill");
    let input = std::fs::read_to_string(home.file("good.in")).unwrap();
    assert_eq!(input, "line 1\nline 2\n");

    let none = home.run(work(&["--drain", "--json"], "exit 1")).json();
    let zero = serde_json::json!({ "done": 0, "failed": 0, "lost": 0, "givenBack": 0 });
    assert_eq!(none, zero);
    put(&home, "again", "");
    let quiet = home.run(work(&["--drain", "-q"], "exit 1")).failed(1, "");
    assert_eq!(quiet.stderr, "");
}

#[test]
fn output_of_a_command_can_become_the_new_body() {
    let home = Home::new();
    put(&home, "a", "apples");
    let shout = [
        &STATES[..],
        &["--drain", "--output", "--", "tr", "a-z", "A-Z"],
    ]
    .concat();
    assert_eq!(home.run(shout).ok().stdout, "");
    assert_item(&home, "a", "DONE", "APPLES");

    // The body is kept if the output is not a valid body, or the command fails.
    for (script, words) in [
        ("head -c 1000000 /dev/zero", "more than 65536 bytes"),
        (r"printf '\351'", "not UTF-8"),
        ("echo half; exit 3", "exit code 3"),
    ] {
        put(&home, "b", "as it was");
        home.run(work(&["--drain", "--output"], script))
            .failed(1, words);
        assert_item(&home, "b", "FAILED", "as it was");
    }
    put(&home, "c", "");
    let clear = [
        "work", "NEW", "--next", "", "--failed", "F", "--drain", "true",
    ];
    home.run(clear).ok();
    assert_eq!(home.show("c")["state"], serde_json::Value::Null);
}

#[test]
fn parallel_commands_run_at_the_same_time() {
    let home = Home::new();
    for name in ["a", "b", "c", "d", "e"] {
        put(&home, name, "");
    }
    // Each command waits for two others, so it ends only if three run at the same time.
    let script = "echo >>started; while test $(wc -l <started) -lt 3; do sleep 0.01; done";
    let ran = home.run(work(&["--drain", "--parallel", "3"], script)).ok();
    assert!(ran.stderr.contains("5 done, 0 failed"), "{ran:?}");
}

#[test]
fn work_waits_for_items_and_a_signal_lets_commands_finish() {
    let home = Home::new();
    let mut working = home.start(work(&[], UNTIL_GO));
    put(&home, "a", "");
    working.expect("at a");
    working.signal(Signal::SIGINT);
    working.expect("finishing 1 item, then stopping");
    put(&home, "b", "");
    std::fs::write(home.file("go"), "").unwrap();
    working.expect("finished");
    working.expect("1 done, 0 failed");
    working.ends_with(0);
    assert_item(&home, "a", "DONE", "");
    assert_item(&home, "b", "NEW", "");

    let idle = home.start(work(&[], "true"));
    eventually("the end of the other item", || {
        (home.show("b")["state"] == "DONE").then_some(())
    });
    idle.signal(Signal::SIGTERM);
    idle.ends_with(0);
}

#[test]
fn second_signal_ends_commands_and_gives_their_items_back() {
    let home = Home::new();
    put(&home, "a", "");
    let mut working = home.start(work(&[], FOREVER));
    working.expect("at a");
    working.signal(Signal::SIGINT);
    working.expect("finishing 1 item");
    working.signal(Signal::SIGTERM);
    working.expect("gave back a");
    working.ends_with(143);
    assert_item(&home, "a", "NEW", "");
}

#[test]
fn command_that_cannot_be_executed_fails_no_items() {
    let home = Home::new();
    put(&home, "a", "");
    put(&home, "b", "");
    let missing = [&STATES[..], &["--parallel", "2", "--", "./missing"]].concat();
    home.run(missing)
        .failed(127, "cannot run ./missing: command not found");
    for name in ["a", "b"] {
        assert_item(&home, name, "NEW", "");
    }
}

#[test]
fn command_is_ended_when_its_claim_is_broken() {
    let home = Home::new();
    put(&home, "a", "");
    let mut working = home.start(work(&["--ttl", "2s"], FOREVER));
    let pid = working_process(&mut working);
    let force = ["break", "a", "--force", "--reason", "maintenance"];
    home.run(force).ok();
    working.expect("lost a after");
    assert_eq!(stat(pid), None);
    assert_eq!(home.show("a")["state"], "NEW");
    // The item is free, so it is claimed again.
    let pid = working_process(&mut working);
    working.signal(Signal::SIGINT);
    working.expect("finishing 1 item");
    working.signal(Signal::SIGINT);
    working.ends_with(130);
    assert_eq!(stat(pid), None);
}

/// Returns the process that works on the item `a`.
fn working_process(working: &mut Running) -> Pid {
    let line = working.expect("at a ");
    let pid = line.trim_start_matches("at a ");
    Pid::from_raw(pid.parse().unwrap())
}

#[test]
fn item_of_a_killed_worker_is_claimed_after_its_command_has_ended() {
    let home = Home::new();
    put(&home, "a", "");
    let mut working = home.start(work(&["--ttl", "2s"], FOREVER));
    let pid = working_process(&mut working);
    let first = home.show("a")["fence"].as_u64().unwrap();
    working.signal(Signal::SIGKILL);
    working.wait();
    let alive = format!("test -e /proc/{pid} && grep -qv Z /proc/{pid}/stat && echo alive; exit 0");
    let mut next = home.start(work(&[], &format!("echo at a $$; {alive}")));
    working_process(&mut next);
    eventually("the end of the item", || {
        (home.show("a")["state"] == "DONE").then_some(())
    });
    next.signal(Signal::SIGINT);
    let lines = next.ends_with(0);
    assert!(!lines.contains(&"alive".to_owned()), "{lines:?}");
    assert!(home.show("a")["fence"].as_u64().unwrap() > first);
    let stale = first.to_string();
    home.run(["update", "a", &stale, "--state", "NEW"])
        .failed(76, "fence");
}

#[test]
fn work_survives_a_temporary_failure_of_the_store() {
    let home = Home::new();
    put(&home, "a", "");
    let mut working = home.start(work(&[], UNTIL_GO));
    working.expect("at a");
    let mut lock = Command::new("sqlite3");
    lock.arg(home.file("data/leasehold/leases.db"))
        .process_group(0);
    let mut lock = Running::start(&mut lock);
    lock.write("begin exclusive; select 'locked';\n");
    lock.expect("locked");
    std::fs::write(home.file("go"), "").unwrap();
    working.expect("retrying until the store answers");
    lock.ends_with(0);
    working.expect("the store answers again");
    eventually("the end of the item", || {
        (home.show("a")["state"] == "DONE").then_some(())
    });
    put(&home, "b", "");
    working.expect("at b");
    working.signal(Signal::SIGINT);
    working.expect("2 done, 0 failed");
    working.ends_with(0);
}

#[test]
fn each_item_is_reported_on_a_terminal() {
    let home = Home::new();
    put(&home, "a", "");
    let command = format!("{LEASEHOLD} {} --drain -- true", STATES.join(" "));
    let mut script = home.program("script");
    script.args(["-q", "-e", "-c", &command, "/dev/null"]);
    let output = script.stdin(Stdio::null()).output().unwrap();
    let ran = Ran::from(output).ok();
    assert!(ran.stdout.contains("a → DONE in "), "{ran:?}");
    assert!(
        ran.stdout.contains("(1 done, 0 failed, 0 running)"),
        "{ran:?}"
    );
}

#[test]
fn invalid_input_is_refused_and_changes_nothing() {
    let home = Home::new();
    put(&home, "a", "");
    let long = "s".repeat(65);
    for (arguments, words) in [
        (&["work"][..], "required"),
        (&["work", "NEW", "true"], "--next"),
        (&["work", "NEW", "--next", "DONE", "true"], "--failed"),
        (&STATES, "COMMAND"),
        (
            &["work", "NEW", "--next", "NEW", "--failed", "F", "true"],
            "invalid --next `NEW`",
        ),
        (
            &["work", "NEW", "--next", "D", "--failed", "NEW", "true"],
            "invalid --failed `NEW`",
        ),
        (
            &["work", "NEW", "--next", &long, "--failed", "F", "true"],
            "65 bytes",
        ),
        (
            &["work", "", "--next", "D", "--failed", "F", "true"],
            "state",
        ),
        (
            &[
                "work",
                "NEW",
                "--next",
                "D",
                "--failed",
                "F",
                "--parallel",
                "0",
                "true",
            ],
            "0",
        ),
        (
            &[
                "work", "NEW", "--next", "D", "--failed", "F", "--ttl", "0s", "true",
            ],
            "ttl",
        ),
    ] {
        home.run(arguments).failed(2, words);
    }
    assert_item(&home, "a", "NEW", "");
}
