//! The examples of README do what the text around them says.

use serde_json::Value;

use crate::pages::{Page, User, keys};
use crate::service::Service;
use crate::support::{Home, eventually};

fn readme() -> Page {
    Page::read("README.md")
}

#[test]
fn the_first_example_needs_no_set_up() {
    let user = User::new();
    let first = readme()
        .line("cargo run -q")
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
fn the_lock_in_the_shell_waits_for_its_turn() {
    let user = User::new();
    user.script("report.sh", "echo \"$0 runs\"; cat >/dev/null");
    let run = readme().line("leasehold run nightly");
    let mut holder = user.start(&run);
    holder.expect("./report.sh runs");
    let mut waiter = user.start(&run);
    waiter.expect("waiting for nightly");
    holder.ends_with(0);
    waiter.expect("./report.sh runs");
    waiter.ends_with(0);
}

#[test]
fn readme_is_short() {
    assert!(readme().text.lines().count() <= 200);
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
    let readme = readme().text;
    let library = default_features(include_str!("../../../leasehold/Cargo.toml"));
    let library = format!("Its default features are `{}`;", library.join("` and `"));
    assert!(readme.contains(&library), "{library}");

    let command = default_features(include_str!("../../Cargo.toml"));
    for row in readme.lines().filter(|line| line.starts_with("| [`")) {
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
    let page = readme();
    let home = Home::new();
    let service = Service::start(&home);
    let user = User(home);
    let curl = |line: &str| {
        let line = line.replace("localhost:12345", &service.address);
        let ran = user.run(&line.replace("curl ", "curl -sS ")).ok();
        serde_json::from_str::<Value>(&ran.stdout).unwrap_or_default()
    };
    let lock = curl(&page.line("nonce=my-job-17"));
    let blocks = page.blocks();
    let shown = blocks
        .iter()
        .find(|block| block.language == "json")
        .unwrap();
    let shown: Value = serde_json::from_str(shown.text).unwrap();
    assert_eq!(keys(&lock), keys(&shown));
    assert_eq!(
        (&lock["granted"], &lock["ttl"]),
        (&shown["granted"], &shown["ttl"])
    );

    let with_fence = |words| {
        page.line(words)
            .replace(&shown["fence"].to_string(), &lock["fence"].to_string())
    };
    let renewed = curl(&with_fence("/heartbeat"));
    assert!(
        renewed["expireTime"].as_str() > lock["expireTime"].as_str(),
        "{renewed}"
    );
    curl(&with_fence("DELETE"));
    assert!(!user.0.is_held("nightly"));
    // A repeated nonce gets the lease again at once, with a higher fence.
    let acquire = page.line("nonce=my-job-17");
    let fences = [curl(&acquire), curl(&acquire)].map(|lock| lock["fence"].as_u64().unwrap());
    assert!(fences[0] < fences[1], "{fences:?}");
}
