//! `run --also`: several leases, all or none.

use crate::support::Home;

const UNTIL_CLOSED: &str = "echo ready; cat >/dev/null";

#[test]
fn all_leases_are_held_or_none() {
    let home = Home::new();
    let bob = home.hold(&["bob"], UNTIL_CLOSED);
    let transfer = ["run", "eve", "--also", "bob", "--also", "ada"];
    home.run(transfer.iter().chain(&["-n", "--", "touch", "ran"]))
        .failed(75, "one of eve, bob, ada is held by");
    home.run(
        transfer
            .iter()
            .chain(&["-w", "50ms", "-E", "3", "--", "true"]),
    )
    .failed(3, "waiting for eve, bob, ada: held by");
    assert!(!home.file("ran").exists());
    for name in ["ada", "eve"] {
        assert!(!home.is_held(name), "{name}");
    }

    let waiting = ["--", "sh", "-c", UNTIL_CLOSED];
    let mut both = home.start(transfer.iter().chain(&waiting));
    both.expect("waiting for eve, bob, ada");
    bob.ends_with(0);
    both.expect("ready");
    for name in ["ada", "bob", "eve"] {
        home.run(["acquire", name, "-n"]).failed(75, "held");
    }
    both.ends_with(0);
    for name in ["ada", "bob", "eve"] {
        assert!(!home.is_held(name), "{name}");
    }
}

#[test]
fn command_receives_every_fence() {
    let home = Home::new();
    let script = r#"echo "$LEASEHOLD_NAME $LEASEHOLD_FENCE"; echo "$LEASEHOLD_FENCES""#;
    // A name that is given twice is held once.
    let run = ["run", "b", "--also", "a", "--also", "b", "sh", "-c", script];
    let output = home.run(run).ok().stdout;
    let (first, second) = output.trim().split_once('\n').unwrap();
    let fences: serde_json::Value = serde_json::from_str(second).unwrap();
    assert_eq!(first, format!("b {}", fences["b"]));
    assert_eq!(fences["a"], home.show("a")["fence"]);
    assert_eq!(fences.as_object().unwrap().len(), 2);

    let mut single = home.command(["run", "b", "sh", "-c", "echo ${LEASEHOLD_FENCES-none}"]);
    let output = single.env("LEASEHOLD_FENCES", "{}").output().unwrap();
    assert_eq!(output.stdout, b"none\n");
}

#[test]
fn command_is_ended_when_one_of_its_leases_is_lost() {
    let home = Home::new();
    let forever = "echo ready; while :; do sleep 0.01; done";
    let mut run = home.hold(&["a", "--also", "b", "--ttl", "2s"], forever);
    home.run(["break", "b", "--force", "--reason", "maintenance"])
        .ok();
    run.expect("lost one of a, b, and its command was ended");
    run.ends_with(76);
    assert!(!home.is_held("a"));
}

#[test]
fn invalid_input_is_refused() {
    let home = Home::new();
    for (arguments, words) in [
        (&["run", "a", "--also", "", "true"][..], "the name is empty"),
        (
            &["run", "a", "--also", "b", "--shared", "true"],
            "cannot be used",
        ),
        (&["run", "a", "--also", "b", "--ttl", "0s", "true"], "ttl"),
    ] {
        home.run(arguments).failed(2, words);
    }
}
