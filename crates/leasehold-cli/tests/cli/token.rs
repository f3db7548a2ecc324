//! Tokens: made, listed, revoked, and what a service does with them.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::service::Service;
use crate::support::{Home, eventually};

/// A token of this principal, and its id.
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
    let made = home.run(fixed.into_iter().chain(allow)).json();
    let text = |key: &str| made[key].as_str().unwrap().to_owned();
    (text("token"), text("id"))
}

fn tokens(home: &Home) -> Vec<Value> {
    let listed = home.run(["token", "list", "--access", "access.toml", "--json"]);
    listed.json()["tokens"].as_array().unwrap().clone()
}

#[test]
fn a_token_is_shown_once_and_kept_as_a_hash() {
    let home = Home::new();
    let made = home
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
    let token = made.stdout.trim();
    assert!(
        token.starts_with("lh_") && !made.stderr.contains(token),
        "{made:?}"
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
fn several_tokens_of_a_principal_end_one_by_one() {
    let home = Home::new();
    let (_, first) = create(&home, "ci", &["acquire:ci/"]);
    let file = home.file("access.toml");
    let noted = std::fs::read_to_string(&file).unwrap() + "\n# A note of ours.\n";
    std::fs::write(&file, noted).unwrap();
    let (_, second) = create(&home, "ci", &["acquire:ci/", "read:"]);
    assert_eq!(tokens(&home).len(), 2);
    home.run(["token", "revoke", &first, "--access", "access.toml"])
        .ok();
    let left = tokens(&home);
    assert_eq!((left.len(), left[0]["id"].as_str()), (1, Some(&*second)));
    home.run(["token", "revoke", &first, "--access", "access.toml"])
        .failed(2, "no token with the id");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("# Who may do what"), "{text}");
}

#[test]
fn a_file_or_a_scope_that_is_wrong_is_explained() {
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
    .failed(2, "the principal is empty");
    home.run(["serve", "--access", "access.toml"])
        .failed(77, "token create");
    std::fs::write(home.file("access.toml"), "[[tokens]]\n").unwrap();
    home.run(["serve", "--access", "access.toml"])
        .failed(77, "there is `token`");
    create_denied(&home);
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

/// A file that is wrong is not written to.
fn create_denied(home: &Home) {
    home.run([
        "token",
        "create",
        "ci",
        "--allow",
        "read:",
        "--access",
        "access.toml",
    ])
    .failed(77, "no `tokens` here");
    assert_eq!(
        std::fs::read_to_string(home.file("access.toml")).unwrap(),
        "[[tokens]]\n"
    );
}

#[test]
fn a_service_lets_in_whom_its_file_names_and_follows_it() {
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
        .failed(77, "a token is needed");
    list("lh_wrong").failed(77, "unknown");
    list(&token).ok();
    // The command finds its own lease again, by the token in the file that it is told of.
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
    eventually("its end", || (list(&token).code == Some(77)).then_some(()));
    std::fs::write(home.file("access.toml"), "what?").unwrap();
    let mut process = service.process;
    process.expect("rights stay as they were");
    list(&second).ok();
}

#[test]
fn beyond_loopback_it_takes_tokens_and_tls() {
    let home = Home::new();
    create(&home, "ci", &["admin:"]);
    // An address that no machine has: what gets as far as listening fails there.
    let listen = ["serve", "--listen", "192.0.2.1:1"];
    let alone = home.run(listen);
    alone.failed(77, "--access, --tls-cert and --tls-key; or --insecure");
    home.run(listen.iter().chain(&["--access", "access.toml"]))
        .failed(77, "others can connect to 192.0.2.1:1");
    home.run(listen.iter().chain(&["--insecure"]))
        .failed(71, "cannot be listened on");
    home.run(["serve", "--tls-cert", "cert.pem"])
        .failed(2, "--tls-key");
    home.run(["serve", "--tls-cert", "cert.pem", "--tls-key", "key.pem"])
        .failed(77, "key.pem");
}
