//! Invalid input is refused with a clear message and an exit code, and changes nothing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::support::Home;

#[test]
fn invalid_arguments_are_refused_and_change_nothing() {
    let home = Home::new();
    let long_name = "x".repeat(600);
    let long_nonce = "x".repeat(65);
    let long_state = "x".repeat(65);
    let long_owner = "x".repeat(129);
    let cases: &[(&[&str], &str)] = &[
        (&[], "Usage"),
        (&["fly"], "unrecognized subcommand"),
        (&["run"], "required"),
        (&["run", "job"], "required"),
        (&["run", "", "true"], "the name is empty"),
        (&["run", &long_name, "true"], "600 bytes"),
        (&["run", "line\nbreak", "true"], "control character"),
        (&["run", "job", "--ttl", "0s", "true"], "ttl"),
        (&["run", "job", "--ttl", "-5s", "true"], "invalid duration"),
        (
            &["run", "job", "--ttl", "banana", "true"],
            "invalid duration",
        ),
        (&["run", "job", "--ttl", "25h", "true"], "maximum"),
        (&["run", "job", "--ttl", "30x", "true"], "invalid duration"),
        (&["run", "job", "-w", "soon", "true"], "invalid duration"),
        (&["run", "job", "-n", "-w", "1s", "true"], "cannot be used"),
        (&["run", "job", "-E", "300", "true"], "300"),
        (&["run", "job", "--limit", "3", "true"], "--shared"),
        (&["run", "job", "--shared", "--limit", "0", "true"], "limit"),
        (
            &["run", "job", "--shared", "--limit", "257", "true"],
            "limit",
        ),
        (&["run", "job", "--owner", &long_owner, "true"], "owner"),
        (&["run", "job", "--fly", "true"], "--fly"),
        (&["acquire", "job", "--nonce", ""], "nonce"),
        (&["acquire", "job", "--nonce", &long_nonce], "65 characters"),
        (&["acquire", "job", "--fence", "1"], "--nonce"),
        (&["acquire", "job", "--ttl", "0s"], "ttl"),
        (&["renew", "job"], "required"),
        (&["renew", "job", "first"], "a fence is a whole number"),
        (&["renew", "job", "-1"], ""),
        (
            &["renew", "job", "9007199254740992"],
            "a fence is a whole number",
        ),
        (&["renew", "job", "1", "--ttl", "0s"], "ttl"),
        (&["update", "job", "1"], "required"),
        (&["update", "job", "1", "--state", &long_state], "65 bytes"),
        (&["release", "job"], "required"),
        (&["release", "job", "1", "--nonce", "n"], "cannot be used"),
        (&["break", "job"], "required"),
        (&["break", "job", "--force"], "--reason"),
        (&["break", "job", "--fence", "1", "--now"], "--force"),
        (&["show", ""], "the name is empty"),
        (&["list", "--held", "--free"], "cannot be used"),
        (&["serve", "--listen", "nowhere"], "nowhere"),
        (&["serve", "--purge-after", "59m"], "under an hour"),
        (&["serve", "--purge-after", "-1h"], "invalid duration"),
        (
            &["serve", "--store", "http://127.0.0.1:1"],
            "cannot serve another service",
        ),
        (&["completions", "cobol"], "cobol"),
    ];
    for (arguments, words) in cases {
        let ran = home.run(*arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
        assert_eq!(ran.stdout, "", "{arguments:?}");
        assert!(ran.stderr.contains(words), "{arguments:?}: {ran:?}");
    }
    let listed = home.run(["list", "--json"]).json();
    assert_eq!(listed["locks"].as_array().unwrap().len(), 0, "{listed}");
}

#[test]
fn invalid_number_of_threads_is_refused() {
    let home = Home::new();
    for threads in ["", "0", "two", "1025"] {
        let mut show = home.command(["show", "job"]);
        let output = show.env("TOKIO_WORKER_THREADS", threads).output().unwrap();
        crate::support::Ran::from(output).failed(2, "give a number from 1 to 1024");
    }
}

#[test]
fn name_that_is_not_utf_8_is_refused() {
    let home = Home::new();
    let name = OsStr::from_bytes(b"caf\xe9");
    home.run([OsStr::new("show"), name]).failed(2, "UTF-8");
}

#[test]
fn body_that_is_too_long_or_not_text_changes_nothing() {
    let home = Home::new();
    let fence = home.run(["acquire", "job", "--json"]).json()["fence"].to_string();
    home.run(["update", "job", &fence, "as it was"]).ok();
    for (body, words) in [
        (vec![b'x'; 70 * 1024], "65536 bytes"),
        (b"caf\xe9".to_vec(), "UTF-8"),
    ] {
        std::fs::write(home.file("body"), body).unwrap();
        let mut update = home.command(["update", "job", &fence, "-"]);
        let output = update
            .stdin(std::fs::File::open(home.file("body")).unwrap())
            .output()
            .unwrap();
        crate::support::Ran::from(output).failed(2, words);
    }
    let argument = "x".repeat(70 * 1024);
    home.run(["update", "job", &fence, &argument])
        .failed(2, "65536");
    assert_eq!(home.show("job")["body"], "as it was");
}

#[test]
fn invalid_stores_are_refused_with_one_line() {
    let home = Home::new();
    let text = "this is a text file and not a database: ".repeat(100);
    std::fs::write(home.file("text.db"), &text).unwrap();
    std::fs::create_dir(home.file("folder.db")).unwrap();
    for (url, code, words) in [
        ("leases.db", 2, "no scheme"),
        ("oracle:leases", 2, "unknown scheme `oracle:`"),
        ("sqlite:", 2, "path"),
        ("sqlite:text.db", 77, "not a SQLite database"),
        ("sqlite:folder.db", 77, "folder.db"),
        ("sqlite:/proc/leases.db", 77, "/proc/leases.db"),
        ("sqlite:no/such/folder/leases.db", 77, "no/such/folder"),
        ("http://127.0.0.1:1", 69, ""),
    ] {
        for arguments in [
            &["run", "job", "-n", "--", "touch", "ran"][..],
            &["show", "job"],
        ] {
            let ran = home
                .run(["--store", url].iter().chain(arguments))
                .failed(code, words);
            assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
            assert!(ran.stderr.starts_with("leasehold: "), "{ran:?}");
        }
        let ran = home
            .run(["--store", url, "show", "job", "--json"])
            .failed(code, words);
        let problem: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
        assert!(problem["detail"].is_string(), "{problem}");
    }
    assert!(!home.file("ran").exists());
    assert_eq!(std::fs::read_to_string(home.file("text.db")).unwrap(), text);
}

#[test]
fn folder_that_cannot_be_created_is_an_error() {
    let home = Home::new();
    std::fs::write(home.file("data"), "in the way").unwrap();
    home.run(["show", "job"])
        .failed(77, "cannot create the folder");
}
