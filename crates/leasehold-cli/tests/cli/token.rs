//! Tokens: created, listed, revoked, and enforced by a service.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::service::Service;
use crate::support::{Home, eventually};

/// Creates a token of this principal, and returns it and its id.
pub(crate) fn create(home: &Home, principal: &str, scopes: &[&str]) -> (String, String) {
    let allow = scopes.iter().flat_map(|scope| ["--allow", scope]);
    let fixed = [
        "token",
        "create",
        principal,
        "--access",
        "access.toml",
        "--json",
    ];
    let created = home.run(fixed.into_iter().chain(allow)).json();
    let text = |key: &str| created[key].as_str().unwrap().to_owned();
    (text("token"), text("id"))
}

fn tokens(home: &Home) -> Vec<Value> {
    let listed = home.run(["token", "list", "--access", "access.toml", "--json"]);
    listed.json()["tokens"].as_array().unwrap().clone()
}

#[test]
fn token_is_shown_once_and_stored_as_a_hash() {
    let home = Home::new();
    let created = home
        .run([
            "token",
            "create",
            "ci",
            "--allow",
            "acquire:ci/",
            "--access",
            "access.toml",
        ])
        .ok();
    let token = created.stdout.trim();
    assert!(
        token.starts_with("lh_") && !created.stderr.contains(token),
        "{created:?}"
    );
    let file = home.file("access.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        !text.contains(token) && !text.contains(&token[12..]),
        "{text}"
    );
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let listed = home
        .run(["token", "list", "--access", "access.toml"])
        .ok()
        .stdout;
    assert!(
        listed.contains("acquire:ci/") && !listed.contains(&token[12..]),
        "{listed}"
    );
    assert_eq!(
        std::fs::read_dir(home.path()).unwrap().count(),
        1,
        "nothing else is left"
    );
}

#[test]
fn tokens_of_a_principal_are_revoked_one_by_one() {
    let home = Home::new();
    let (_, first) = create(&home, "ci", &["acquire:ci/"]);
    let file = home.file("access.toml");
    let commented = std::fs::read_to_string(&file).unwrap() + "\n# A comment.\n";
    std::fs::write(&file, commented).unwrap();
    let (_, second) = create(&home, "ci", &["acquire:ci/", "read:"]);
    assert_eq!(tokens(&home).len(), 2);
    home.run(["token", "revoke", &first, "--access", "access.toml"])
        .ok();
    let left = tokens(&home);
    assert_eq!((left.len(), left[0]["id"].as_str()), (1, Some(&*second)));
    home.run(["token", "revoke", &first, "--access", "access.toml"])
        .failed(2, "no token with the id");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("# Tokens and their rights"), "{text}");
}

#[test]
fn invalid_files_and_scopes_are_explained() {
    let home = Home::new();
    home.run(["token", "list"]).failed(2, "--access FILE");
    home.run(["token", "list", "--access", "access.toml"])
        .failed(77, "token create");
    home.run([
        "token",
        "create",
        "ci",
        "--allow",
        "jobs/",
        "--access",
        "access.toml",
    ])
    .failed(2, "`acquire:PREFIX`");
    home.run([
        "token",
        "create",
        "",
        "--allow",
        "read:",
        "--access",
        "access.toml",
    ])
    .failed(2, "invalid principal");
    home.run(["serve", "--access", "access.toml"])
        .failed(77, "token create");
    std::fs::write(home.file("access.toml"), "[[tokens]]\n").unwrap();
    home.run(["serve", "--access", "access.toml"])
        .failed(77, "the known keys are `token`");
    assert_invalid_file_is_not_changed(&home);
}

#[test]
fn older_file_is_refused_until_it_is_migrated() {
    let home = Home::new();
    let (_, id) = create(&home, "ci", &["acquire:ci/"]);
    let file = home.file("access.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("expires = \"never\"\n", "")).unwrap();
    for command in [["token", "list"], ["serve", "--store=memory:"]] {
        let refused = home.run(command.into_iter().chain(["--access", "access.toml"]));
        refused.failed(77, "leasehold token migrate");
    }
    let migrate = ["token", "migrate", "--access", "access.toml"];
    assert!(home.run(migrate).ok().stderr.contains(&id));
    assert_eq!(tokens(&home).len(), 1);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    assert!(home.run(migrate).ok().stderr.contains("nothing to do"));
}

fn assert_invalid_file_is_not_changed(home: &Home) {
    home.run([
        "token",
        "create",
        "ci",
        "--allow",
        "read:",
        "--access",
        "access.toml",
    ])
    .failed(77, "unknown key `tokens`");
    assert_eq!(
        std::fs::read_to_string(home.file("access.toml")).unwrap(),
        "[[tokens]]\n"
    );
}

#[test]
fn service_admits_the_tokens_of_its_file_and_reloads_it() {
    let home = Home::new();
    let (token, id) = create(&home, "ci", &["admin:ci/"]);
    let service = Service::start_with(&home, &["--access", "access.toml"]);
    let url = service.url();
    let list = |token: &str| {
        let mut command = home.command(["list", "--json", "--store", &url]);
        command.env("LEASEHOLD_TOKEN", token);
        crate::support::Ran::from(command.output().unwrap())
    };
    home.run(["list", "--store", &url])
        .failed(77, "a token is required");
    list("lh_wrong").failed(77, "unknown");
    list(&token).ok();
    // The command reaches its lease with the token file that it inherits.
    let script = r#""$LEASEHOLD" update "$LEASEHOLD_NAME" "$LEASEHOLD_FENCE" done"#;
    std::fs::write(home.file("token"), &token).unwrap();
    let run = [
        "--token",
        "@token",
        "--store",
        &url,
        "run",
        "ci/job",
        "--keep-body",
        "sh",
        "-c",
        script,
    ];
    home.run(run).ok();
    assert_eq!(home.show("ci/job")["body"], "done");
    let run = ["--token", &token, "--store", &url, "run", "other", "true"];
    home.run(run).failed(77, "the right `acquire` is missing");

    let (second, _) = create(&home, "ci", &["read:"]);
    eventually("the new token", || {
        (list(&second).code == Some(0)).then_some(())
    });
    home.run(["token", "revoke", &id, "--access", "access.toml"])
        .ok();
    eventually("the end of the revoked token", || {
        (list(&token).code == Some(77)).then_some(())
    });
    std::fs::write(home.file("access.toml"), "invalid").unwrap();
    let mut process = service.process;
    process.expect("rights are unchanged");
    list(&second).ok();
}

#[test]
fn tokens_and_tls_are_required_beyond_loopback() {
    let home = Home::new();
    create(&home, "ci", &["admin:"]);
    // An address that no machine has, so that listening on it fails.
    let listen = ["serve", "--listen", "192.0.2.1:1"];
    let alone = home.run(listen);
    alone.failed(77, "--access, --tls-cert and --tls-key, or --insecure");
    home.run(listen.iter().chain(&["--access", "access.toml"]))
        .failed(77, "beyond loopback, tokens and TLS are required");
    home.run(listen.iter().chain(&["--insecure"]))
        .failed(71, "cannot listen on 192.0.2.1:1");
    home.run(["serve", "--tls-cert", "cert.pem"])
        .failed(2, "--tls-key");
    home.run(["serve", "--tls-cert", "cert.pem", "--tls-key", "key.pem"])
        .failed(77, "key.pem");
}
