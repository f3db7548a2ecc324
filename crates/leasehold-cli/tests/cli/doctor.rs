//! `doctor` and `init`: checks and creates the setup of a database.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::support::Home;

fn levels(answer: &Value) -> Vec<&str> {
    let checks = answer["checks"].as_array().unwrap();
    checks
        .iter()
        .map(|check| check["level"].as_str().unwrap())
        .collect()
}

#[test]
fn default_store_is_safe() {
    let home = Home::new();
    let text = home.run(["doctor"]).ok().stdout;
    assert!(text.contains("green   answers in "), "{text}");
    assert!(text.contains("its clock is "), "{text}");
    assert!(text.contains("every commit waits for the disk"), "{text}");
    assert!(!text.contains("red "), "{text}");
}

#[test]
fn checks_that_are_not_green_have_a_fix() {
    let home = Home::new();
    let file = home.file("open.db");
    let store = format!("sqlite:{}", file.display());
    home.run(["init", "--store", &store]).ok();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let answer = home.run(["doctor", "--store", &store, "--json"]).json();
    assert_eq!(answer["store"], "sqlite");
    assert_eq!(answer["level"], "yellow");
    assert!(levels(&answer).contains(&"green"));
    for check in answer["checks"].as_array().unwrap() {
        assert_eq!(check["level"] == "green", check["fix"].is_null(), "{check}");
    }
    let text = home.run(["doctor", "--store", &store]).ok().stdout;
    assert!(
        text.contains(&format!("fix: chmod o= {}", file.display())),
        "{text}"
    );
}

#[test]
fn unusable_store_is_red() {
    let home = Home::new();
    let missing = "sqlite:/missing/folder/leases.db";
    let ran = home.run(["doctor", "--store", missing, "--json"]);
    assert_eq!(ran.code, Some(1));
    let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(answer["level"], "red");
    assert!(
        answer["checks"][0]["what"]
            .as_str()
            .unwrap()
            .contains("mkdir -p")
    );
    let text = home.run(["doctor", "--store", missing]).stdout;
    assert!(text.starts_with("red     "), "{text}");
    home.run(["init", "--store", missing])
        .failed(77, "mkdir -p");
}

#[test]
fn store_that_is_not_a_database_is_an_invalid_argument() {
    let home = Home::new();
    for command in ["doctor", "init"] {
        home.run([command, "--store", "http://127.0.0.1:1"])
            .failed(2, "name the database behind it");
        home.run([command, "--store", "teapot:"])
            .failed(2, "teapot");
    }
}

#[test]
fn init_can_be_repeated() {
    let home = Home::new();
    for _ in 0..2 {
        let answer = home
            .run(["init", "--store", "sqlite:leases.db", "--json"])
            .json();
        assert_eq!(answer["ready"], true);
    }
    assert!(home.file("leases.db").exists());
}
