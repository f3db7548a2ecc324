//! `work`: a command for each item, and where the item goes.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::support::{Home, LEASEHOLD, Ran, Running, eventually, stat};

const STATES: [&str; 6] = ["work", "NEW", "--next", "DONE", "--failed", "FAILED"];

/// A `work` with these options, and a shell script as the command.
fn work<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let command = ["--", "sh", "-c", script];
    [&STATES, options, &command].concat()
}

fn put(home: &Home, name: &str, body: &str) {
    home.run(["put", name, "--state", "NEW", "--body", body])
        .ok();
}

/// State, body, and whether somebody has it.
#[track_caller]
fn item(home: &Home, name: &str, state: &str, body: &str) {
    let shown = home.show(name);
    let found = (&shown["state"], &shown["body"], &shown["held"]);
    assert_eq!(found, (&state.into(), &body.into(), &false.into()));
}

/// Says that it works on an item, and does until there is a file `go`.
const UNTIL_GO: &str =
    "echo at $LEASEHOLD_NAME; while ! test -e go; do sleep 0.01; done; echo over";
/// …and never ends by itself.
const FOREVER: &str = "echo at $LEASEHOLD_NAME $$; while :; do sleep 0.01; done";

#[test]
fn each_item_goes_to_the_command_and_moves_on_by_its_exit_code() {
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
        "in a log, only trouble: {ran:?}"
    );
    item(&home, "good", "DONE", "line 1\nline 2\n");
    item(&home, "bad", "FAILED", "x");
    item(&home, "killed", "FAILED", "kill");
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
fn what_a_command_prints_can_be_the_new_body() {
    let home = Home::new();
    put(&home, "a", "apples");
    let shout = [
        &STATES[..],
        &["--drain", "--output", "--", "tr", "a-z", "A-Z"],
    ]
    .concat();
    assert_eq!(home.run(shout).ok().stdout, "");
    item(&home, "a", "DONE", "APPLES");

    // Also what no body can be, and what is printed before a failure.
    for (script, words) in [
        ("head -c 1000000 /dev/zero", "more than 65536 bytes"),
        (r"printf '\351'", "not UTF-8"),
        ("echo half; exit 3", "exit code 3"),
    ] {
        put(&home, "b", "as it was");
        home.run(work(&["--drain", "--output"], script))
            .failed(1, words);
        item(&home, "b", "FAILED", "as it was");
    }
    put(&home, "c", "");
    let clear = [
        "work", "NEW", "--next", "", "--failed", "F", "--drain", "true",
    ];
    home.run(clear).ok();
    assert_eq!(home.show("c")["state"], serde_json::Value::Null);
}

#[test]
fn as_many_commands_run_at_once_as_wanted() {
    let home = Home::new();
    for name in ["a", "b", "c", "d", "e"] {
        put(&home, name, "");
    }
    // Each waits for two others, so it ends only if three run at once.
    let script = "echo >>started; while test $(wc -l <started) -lt 3; do sleep 0.01; done";
    let ran = home.run(work(&["--drain", "--parallel", "3"], script)).ok();
    assert!(ran.stderr.contains("5 done, 0 failed"), "{ran:?}");
}

#[test]
fn it_waits_for_items_and_what_runs_may_finish() {
    let home = Home::new();
    let mut working = home.start(work(&[], UNTIL_GO));
    put(&home, "a", "");
    working.expect("at a");
    working.signal(Signal::SIGINT);
    working.expect("one item finishes, then it ends");
    put(&home, "b", "");
    std::fs::write(home.file("go"), "").unwrap();
    working.expect("over");
    working.expect("1 done, 0 failed");
    working.ends_with(0);
    item(&home, "a", "DONE", "");
    item(&home, "b", "NEW", "");

    let idle = home.start(work(&[], "true"));
    eventually("the other item", || {
        (home.show("b")["state"] == "DONE").then_some(())
    });
    idle.signal(Signal::SIGTERM);
    idle.ends_with(0);
}

#[test]
fn a_second_signal_ends_what_runs_and_gives_it_back() {
    let home = Home::new();
    put(&home, "a", "");
    let mut working = home.start(work(&[], FOREVER));
    working.expect("at a");
    working.signal(Signal::SIGINT);
    working.expect("one item finishes");
    working.signal(Signal::SIGTERM);
    working.expect("a is given back");
    working.ends_with(143);
    item(&home, "a", "NEW", "");
}

#[test]
fn a_command_that_cannot_be_run_costs_no_items() {
    let home = Home::new();
    put(&home, "a", "");
    put(&home, "b", "");
    let missing = [&STATES[..], &["--parallel", "2", "--", "./missing"]].concat();
    home.run(missing)
        .failed(127, "./missing: there is no such command");
    for name in ["a", "b"] {
        item(&home, name, "NEW", "");
    }
}

#[test]
fn a_command_whose_claim_is_taken_away_is_ended() {
    let home = Home::new();
    put(&home, "a", "");
    let mut working = home.start(work(&["--ttl", "2s"], FOREVER));
    let pid = process(&mut working);
    let force = ["break", "a", "--force", "--reason", "maintenance"];
    home.run(force).ok();
    working.expect("a is lost after");
    assert_eq!(stat(pid), None);
    assert_eq!(home.show("a")["state"], "NEW");
    // Nobody else holds it, so it is there to be claimed again.
    let pid = process(&mut working);
    working.signal(Signal::SIGINT);
    working.expect("one item finishes");
    working.signal(Signal::SIGINT);
    working.ends_with(130);
    assert_eq!(stat(pid), None);
}

/// The process that works on item `a`.
fn process(working: &mut Running) -> Pid {
    let line = working.expect("at a ");
    let pid = line.trim_start_matches("at a ");
    Pid::from_raw(pid.parse().unwrap())
}

#[test]
fn what_a_killed_worker_had_goes_to_another_once_its_command_is_ended() {
    let home = Home::new();
    put(&home, "a", "");
    let mut working = home.start(work(&["--ttl", "2s"], FOREVER));
    let pid = process(&mut working);
    let first = home.show("a")["fence"].as_u64().unwrap();
    working.signal(Signal::SIGKILL);
    working.wait();
    let alive = format!("test -e /proc/{pid} && grep -qv Z /proc/{pid}/stat && echo alive; exit 0");
    let mut next = home.start(work(&[], &format!("echo at a $$; {alive}")));
    process(&mut next);
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
fn a_store_that_is_away_for_a_while_ends_nothing() {
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
    working.expect("trying again until the store answers");
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
fn on_a_terminal_there_is_a_line_for_each_item() {
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
fn bad_input_is_refused_and_changes_nothing() {
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
            "--next is NEW itself",
        ),
        (
            &["work", "NEW", "--next", "D", "--failed", "NEW", "true"],
            "--failed is NEW itself",
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
    item(&home, "a", "NEW", "");
}
