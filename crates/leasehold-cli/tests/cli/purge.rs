//! `purge`: deletes old, free and empty records, and keeps all others.

use std::process::Command;

use crate::support::Home;

/// Advances the clock of the store by hours.
fn advance_clock(home: &Home, hours: u64) {
    let micros = hours * 3_600_000_000;
    let script = format!(
        "update clock set epoch_us = epoch_us + {micros}, high_water_us = high_water_us + {micros}"
    );
    let status = Command::new("sqlite3")
        .arg(home.file("data/leasehold/leases.db"))
        .arg(script)
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn only_old_free_and_empty_records_are_purged_and_fences_still_grow() {
    let home = Home::new();
    for name in ["old/1", "old/2", "kept/1"] {
        home.run(["run", name, "true"]).ok();
    }
    home.run(["gate", "old/gate", "--every", "1s"]).ok();
    home.run(["put", "old/item", "--state", "NEW"]).ok();
    let fence = home.show("old/1")["fence"].as_u64().unwrap();
    advance_clock(&home, 3);
    home.run(["acquire", "old/held"]).ok();
    home.run(["run", "old/young", "true"]).ok();

    let none = home.run(["purge", "--json"]).json();
    assert_eq!(none["deleted"], 0, "not a day old: {none}");
    let purged = home
        .run(["purge", "--older-than", "2h", "--prefix", "old/", "--json"])
        .json();
    assert_eq!(purged["deleted"], 3, "{purged}");
    let listed = home.run(["list", "--json"]).json();
    let names: Vec<_> = listed["locks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| lock["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["kept/1", "old/held", "old/item", "old/young"]);
    let gates = home.run(["list", "--gates", "--json"]).json();
    assert_eq!(gates["gates"], serde_json::json!([]));

    let text = home.run(["purge", "--older-than", "2h"]).ok().stdout;
    assert!(text.starts_with("deleted 1 of "), "{text}");
    let again = home.run(["acquire", "old/1", "--json"]).json();
    assert!(again["fence"].as_u64().unwrap() > fence);
}

#[test]
fn invalid_input_is_refused() {
    let home = Home::new();
    home.run(["purge", "--older-than", "59m"])
        .failed(2, "under an hour");
    home.run(["purge", "--older-than", "-1h"])
        .failed(2, "invalid duration");
    home.run(["purge", "--store", "http://127.0.0.1:1"])
        .failed(2, "cannot purge through a service");
}
