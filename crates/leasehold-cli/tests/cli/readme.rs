//! Every shell example of README that needs nothing but this machine does what the text around it says.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::service::Service;
use crate::support::{Home, LEASEHOLD, Ran, Running, eventually};

const README: &str = include_str!("../../../../README.md");

/// The shell example of README that contains these words.
#[track_caller]
fn example(words: &str) -> String {
    let blocks = README.split("```sh\n").skip(1);
    let mut blocks = blocks.filter_map(|rest| rest.split("```").next());
    let found = blocks.find(|block| block.contains(words));
    found
        .unwrap_or_else(|| panic!("README has no example with {words:?}"))
        .to_owned()
}

/// The line of that example that contains these words.
#[track_caller]
fn line(block: &str, words: &str) -> String {
    let found = block.lines().find(|line| line.contains(words));
    found
        .unwrap_or_else(|| panic!("README has no line with {words:?}: {block}"))
        .to_owned()
}

/// A user's home, with `leasehold` on the path.
struct User(Home);

impl User {
    fn new() -> Self {
        Self(Home::new())
    }

    /// A script of the user's own.
    fn script(&self, name: &str, text: &str) {
        let file = self.0.file(name);
        std::fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    }

    fn shell(&self, script: &str) -> std::process::Command {
        let programs = Path::new(LEASEHOLD).parent().unwrap().display();
        let path = std::env::var("PATH").unwrap();
        let mut shell = self.0.program("bash");
        shell
            .args(["-c", script])
            .env("PATH", format!("{programs}:{path}"));
        shell
    }

    fn run(&self, script: &str) -> Ran {
        Ran::from(self.shell(script).output().unwrap())
    }

    fn start(&self, script: &str) -> Running {
        // So that signals reach `leasehold` and not a shell around it.
        Running::start(&mut self.shell(&format!("exec {script}")))
    }
}

/// Prints its name, and ends when its input is closed.
const UNTIL_CLOSED: &str = "echo \"$0 runs\"; cat >/dev/null";

#[test]
fn the_first_example_needs_no_set_up() {
    let user = User::new();
    let first = line(&example("cargo run -q"), "cargo run")
        .replace("cargo run -q -p leasehold-cli --", "leasehold");
    assert_eq!(user.run(&first).ok().stdout, "only one of us runs this\n");
    // Started in two shells, the second waits for the first.
    let slow = first.replace("echo", "sh -c 'cat; echo \"$0\"'");
    let mut one = user.start(&slow);
    eventually("the first", || user.0.is_held("hello").then_some(()));
    let mut two = user.start(&slow);
    two.expect("waiting for hello");
    one.close_input();
    one.expect("only one of us runs this");
    two.close_input();
    two.expect("only one of us runs this");
}

#[test]
fn the_second_waits_or_gives_up() {
    let user = User::new();
    user.script("report.sh", UNTIL_CLOSED);
    let block = example("like flock(1)");
    let mut holder = user.start(&line(&block, "like flock"));
    holder.expect("./report.sh runs");
    let mut waiters = ["like flock", "-w 10s"].map(|words| user.start(&line(&block, words)));
    for waiter in &mut waiters {
        waiter.expect("waiting for nightly");
    }
    user.run(&line(&block, "-n --"))
        .failed(75, "nightly is held");
    let listed = user.run(&line(&block, "who holds what")).ok().stdout;
    assert!(listed.contains("nightly"), "{listed}");
    let shown = user.run(&line(&block, "leasehold show")).ok().stdout;
    assert!(shown.contains("nightly"), "{shown}");
    holder.ends_with(0);
}

#[test]
fn four_share_and_both_are_held_or_neither() {
    let user = User::new();
    user.script("train.sh", UNTIL_CLOSED);
    user.script("transfer.sh", UNTIL_CLOSED);
    let block = example("like flock(1)");
    let train = line(&block, "--limit 4");
    let _four = [(); 4].map(|()| {
        let mut running = user.start(&train);
        running.expect("./train.sh runs");
        running
    });
    user.start(&train).expect("waiting for gpu");

    let both = line(&block, "--also bob");
    let mut holder = user.start(&both);
    holder.expect("./transfer.sh runs");
    for name in ["ada", "bob"] {
        assert!(user.0.is_held(name));
    }
    user.start(&both).expect("waiting for ada, bob");
    holder.ends_with(0);
}

#[test]
fn watching_shows_what_happens() {
    let user = User::new();
    let mut watching = user.start(&line(&example("like flock(1)"), "leasehold watch"));
    std::thread::scope(|scope| {
        let seen = scope.spawn(|| watching.expect("nightly"));
        while !seen.is_finished() {
            user.run("leasehold run nightly -- true").ok();
        }
        seen.join().unwrap();
    });
    // Two runs within one look at the store: the end of the second shows.
    for _ in 0..2 {
        user.run("leasehold run nightly -- true").ok();
    }
    let fence = user.0.show("nightly")["fence"].to_string();
    while !watching.expect("completed  nightly").ends_with(&fence) {}
    watching.signal(Signal::SIGINT);
    watching.ends_with(0);
}

#[test]
fn a_failed_job_resumes_where_it_stopped() {
    let user = User::new();
    let job = example("resuming after");
    let first = user.run(&job);
    assert_eq!(first.code, Some(1), "{first:?}");
    assert!(first.stdout.starts_with("resuming after: \n"), "{first:?}");
    let second = user.run(&job);
    assert!(
        second.stdout.starts_with("resuming after: step 3\n"),
        "{second:?}"
    );
    // One that ends with 0 clears the body.
    let last = job.replace("false", "true");
    assert!(
        user.run(&last)
            .ok()
            .stdout
            .starts_with("resuming after: step 3\n")
    );
    assert!(
        user.run(&last)
            .ok()
            .stdout
            .starts_with("resuming after: \n")
    );
}

#[test]
fn a_gate_passes_once_per_period_and_opens_again_if_the_command_fails() {
    let user = User::new();
    let gate = example("leasehold gate");
    user.script("notify.sh", "echo notified; exit 3");
    assert_eq!(user.run(&gate).code, Some(3));
    user.script("notify.sh", "echo notified");
    assert_eq!(user.run(&gate).ok().stdout, "notified\n");
    user.run(&gate).failed(75, "device-42 is shut");
}

#[test]
fn items_move_on_by_exit_code() {
    let user = User::new();
    user.script(
        "pack.sh",
        "read -r fruit; echo \"packing $fruit\"; test \"$fruit\" != stones",
    );
    let block = example("leasehold put order-17");
    let [put, work, claim, list] = [
        "leasehold put",
        "leasehold work",
        "leasehold claim",
        "leasehold list",
    ]
    .map(|words| line(&block, words));
    user.run(&put).ok();
    user.run("leasehold put order-18 --state REQUESTED --body stones")
        .ok();
    let working = user.start(&work);
    let state = |name| user.0.show(name)["state"].clone();
    eventually("both items", || {
        (state("order-17") == "DONE" && state("order-18") == "FAILED").then_some(())
    });
    working.signal(Signal::SIGINT);
    // Four at once, so in any order.
    let lines = working.ends_with(1);
    for body in ["three apples", "stones"] {
        let packed = format!("packing {body}");
        assert!(lines.contains(&packed), "{packed}: {lines:?}");
    }
    let failed = user.run(&list).ok().stdout;
    assert!(
        failed.contains("order-18") && !failed.contains("order-17"),
        "{failed}"
    );

    user.run(&put.replace("17", "19")).ok();
    let claimed: Value = serde_json::from_str(&user.run(&claim).ok().stdout).unwrap();
    assert_eq!(
        (&claimed["name"], &claimed["body"]),
        (&"order-19".into(), &"three apples".into())
    );

    user.run(&line(&block, "once more")).ok();
    let shown = user.0.show("order-17");
    assert_eq!(
        (&shown["state"], &shown["body"]),
        (&"REQUESTED".into(), &"three apples".into())
    );
}

#[test]
fn a_store_is_measured_and_examined() {
    let user = User::new();
    let measure = line(&example("leasehold bench"), "leasehold bench");
    let here = |line: &str| line.replace("redis://localhost", "sqlite:leases.db");
    // Ten seconds each, as it stands there.
    let hasty = here(&measure) + " --for 100ms --warm-up 10ms --names 100";
    let measured = user.run(&hasty).ok().stdout;
    let rows = measured
        .lines()
        .map(|line| line.split_whitespace().next().unwrap_or_default());
    let rows: Vec<_> = rows.take(4).collect();
    assert_eq!(rows, ["TASKS", "1", "16", "64"], "{measured}");
    let held = user.run("leasehold list --held --store sqlite:leases.db");
    assert_eq!(held.ok().stdout, "");

    let examine = line(&example("leasehold doctor"), "leasehold doctor");
    let examined = user.run(&here(&examine)).ok().stdout;
    assert!(examined.contains("Leases are "), "{examined}");
}

#[test]
fn a_service_on_a_network_takes_its_tokens_over_tls() {
    let user = User::new();
    leasehold_testbed::certificates(user.0.path()).unwrap();
    user.script("deploy.sh", "echo deployed");
    let block = example("leasehold token create ci");
    let token = user.run(&line(&block, "token create")).ok().stdout;
    let token = token.trim();
    assert!(token.starts_with("lh_"), "{token}");
    // Tests stay on this machine.
    let serve = line(&block, "leasehold serve").replace("0.0.0.0:12345", "127.0.0.1:0");
    let mut service = user.start(&serve);
    let listening = service.expect("listening on https://");
    let (_, address) = listening.split_once("https://").unwrap();
    let deploy = line(&block, "ci/deploy").replace("db1:12345", address.trim());
    let as_ci = deploy.replace("lh_…", token);
    assert_eq!(user.run(&as_ci).ok().stdout, "deployed\n");
    // Neither without the token nor elsewhere.
    for refused in [
        deploy.replace("LEASEHOLD_TOKEN=lh_… ", ""),
        as_ci.replace("ci/deploy", "other"),
    ] {
        let ran = user.run(&refused);
        assert_eq!((ran.code, &*ran.stdout), (Some(77), ""), "{ran:?}");
    }
    service.signal(Signal::SIGINT);
    service.ends_with(0);
}

/// The default features in a manifest.
fn default_features(manifest: &str) -> Vec<&str> {
    let mut lines = manifest.lines();
    let features = lines.find_map(|line| line.strip_prefix("default = [")?.strip_suffix(']'));
    let features = features.expect("a list of default features");
    let features = features.split(", ");
    features.map(|feature| feature.trim_matches('"')).collect()
}

#[test]
fn default_features_are_those_of_the_library_and_of_the_command() {
    let library = default_features(include_str!("../../../leasehold/Cargo.toml"));
    let library = format!("Its default features are `{}`;", library.join("` and `"));
    assert!(README.contains(&library), "{library}");

    let command = default_features(include_str!("../../Cargo.toml"));
    for row in README.lines().filter(|line| line.starts_with("| [`")) {
        let (scheme, _) = row["| [`".len()..].split_once(':').expect("a URL");
        let build = match scheme == "sqlite" || command.contains(&scheme) {
            true => "yes".to_owned(),
            false => format!("`--features {scheme}`"),
        };
        assert!(row.ends_with(&format!("| {build} |")), "{row}");
    }
}

#[test]
fn the_service_answers_as_shown() {
    let home = Home::new();
    let service = Service::start(&home);
    let address = service.url().replace("http://", "");
    let user = User(home);
    let curl = |line: &str| {
        let line = line.replace("localhost:12345", &address);
        let ran = user.run(&line.replace("curl ", "curl -sS ")).ok();
        serde_json::from_str::<Value>(&ran.stdout).unwrap_or_default()
    };
    let lock = curl(&line(&example("nonce=my-job-17"), "curl"));
    let shown = README
        .split("```json\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let shown: Value = serde_json::from_str(shown).unwrap();
    let keys = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&lock), keys(&shown));
    assert_eq!(
        (&lock["granted"], &lock["ttl"]),
        (&shown["granted"], &shown["ttl"])
    );

    let block =
        example("/heartbeat").replace(&shown["fence"].to_string(), &lock["fence"].to_string());
    let renewed = curl(&line(&block, "/heartbeat"));
    assert!(
        renewed["expireTime"].as_str() > lock["expireTime"].as_str(),
        "{renewed}"
    );
    curl(&line(&block, "step 3"));
    assert_eq!(user.0.show("nightly")["body"], "step 3");
    curl(&line(&block, "DELETE"));
    assert!(!user.0.is_held("nightly"));
    // A repeated nonce gets the lease again at once, with a higher fence.
    let acquire = line(&example("nonce=my-job-17"), "curl");
    let fences = [curl(&acquire), curl(&acquire)].map(|lock| lock["fence"].as_u64().unwrap());
    assert!(fences[0] < fences[1], "{fences:?}");
}
