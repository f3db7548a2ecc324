//! Passwords and tokens appear in no error, and no child command receives them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use crate::service::Service;
use crate::support::{Home, Ran};
use crate::token;

/// Writes a file with this text and mode, and returns its path and the `@FILE` argument for it.
fn file(home: &Home, name: &str, text: &str, mode: u32) -> (PathBuf, String) {
    let path = home.file(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    let argument = format!("@{}", path.display());
    (path, argument)
}

fn assert_no_secret(ran: &Ran) {
    for output in [&ran.stdout, &ran.stderr] {
        assert!(!output.contains("s3cret"), "{ran:?}");
    }
}

#[test]
fn errors_do_not_contain_the_secrets_of_a_url() {
    let home = Home::new();
    for url in [
        "http://app:s3cret@127.0.0.1:1",
        "http://lh_s3cret@127.0.0.1:1",
        "http://127.0.0.1:1?token=s3cret",
        "http://127.0.0.1:1#s3cret",
        "https://127.0.0.1:1?lh_s3cret",
        "https://app:x?s3cret@127.0.0.1:1",
        "sqlite://app:s3cret@db1/leases",
        "sqlite:leases.db?key=s3cret",
        "memory:s3cret",
        "redis://:s3cret@127.0.0.1:1",
        "redis://:a?s3cret@127.0.0.1:1",
        "redis://127.0.0.1:1/0#s3cret",
        "postgres://app:s3cret@127.0.0.1:1/app",
        "postgres://app:a?s3cret@127.0.0.1:1/app",
        "postgers://app:s3cret@127.0.0.1:1/app",
    ] {
        for command in [
            &["list"][..],
            &["doctor"],
            &["serve", "--listen", "127.0.0.1:0"],
        ] {
            for json in [&[][..], &["--json"]] {
                let ran = home.run([command, json, &["--store", url]].concat());
                assert_ne!(ran.code, Some(0), "{url}: {ran:?}");
                assert_no_secret(&ran);
            }
        }
    }
    for given in ["sqlite://app:s3cret@db1/leases", "http://s3cret@db1"] {
        home.run(["list", "--store", given]).failed(2, "…@db1");
    }
    home.run(["list", "--store", "redis://db1/0#s3cret"])
        .failed(2, "%23");
}

#[test]
fn store_and_token_can_come_from_files() {
    let home = Home::new();
    let (_, store) = file(&home, "store", "sqlite:mine.db\n", 0o600);
    home.run(["put", "item", "--state", "NEW", "--store", &store])
        .ok();
    let mut list = home.command(["list", "--json"]);
    let listed = Ran::from(list.env("LEASEHOLD_STORE", &store).output().unwrap());
    assert!(listed.stderr.is_empty(), "{listed:?}");
    assert_eq!(listed.json()["locks"][0]["name"], "item");
    assert!(home.file("mine.db").exists());

    home.run(["list", "--store", "@nowhere"])
        .failed(2, "cannot read --store from `nowhere`");
    let (_, empty) = file(&home, "empty", "\n", 0o600);
    home.run(["list", "--store", &empty]).failed(2, "one line");
}

#[test]
fn secret_files_that_others_can_read_cause_a_warning() {
    let home = Home::new();
    let (path, store) = file(&home, "store", "sqlite:mine.db\n", 0o644);
    let ran = home.run(["list", "--store", &store]).ok();
    assert!(ran.stderr.contains("can be read by every user"), "{ran:?}");
    fs::set_permissions(path, Permissions::from_mode(0o640)).unwrap();
    let ran = home.run(["list", "--store", &store]).ok();
    assert!(!ran.stderr.contains("every user"), "{ran:?}");

    let (token, _) = token::create(&home, "ci", &["admin:"]);
    let (_, token) = file(&home, "token", &token, 0o644);
    fs::set_permissions(home.file("access.toml"), Permissions::from_mode(0o644)).unwrap();
    let service = Service::start_with(&home, &["--access", "access.toml"]);
    let log = service.process.seen();
    let is_warned = log
        .iter()
        .any(|line| line.contains("access.toml can be read by every user"));
    assert!(is_warned, "{log:?}");
    file(&home, "key.pem", "", 0o644);
    home.run(["serve", "--tls-cert=cert.pem", "--tls-key=key.pem"])
        .failed(77, "key.pem can be read by every user");
    let ran = home.run(["list", "--store", &service.url(), "--token", &token]);
    assert!(ran.ok().stderr.contains("token can be read by every user"));
}

#[test]
fn tls_keys_that_others_can_read_cause_a_warning() {
    let home = Home::new();
    let (path, _) = file(&home, "key.pem", "", 0o644);
    let postgres = "postgres://127.0.0.1:1/app?key=key.pem&cert=key.pem";
    let https = "https://127.0.0.1:1?key=key.pem&cert=key.pem";
    let listen = ["serve", "--listen", "127.0.0.1:0"];
    let commands = [
        [
            &listen[..],
            &["--tls-key", "key.pem", "--tls-cert", "key.pem"],
        ]
        .concat(),
        [&listen[..], &["--store", postgres]].concat(),
        vec!["list", "--store", https],
        vec!["doctor", "--store", postgres],
    ];
    // Every command fails with an empty key, after the warning.
    let is_warned = |command: &[&str]| {
        let ran = home.run(command);
        ran.stderr.contains("key.pem can be read by every user")
    };
    for command in &commands {
        assert!(is_warned(command), "{command:?}");
    }
    fs::set_permissions(path, Permissions::from_mode(0o640)).unwrap();
    for command in &commands {
        assert!(!is_warned(command), "{command:?}");
    }
}

#[test]
fn child_commands_receive_no_secrets() {
    let home = Home::new();
    let (token, _) = token::create(&home, "ci", &["admin:"]);
    let service = Service::start_with(&home, &["--access", "access.toml"]);
    let url = service.url();
    let run_with = |command: &[&str], token: &str| {
        let mut command = home.command(["--store", &url].iter().chain(command));
        Ran::from(command.env("LEASEHOLD_TOKEN", token).output().unwrap())
    };
    let print_environment = ["env"];
    let nested = ["sh", "-c", r#""$LEASEHOLD" list --json"#];
    run_with(&["put", "item", "--state", "NEW"], &token).ok();
    let work = [
        "work", "NEW", "--next", "DONE", "--failed", "NEW2", "--drain",
    ];
    for command in [&["run", "job"][..], &["gate", "g", "--every", "1ms"], &work] {
        let ran = run_with(&[command, &["--"], &print_environment].concat(), &token).ok();
        assert!(!ran.stdout.contains(&token), "{ran:?}");
        assert!(ran.stdout.contains(&format!("LEASEHOLD_STORE={url}\n")));
    }
    // Without the token, a nested command fails with the reason, and does not use another store.
    run_with(&[&["run", "job", "--"], &nested[..]].concat(), &token).failed(2, "--token @FILE");
    let (_, token) = file(&home, "token", &token, 0o600);
    run_with(&[&["run", "job", "--"], &nested[..]].concat(), &token).ok();
    // A nested command whose store is withheld does not use the default store.
    let mut list = home.command(["list"]);
    let ran = Ran::from(list.env("LEASEHOLD_STORE", "withheld:").output().unwrap());
    ran.failed(2, "--store @FILE");
}
