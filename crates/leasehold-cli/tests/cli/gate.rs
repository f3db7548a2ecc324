//! `gate`: at most once per period.

use nix::sys::signal::Signal;

use crate::support::Home;

#[test]
fn gate_is_passed_once_per_period() {
    let home = Home::new();
    let gate = ["gate", "alert", "--every", "1h"];
    let script = r#"echo "$LEASEHOLD_GATE" "$LEASEHOLD_GATE_FENCE""#;
    let act = ["--", "sh", "-c", script];
    let passed = home.run(gate.iter().chain(&act)).ok().stdout;
    let (id, fence) = passed.trim().split_once(' ').unwrap();
    assert_eq!(id, "alert");
    let refused = home
        .run(gate.iter().chain(&act))
        .failed(75, "alert is shut for another 59m");
    assert_eq!(refused.stdout, "");
    home.run(gate.iter().chain(&["-E", "0", "--", "touch", "ran"]))
        .ok();
    home.run(gate).failed(75, "is shut");
    let problem = home.run(gate.iter().chain(&["--json"])).failed(75, "");
    let problem: serde_json::Value = serde_json::from_str(&problem.stderr).unwrap();
    assert_eq!(problem["type"], "throttled");
    assert!(problem["retryAfter"].is_u64(), "{problem}");
    assert!(!home.file("ran").exists());

    let shown = home.run(["show", "--gate", "alert", "--json"]).json();
    assert_eq!(
        (&shown["held"], &shown["fence"].to_string()[..]),
        (&true.into(), fence)
    );
    let text = home.run(["show", "--gate", "alert"]).ok().stdout;
    assert!(text.starts_with("alert is shut for another 59m"), "{text}");
    assert!(home.run(["list", "--gates"]).ok().stdout.contains("alert"));
    // A lease of the same name is independent of the gate.
    assert_eq!(
        home.run(["list", "--json"]).json()["locks"],
        serde_json::json!([])
    );
    home.run(["run", "alert", "-n", "true"]).ok();
}

#[test]
fn gate_without_a_command_passes_or_fails() {
    let home = Home::new();
    let passed = home
        .run(["gate", "--every", "1ms", "--json", "--", "-x"])
        .json();
    assert_eq!(passed["name"], "-x");
    assert!(passed["expireTime"].is_string(), "{passed}");
    // The period of a millisecond is over before the next process starts.
    let again = home
        .run(["gate", "--every", "1h", "--json", "--", "-x"])
        .json();
    assert!(again["fence"].as_u64() > passed["fence"].as_u64());
    home.run(["gate", "--every", "1h", "--", "-x", "touch", "ran"])
        .failed(75, "-x is shut");
}

#[test]
fn shut_gate_can_be_opened_by_hand() {
    let home = Home::new();
    let pass = ["gate", "alert", "--every", "1h"];
    home.run(pass).ok();
    home.run(pass).failed(75, "alert is shut");
    let opened = home.run(["gate", "alert", "--reopen"]).ok().stdout;
    assert_eq!(opened, "opened alert\n");
    let again = home.run(["gate", "alert", "--reopen"]).ok().stdout;
    assert_eq!(again, "alert is open already\n");
    home.run(pass).ok();
    let json = home.run(["gate", "alert", "--reopen", "--json"]).json();
    assert_eq!(json["broken"], true);
    home.run(["gate", "alert", "--reopen", "--every", "1h"])
        .failed(2, "cannot be used with");
    home.run(["gate", "alert"]).failed(2, "--every <TIME>");
}

#[test]
fn failed_command_reopens_the_gate() {
    let home = Home::new();
    let gate = ["gate", "alert", "--every", "1h"];
    let open = || {
        let text = home.run(["show", "--gate", "alert"]).stdout;
        text.starts_with("alert is open")
    };
    assert!(open());
    let fail = gate.iter().chain(&["--", "sh", "-c", "exit 7"]);
    home.run(fail.clone()).failed(7, "");
    assert!(open());
    home.run(gate.iter().chain(&["--", "./missing"]))
        .failed(127, "cannot run ./missing: command not found");
    assert!(open());
    home.run(gate.iter().chain(&["--no-reopen", "--", "false"]))
        .failed(1, "");
    assert!(!open());
    home.run(fail).failed(75, "is shut");
}

#[test]
fn killed_command_leaves_the_gate_shut() {
    let home = Home::new();
    for (id, signal) in [("a", Signal::SIGTERM), ("b", Signal::SIGKILL)] {
        let forever = "echo ready; read line";
        let mut gate = home.start(["gate", id, "--every", "1h", "--", "sh", "-c", forever]);
        gate.expect("ready");
        gate.signal(signal);
        if signal == Signal::SIGTERM {
            gate.expect("a stays shut: a signal ended its command");
            gate.ends_with(143);
        } else {
            gate.wait();
        }
        home.run(["gate", id, "--every", "1h"])
            .failed(75, "is shut");
    }
    home.run(["gate", "c", "--every", "1h", "--", "sh", "-c", "kill -9 $$"])
        .failed(137, "c stays shut");
}

#[test]
fn invalid_input_is_refused() {
    let home = Home::new();
    for (arguments, words) in [
        (&["gate", "alert"][..], "--every"),
        (&["gate", "--every", "1s"], "required"),
        (&["gate", "", "--every", "1s"], "the name is empty"),
        (&["gate", "alert", "--every", "0s", "true"], "period"),
        (&["gate", "alert", "--every", "4000d", "true"], "10 years"),
        (&["gate", "alert", "--every", "often"], "invalid duration"),
        (&["list", "--gates", "--state", "NEW"], "cannot be used"),
    ] {
        home.run(arguments).failed(2, words);
    }
    assert_eq!(
        home.run(["list", "--gates", "--json"]).json()["gates"],
        serde_json::json!([])
    );
}
