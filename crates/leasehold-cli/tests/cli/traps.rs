//! Mistakes that must not silently lose protection or data.

use crate::support::{Home, Ran};

/// Prints the body that it received, writes another one, and exits with the code of the first argument.
const JOB: &str = r#"
    echo "[$LEASEHOLD_BODY]"
    "$LEASEHOLD" update "$LEASEHOLD_NAME" "$LEASEHOLD_FENCE" "step 3" >/dev/null
    exit "$0""#;

/// Runs the job, and returns the body that it received.
fn received_body(home: &Home, options: &[&str], code: &str) -> String {
    let rest = ["--", "sh", "-c", JOB, code];
    let ran = home.run(["run", "job"].iter().chain(options).chain(&rest));
    assert_eq!(ran.code, Some(code.parse().unwrap()), "{ran:?}");
    ran.stdout.trim().to_owned()
}

#[test]
fn run_resumes_failed_work_but_not_finished_work() {
    let home = Home::new();
    assert_eq!(received_body(&home, &[], "1"), "[]");
    assert_eq!(received_body(&home, &[], "0"), "[step 3]");
    let shown = home.show("job");
    assert_eq!(
        (&shown["body"], &shown["held"]),
        (&"".into(), &false.into())
    );
    assert_eq!(shown["last"]["how"], "completed");
    assert_eq!(received_body(&home, &["--keep-body"], "0"), "[]");
    assert_eq!(received_body(&home, &[], "0"), "[step 3]");
}

#[test]
fn run_keeps_bodies_that_others_may_need() {
    let home = Home::new();
    assert_eq!(received_body(&home, &["--shared"], "0"), "[]");
    assert_eq!(home.show("job")["body"], "step 3");

    home.run(["put", "item", "--state", "NEW", "--body", "apples"])
        .ok();
    home.run(["run", "item", "--", "true"]).ok();
    assert_eq!(home.show("item")["body"], "apples");

    let fence = home.run(["acquire", "other", "--json"]).json()["fence"].to_string();
    home.run(["update", "other", &fence, "half-way", "--release"])
        .ok();
    home.run(["run", "first", "--also", "other", "--", "true"])
        .ok();
    assert_eq!(home.show("other")["body"], "half-way");
}

#[test]
fn memory_store_is_refused_by_commands_that_it_cannot_protect() {
    let home = Home::new();
    let commands: [&[&str]; 15] = [
        &["run", "job", "--", "touch", "ran"],
        &["gate", "job", "--every", "1m", "--", "touch", "ran"],
        &[
            "work", "NEW", "--next", "A", "--failed", "B", "--", "touch", "ran",
        ],
        &["acquire", "job"],
        &["renew", "job", "1"],
        &["update", "job", "1", "body"],
        &["release", "job", "1"],
        &["break", "job", "--force", "--reason", "x"],
        &["put", "job", "--state", "NEW"],
        &["remove", "job"],
        &["claim", "NEW"],
        &["show", "job"],
        &["list"],
        &["watch"],
        &["purge"],
    ];
    for command in commands {
        let ran = home.run(["--store", "memory:"].iter().chain(command));
        ran.failed(2, "protect nothing")
            .failed(2, "leasehold serve --store memory:");
    }
    assert!(!home.file("ran").exists());
    home.run(["--store", "memory:", "doctor"]).ok();
}

#[test]
fn list_and_doctor_show_the_store() {
    let home = Home::new();
    let path = home.file("data/leasehold/leases.db");
    let store = format!("sqlite:{}", path.display());
    home.run(["list"])
        .failed(0, &format!("nothing to list in {store}"));
    let text = home.run(["doctor"]).ok().stdout;
    let line =
        format!("Store: {store} (the default store of this user; other users have their own)");
    assert!(text.contains(&line), "{text}");
    let answer = home.run(["doctor", "--json"]).json();
    assert_eq!(answer["url"], store);
    let text = home.run(["doctor", "--store", &store]).ok().stdout;
    assert!(text.contains(&format!("Store: {store}\n")), "{text}");
}

#[test]
fn default_store_under_sudo_causes_a_warning() {
    let home = Home::new();
    let list = |store: &[&str]| {
        let mut command = home.command(["list"].iter().chain(store));
        // A user that exists on every machine.
        Ran::from(command.env("SUDO_USER", "daemon").output().unwrap())
    };
    list(&[]).failed(
        0,
        "is not shared with the user daemon, who has a separate one",
    );
    let named = list(&["--store", "sqlite:leases.db"]).ok();
    assert!(!named.stderr.contains("daemon"), "{named:?}");
    let quiet = home.run(["list"]).ok();
    assert!(!quiet.stderr.contains("daemon"), "{quiet:?}");
}
