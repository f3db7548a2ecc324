//! `bench`: short runs, and the records that they leave behind.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::service::Service;
use crate::support::{Home, LEASEHOLD, eventually};
use crate::terminal::on_a_terminal;

/// A short run; how much it measures does not matter here.
const SHORT: [&str; 5] = ["bench", "--for", "150ms", "--warm-up", "50ms"];

/// Returns how many records there are, and how many of them are held.
fn records(home: &Home) -> (usize, usize) {
    let count = |more: &[&str]| {
        let list = ["list", "--json", "--prefix", "leasehold-bench/"];
        let listed = home.run(list.iter().chain(more)).json();
        listed["locks"].as_array().unwrap().len()
    };
    (count(&[]), count(&["--held"]))
}

#[test]
fn bench_prints_measurements_and_releases_its_leases() {
    let home = Home::new();
    let ran = home
        .run(SHORT.iter().chain(&["--tasks", "1,4", "--names", "12"]))
        .ok();
    let lines: Vec<Vec<&str>> = ran
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let head = [
        "TASKS", "CYCLES/S", "P50", "P90", "P99", "P99.9", "MAX", "ERRORS",
    ];
    assert_eq!(lines[0], head, "{ran:?}");
    for (line, tasks) in [(&lines[1], "1"), (&lines[2], "4")] {
        assert_eq!((line[0], line[7]), (tasks, "0"), "{ran:?}");
        assert_ne!(line[1], "0", "{ran:?}");
    }
    assert!(ran.stdout.contains(" cycles of 4 tasks in "), "{ran:?}");
    assert!(ran.stdout.contains('█'), "{ran:?}");
    assert!(
        ran.stderr.contains("writing to the store: 12 names"),
        "{ran:?}"
    );
    assert!(
        !ran.stderr.contains('━'),
        "no bar without a terminal: {ran:?}"
    );
    assert_eq!(records(&home), (12, 0));
}

#[test]
fn progress_is_shown_on_a_terminal() {
    let home = Home::new();
    let command = format!("{LEASEHOLD} {} --names 100", SHORT.join(" "));
    let mut bench = on_a_terminal(&home, &command);
    let bar = bench.expect("cycles/s");
    assert!(bar.contains('━') && bar.contains("64 tasks"), "{bar}");
    bench.ends_with(0);
}

/// Returns the only run of a document, after a check that its numbers are consistent.
fn consistent_run(document: &Value) -> &Value {
    let run = &document["runs"][0];
    let latency = &run["latencyNs"];
    let ranks = ["min", "p50", "p90", "p99", "p99.9", "max"].map(|rank| latency[rank].as_u64());
    assert!(ranks[0] > Some(0) && ranks.is_sorted(), "{document}");
    let rows = run["histogram"].as_array().unwrap();
    let counted: u64 = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
    assert_eq!(Some(counted), run["cycles"].as_u64(), "{document}");
    let rate = run["cycles"].as_f64().unwrap() / run["seconds"].as_f64().unwrap();
    assert!((run["cyclesPerSecond"].as_f64().unwrap() - rate).abs() < 0.01);
    run
}

#[test]
fn json_output_is_one_document() {
    let home = Home::new();
    for store in ["memory:", "sqlite:bench.db"] {
        let options = ["--json", "--store", store, "--tasks", "2", "--prefix", "x/"];
        let ran = home.run(SHORT.iter().chain(&options));
        assert_eq!(ran.stderr, "");
        let document = ran.json();
        let run = consistent_run(&document);
        assert_eq!((&run["tasks"], &run["errors"]), (&json!(2), &json!({})));
        let options = [&document["names"], &document["prefix"], &document["ttl"]];
        assert_eq!(options, [&json!(10_000), &json!("x/"), &json!(30_000)]);
        assert_eq!(document["store"], store.split(':').next().unwrap());
        assert_eq!(document["interrupted"], false);
    }
}

#[test]
fn service_can_be_measured() {
    let home = Home::new();
    let service = Service::start(&home);
    let url = service.url();
    let long = ["bench", "--for", "1h", "--warm-up", "0ms"];
    let options = ["--names", "20", "--tasks", "3", "--store", &url];
    let mut bench = home.start(long.iter().chain(&options));
    // A busy machine may take long to use every name once.
    eventually("a record of each name", || {
        (records(&home).0 == 20).then_some(())
    });
    bench.signal(Signal::SIGINT);
    bench.expect("the service purges");
    bench.ends_with(130);
    assert_eq!(records(&home), (20, 0));
}

#[test]
fn ctrl_c_prints_results_and_releases_all_leases() {
    let home = Home::new();
    let long = ["bench", "--for", "1h", "--warm-up", "0ms", "--json"];
    let bench = home.start(long.iter().chain(&["--names", "100", "--tasks", "8"]));
    eventually("records", || (records(&home).0 == 100).then_some(()));
    bench.signal(Signal::SIGINT);
    let lines = bench.ends_with(130);
    let document: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(document["interrupted"], true);
    consistent_run(&document);
    assert_eq!(records(&home).1, 0);
}

#[test]
fn errors_are_counted_by_problem_type() {
    let home = Home::new();
    home.run(["acquire", "leasehold-bench/1"]).ok();
    let options = ["--json", "--names", "3", "--tasks", "1"];
    let document = home.run(SHORT.iter().chain(&options)).json();
    let run = consistent_run(&document);
    assert!(run["errors"]["held"].as_u64() > Some(0), "{document}");
    assert!(run["cycles"].as_u64() > Some(0), "{document}");
}

#[test]
fn bench_fails_if_every_cycle_fails() {
    let home = Home::new();
    home.run(SHORT.iter().chain(&["--store", "sqlite:no/folder/file.db"]))
        .failed(77, "no/folder");
    home.run(SHORT.iter().chain(&["--store", "http://127.0.0.1:1"]))
        .failed(69, "");
    home.run(["acquire", "leasehold-bench/0"]).ok();
    let options = ["--names", "1", "--tasks", "1", "--json"];
    let ran = home.run(SHORT.iter().chain(&options)).failed(75, "held");
    assert_eq!(ran.stdout, "");
}

#[test]
fn invalid_input_is_refused_before_anything_is_written() {
    let home = Home::new();
    let long = "x".repeat(512);
    for (options, words) in [
        (&["--tasks", "0"][..], "1..=1000"),
        (&["--tasks", "1,many"], "invalid value 'many'"),
        (&["--tasks", "1,9", "--names", "8"], "--names 9"),
        (&["--names", "0"], "1..=1000000"),
        (&["--for", "0s"], "zero time"),
        (&["--for", "soon"], "invalid duration"),
        (&["--ttl", "25h"], "24 hours"),
        (&["--prefix", ""], "the prefix is empty"),
        (&["--prefix", "a\nb"], "control character"),
        (&["--prefix", &long], "at most 512"),
    ] {
        home.run(["bench"].iter().chain(options)).failed(2, words);
    }
    assert_eq!(records(&home).0, 0);
}
