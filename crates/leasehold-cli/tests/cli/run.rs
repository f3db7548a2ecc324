//! `run`: exclusion, environment, exit codes, signals and processes of a command.

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::support::{Home, stat};

/// Runs until its input is closed.
const UNTIL_CLOSED: &str = "echo ready; cat >/dev/null";

#[test]
fn second_run_is_refused_or_waits_while_the_first_holds_the_lease() {
    let home = Home::new();
    let mut holder = home.hold(&["job", "--owner", "me"], UNTIL_CLOSED);

    let shown = home.show("job");
    let since = shown["holders"][0]["acquireTime"].as_str().unwrap();
    let since = since.split(['.', 'Z']).next().unwrap();
    home.run(["run", "job", "-n", "--", "touch", "ran"])
        .failed(75, &format!("job is held by me since {since}Z\n"));
    home.run(["run", "job", "-w", "50ms", "--", "touch", "ran"])
        .failed(75, "job is held by");
    home.run(["run", "job", "-n", "-E", "0", "--", "touch", "ran"])
        .ok();
    home.run(["run", "job", "-n", "-E", "42", "--", "touch", "ran"])
        .failed(42, "held by");
    home.run(["acquire", "job", "-n"]).failed(75, "held by");
    assert!(!home.file("ran").exists());
    home.run(["run", "other", "-n", "--", "true"]).ok();

    let mut waiter = home.start(["run", "job", "--", "echo", "mine"]);
    waiter.expect("waiting for job: held by");
    holder.close_input();
    waiter.expect("mine");
    waiter.ends_with(0);
    holder.ends_with(0);
    assert!(!home.is_held("job"));
}

#[test]
fn shared_lease_is_held_by_at_most_its_limit() {
    let home = Home::new();
    let shared = ["job", "--shared", "--limit", "2"];
    let one = home.hold(&shared, UNTIL_CLOSED);
    let two = home.hold(&shared, UNTIL_CLOSED);
    let third = ["run", "job", "--shared", "--limit", "2", "-n", "true"];
    home.run(third).failed(75, "held");
    home.run(["run", "job", "-n", "true"]).failed(75, "held");
    home.run(["run", "job", "--shared", "--limit", "3", "-n", "true"])
        .failed(2, "limit");
    one.ends_with(0);
    home.run(third).ok();
    two.ends_with(0);
}

#[test]
fn exit_code_is_that_of_the_command() {
    let home = Home::new();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
    ] {
        let ran = home.run(["run", "job", "--", "sh", "-c", script]);
        assert_eq!(ran.code, Some(code), "{script}: {ran:?}");
    }
    home.run(["run", "job", "--", "./missing"])
        .failed(127, "cannot run ./missing: command not found");
    std::fs::write(home.file("text"), "no program").unwrap();
    home.run(["run", "job", "--", "./text"])
        .failed(126, "cannot run ./text: ");
    assert!(!home.is_held("job"));
}

#[test]
fn command_receives_its_lease_and_the_next_one_resumes() {
    let home = Home::new();
    let script = r#"
        printf '%s\n' "$LEASEHOLD_NAME" "$LEASEHOLD_FENCE" "$LEASEHOLD_EXPIRES" "[$LEASEHOLD_BODY]"
        cd / && "$LEASEHOLD" update "$LEASEHOLD_NAME" "$LEASEHOLD_FENCE" 'step 3' >/dev/null"#;
    let store = ["--store", "sqlite:here.db"];
    let mut fences = Vec::new();
    for body in ["[]", "[step 3]"] {
        let ran = home
            .run(
                store
                    .iter()
                    .chain(&["run", "a b", "--keep-body", "--", "sh", "-c", script]),
            )
            .ok();
        let lines: Vec<_> = ran.stdout.lines().collect();
        assert_eq!((lines[0], lines[3]), ("a b", body));
        fences.push(lines[1].parse::<u64>().unwrap());
        lines[2].parse::<jiff::Timestamp>().unwrap();
    }
    assert!(fences[0] < fences[1], "{fences:?}");
    assert!(home.file("here.db").exists());
}

#[test]
fn body_that_a_variable_cannot_represent_is_omitted() {
    let home = Home::new();
    let acquired = home.run(["acquire", "job", "--json"]).json();
    let fence = acquired["fence"].to_string();
    let mut update = home.start(["update", "job", &fence, "-", "--release"]);
    update.write("a\0b");
    update.ends_with(0);
    let script = r#"echo "${LEASEHOLD_BODY-none}""#;
    let mut run = home.command(["run", "job", "--keep-body", "--", "sh", "-c", script]);
    let output = run.env("LEASEHOLD_BODY", "of another").output().unwrap();
    assert_eq!(output.stdout, b"none\n");
    assert_eq!(home.show("job")["body"], "a\0b");
}

#[test]
fn default_store_is_private_to_its_user() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    home.run(["run", "job", "true"]).ok();
    let folder = home.file("data/leasehold");
    let mode = folder.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert!(folder.join("leases.db").exists());
}

#[test]
fn signals_are_forwarded_to_the_command() {
    let home = Home::new();
    for signal in ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"] {
        let script = format!(
            "trap 'echo got {signal}; exit 3' {signal}; echo ready; while :; do sleep 0.01; done"
        );
        let mut run = home.hold(&["job"], &script);
        run.signal(format!("SIG{signal}").parse::<Signal>().unwrap());
        run.expect(&format!("got {signal}"));
        run.ends_with(3);
        assert!(!home.is_held("job"), "{signal}");
    }
}

#[test]
fn ignored_signals_stay_ignored_in_the_command() {
    let home = Home::new();
    let mut nohup = home.program("sh");
    nohup.args([
        "-c",
        r#"trap '' HUP; exec "$LEASEHOLD" run job -- sh -c 'kill -HUP $$; echo alive'"#,
    ]);
    let output = nohup.output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "alive\n");
    assert!(output.status.success());
}

#[test]
fn closed_outputs_are_not_an_error() {
    let home = Home::new();
    for arguments in [
        &["--store", "oracle:", "run", "job", "true"][..],
        &["list", "--limit", "x"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = home.command(arguments).stderr(writer).status().unwrap();
        assert_eq!(status.code(), Some(2), "{arguments:?}");
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    home.run(["acquire", "job"]).ok();
    let status = home.command(["list"]).stdout(writer).status().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn interrupted_waiter_leaves_nothing_behind() {
    let home = Home::new();
    let holder = home.hold(&["job"], UNTIL_CLOSED);
    let mut waiter = home.start(["run", "job", "--", "touch", "ran"]);
    waiter.expect("waiting for job");
    waiter.signal(Signal::SIGINT);
    waiter.ends_with(130);
    holder.ends_with(0);
    home.run(["run", "job", "-n", "--", "true"]).ok();
    assert!(!home.file("ran").exists());
}

#[test]
fn processes_left_behind_are_ended_before_the_release() {
    let home = Home::new();
    // The first process ends on TERM; the second ignores TERM and has to be killed.
    for ignore in ["", "trap '' TERM; "] {
        let script = format!("({ignore}while :; do sleep 0.01; done) >/dev/null & echo $!; exit 5");
        let ran = home.run(["run", "job", "--ttl", "2s", "--", "sh", "-c", &script]);
        assert_eq!(ran.code, Some(5), "{ran:?}");
        let left = Pid::from_raw(ran.stdout.trim().parse().unwrap());
        assert_eq!(stat(left), None);
        assert!(!home.is_held("job"));
    }
}

#[test]
fn command_inherits_the_setting_of_huge_pages() {
    let home = Home::new();
    let setting = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("THP_enabled"));
        line.map(str::to_owned)
    };
    let nested = "$LEASEHOLD run job --nested -- grep THP_enabled /proc/self/status";
    for arguments in [
        &[
            "run",
            "job",
            "--",
            "grep",
            "THP_enabled",
            "/proc/self/status",
        ][..],
        &["run", "job", "-c", nested],
        &[
            "gate",
            "alert",
            "--every",
            "1ms",
            "--",
            "grep",
            "THP_enabled",
            "/proc/self/status",
        ],
    ] {
        let ran = home.run(arguments);
        let printed = ran.stdout.lines().next().map(str::to_owned);
        assert_eq!(printed, setting(), "{arguments:?}");
    }
}

#[test]
fn daemons_of_the_command_leave_no_zombies() {
    let home = Home::new();
    // Three processes outside of the group lose their parent, and then end.
    let script =
        "for i in 1 2 3; do (setsid sh -c 'echo orphan' &); done; echo ready; cat >/dev/null";
    let mut run = home.start(["run", "job", "--", "sh", "-c", script]);
    for _ in 0..3 {
        run.expect("orphan");
    }
    let zombies = || {
        let stats = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let stat = std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
            Some(stat.rsplit_once(") ")?.1.to_owned())
        });
        let zombie = format!("Z {} ", run.pid());
        stats.filter(|stat| stat.starts_with(&zombie)).count()
    };
    crate::support::eventually("the end of all zombies", || (zombies() == 0).then_some(()));
    run.ends_with(0);
}

#[test]
fn lease_is_renewed_while_the_command_runs() {
    let home = Home::new();
    // Long enough for a disk that occasionally takes most of a second.
    let mut holder = home.hold(&["job", "--ttl", "3s"], UNTIL_CLOSED);
    let first = home.show("job")["holders"][0].clone();
    let expires = |holder: &serde_json::Value| holder["expireTime"].as_str().unwrap().to_owned();
    crate::support::eventually("a third renewal", || {
        let now = home.show("job")["holders"][0].clone();
        assert_eq!(now["fence"], first["fence"]);
        let ahead = expires(&now).parse::<jiff::Timestamp>().unwrap()
            - expires(&first).parse::<jiff::Timestamp>().unwrap();
        (ahead.get_milliseconds() + ahead.get_seconds() * 1000 > 3_000).then_some(())
    });
    holder.close_input();
    holder.ends_with(0);
}
