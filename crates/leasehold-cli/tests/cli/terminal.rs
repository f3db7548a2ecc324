//! Job control on a terminal, which `script` provides.

use crate::support::{Home, LEASEHOLD, Running};

pub(crate) fn on_a_terminal(home: &Home, command: &str) -> Running {
    let mut script = home.program("script");
    script.args(["-q", "-e", "-c", command, "/dev/null"]);
    Running::start(&mut script)
}

#[test]
fn command_can_read_from_the_terminal() {
    let home = Home::new();
    let command =
        format!("{LEASEHOLD} run job -- sh -c 'echo ready; read line; echo got:$line; exit 4'");
    let mut run = on_a_terminal(&home, &command);
    run.expect("ready");
    run.write("hello\n");
    run.expect("got:hello");
    run.ends_with(4);
}

#[test]
fn ctrl_c_interrupts_the_command_and_releases_the_lease() {
    let home = Home::new();
    let script = "trap \"echo interrupted; exit 5\" INT; echo ready; while :; do sleep 0.01; done";
    let mut run = on_a_terminal(&home, &format!("{LEASEHOLD} run job -- sh -c '{script}'"));
    run.expect("ready");
    run.write("\x03");
    run.expect("interrupted");
    run.ends_with(5);
    assert!(!home.is_held("job"));
}

#[test]
fn ctrl_c_ends_the_enclosing_script() {
    let home = Home::new();
    let run = format!("{LEASEHOLD} run job -- sh -c \"echo ready; exec sleep 60\"");
    let mut script = on_a_terminal(
        &home,
        &format!("bash -c 'for i in 1 2; do {run}; echo next; done'"),
    );
    script.expect("ready");
    script.write("\x03");
    let (status, lines) = script.wait();
    assert_eq!(status.code(), Some(130), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("next")), "{lines:?}");
    assert!(!home.is_held("job"));
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let home = Home::new();
    let mut shell = on_a_terminal(&home, "bash --norc --noprofile -i");
    let script = "echo re\"\"ady; read line; echo got:$line";
    shell.write(&format!("{LEASEHOLD} run job -- sh -c '{script}'\n"));
    shell.expect("ready");
    shell.write("\x1a");
    shell.expect("Stopped");
    shell.write("echo sh\"\"ell; fg\n");
    shell.expect("shell");
    shell.write("hello\n");
    shell.expect("got:hello");
    shell.write("exit\n");
    shell.ends_with(0);
    assert!(!home.is_held("job"));
}

#[test]
fn names_and_owners_are_cut_to_the_width_of_the_terminal_only() {
    let home = Home::new();
    let name = "backups/of/a/database/with/a/long/name";
    home.run(["acquire", name, "--owner", "host-1", "--ttl", "1h"])
        .ok();
    let mut list = on_a_terminal(
        &home,
        &format!("sh -c 'stty rows 24 cols 80; {LEASEHOLD} list'"),
    );
    let row = list.expect("backups/").trim_end().to_owned();
    list.ends_with(0);
    assert!(row.contains("…  host-1") && row.contains("in 59m"), "{row}");
    assert!(row.chars().count() <= 80, "{row}");
    // A program that reads a pipe gets all of it, also if standard error is a terminal.
    let cat = format!("sh -c 'stty rows 24 cols 80; {LEASEHOLD} list | cat'");
    let mut piped = on_a_terminal(&home, &cat);
    let row = piped.expect("backups/");
    piped.ends_with(0);
    assert!(row.contains(name) && !row.contains('…'), "{row}");
}
