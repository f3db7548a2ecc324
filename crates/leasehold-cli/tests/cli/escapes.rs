//! Foreign text is escaped before it reaches a terminal.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use crate::service::Service;
use crate::support::{Home, Ran};

/// Colours, a title, a C1 introducer, a line break and DEL, which a terminal would act on; and characters that it would
/// hide or reorder.
const HOSTILE: &str = "me\x1b[31m\x1b]0;x\x07\u{9b}2J\r\nFORGED\u{7f}\u{202e}\u{200b}";

/// The hostile characters that a name can contain.
const HOSTILE_NAME: &str = "job\u{202e}gpj\u{200b}\u{feff}";

#[track_caller]
fn assert_no_hidden_characters(text: &str) {
    let hidden = |char: char| {
        char.is_control()
            || matches!(char, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{feff}')
    };
    for line in text.split('\n') {
        assert!(!line.contains(hidden), "{line:?}");
        // No line begins with foreign text.
        assert!(!line.starts_with("FORGED"), "{line:?}");
    }
}

/// Runs a command with and without `--json`, and asserts that its output contains these words and no hidden characters.
#[track_caller]
fn assert_escaped(home: &Home, arguments: &[&str], words: &str) -> [Ran; 2] {
    [&[][..], &["--json"]].map(|json| {
        let (first, rest) = arguments.split_first().unwrap();
        let ran = home.run([first].into_iter().chain(json).chain(rest));
        assert_no_hidden_characters(&ran.stdout);
        assert_no_hidden_characters(&ran.stderr);
        let output = format!("{}{}", ran.stdout, ran.stderr);
        assert!(output.contains(words), "{arguments:?}: {words}: {ran:?}");
        ran
    })
}

const SHOWN: &str = r"me\u001b[31m\u001b]0;x\u0007\u009b2J";
const SHOWN_NAME: &str = r"job\u202egpj\u200b\ufeff";

#[test]
fn control_characters_of_foreign_text_never_reach_a_terminal() {
    let home = Home::new();
    let watching = &mut home.start(["watch", "--every", "20ms"]);
    let watching_json = &mut home.start(["watch", "--every", "20ms", "--json"]);
    let put = [
        "put",
        HOSTILE_NAME,
        "--state",
        "NEW\u{202e}\u{200b}",
        "--body",
        HOSTILE,
    ];
    assert_escaped(&home, &put, "");
    let acquire = [
        "acquire",
        HOSTILE_NAME,
        "--ttl",
        "1h",
        "--nonce",
        "n",
        "--owner",
        HOSTILE,
    ];
    assert_escaped(&home, &acquire, "me");
    for (arguments, words) in [
        (&["list"][..], SHOWN),
        (&["list", "--prefix", "job"], SHOWN_NAME),
        (&["show", HOSTILE_NAME], SHOWN),
        (&["show", HOSTILE_NAME], SHOWN_NAME),
        (&["run", HOSTILE_NAME, "-n", "true"], SHOWN),
        (&["acquire", HOSTILE_NAME, "-n"], SHOWN),
        (&["run", HOSTILE_NAME, "--wait", "1ms", "true"], SHOWN),
        (
            &["run", "other", "--also", HOSTILE_NAME, "-n", "true"],
            SHOWN,
        ),
        (&["put", HOSTILE_NAME, "--state", "NEW"], SHOWN),
        (&["remove", HOSTILE_NAME], SHOWN),
        (
            &["gate", "g", "--every", "1h", "-E", "75", "--owner", HOSTILE],
            "g",
        ),
        (&["gate", "g", "--every", "1h"], SHOWN),
        (&["show", "--gate", "g"], SHOWN),
        (&["list", "--gates"], SHOWN),
        (&["break", HOSTILE_NAME, "--force", "--reason", HOSTILE], ""),
        (&["show", HOSTILE_NAME], r"\n"),
        (
            &[
                "break",
                HOSTILE_NAME,
                "--force",
                "--now",
                "--reason",
                HOSTILE,
            ],
            "",
        ),
        (&["claim", "NEW\u{202e}\u{200b}", "--owner", HOSTILE], ""),
        (&["release", HOSTILE_NAME, "1"], ""),
        (
            &[
                "bench",
                "--names",
                "1",
                "--prefix",
                "b\u{202e}",
                "--time",
                "1ms",
            ],
            "",
        ),
        (&["doctor"], "green"),
        (&["purge", "--prefix", HOSTILE], ""),
    ] {
        assert_escaped(&home, arguments, words);
    }
    let listed = home.run(["list", "--json", "--prefix", "job"]).json();
    assert_eq!(listed["locks"][0]["name"], HOSTILE_NAME);
    assert_eq!(home.show(HOSTILE_NAME)["body"], HOSTILE);
    for watching in [watching, watching_json] {
        assert_no_hidden_characters(&watching.expect(SHOWN));
        watching
            .seen()
            .iter()
            .for_each(|line| assert_no_hidden_characters(line));
    }
}

#[test]
fn errors_about_arguments_have_no_control_characters() {
    let home = Home::new();
    for arguments in [
        &["show", HOSTILE][..],
        &["run", "job", "--ttl", HOSTILE, "true"],
        &["run", "job", "--", HOSTILE],
        &["list", HOSTILE],
        &[HOSTILE],
        &["list", "--store", HOSTILE],
        &["list", "--store", &format!("sqlite://{HOSTILE}")],
        &["serve", "--config", HOSTILE],
        &["serve", "--log-level", HOSTILE],
        &["claim", HOSTILE],
        &["put", "item", "--state", HOSTILE, "--body-file", HOSTILE],
        &["doctor", "--store", &format!("sqlite:/nowhere/{HOSTILE}")],
        &[
            "token", "create", HOSTILE, "--allow", HOSTILE, "--access", "a",
        ],
    ] {
        for ran in assert_escaped(&home, arguments, "") {
            assert_ne!(ran.code, Some(0), "{ran:?}");
        }
    }
    // A line break is shown as an escape too.
    home.run(["show", "line\nbreak"]).failed(2, r"line\nbreak");
}

#[test]
fn log_of_a_service_has_no_control_characters() {
    let home = Home::new();
    let mut service = Service::start_with(&home, &["--log-level", "trace"]);
    service.post("/locks/job?owner=%1b[31m%c2%9b&nonce=a%0d%0ab");
    service.post("/locks/\u{9b}2J\u{202e}?nonce=\u{9b}");
    service.post("/locks/%1b%5b31m?wait=%1b");
    service.process.signal(nix::sys::signal::Signal::SIGTERM);
    for line in service.process.ends_with(0) {
        assert_no_hidden_characters(&line);
    }
}

/// Starts a service that answers every request with this status and body, and returns its URL.
fn hostile_service(status: &'static str, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 16 * 1024]);
            let response = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\nConnection: \
                 close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(response.as_bytes());
        }
    });
    url
}

#[test]
fn answers_of_a_service_are_escaped() {
    let home = Home::new();
    let text = serde_json::to_string(HOSTILE).unwrap();
    let problem = |kind: &str| {
        format!(
            r#"{{"type":"{kind}","title":{text},"status":409,"detail":{text},"owner":{text},"since":{text},"retryAfter":5}}"#
        )
    };
    let lock = format!(r#"{{"name":{text},"fence":1,"held":false,"holders":[],"body":{text}}}"#);
    for (status, body) in [
        ("409 \u{1b}[31m", problem("/problems/held")),
        ("409 Conflict", problem("/problems/fenced")),
        ("400 Bad Request", problem("/problems/invalid")),
        ("403 Forbidden", problem("/problems/denied")),
        ("503 Service Unavailable", problem("/problems/unavailable")),
        (
            "404 Not Found",
            problem(HOSTILE)
                .replace('\x1b', "")
                .replace(['\r', '\n'], ""),
        ),
        ("200 OK", HOSTILE.to_owned()),
        ("200 OK", lock.clone()),
        ("200 OK", format!(r#"{{"locks":[{lock}]}}"#)),
        ("500 Oh", HOSTILE.to_owned()),
    ] {
        let url = hostile_service(status, body);
        for command in [
            &["show", "job"][..],
            &["list"],
            &["acquire", "job", "-n"],
            &["release", "job", "1"],
            &["watch"],
        ] {
            let arguments = [command, &["--store", &url]].concat();
            assert_escaped(&home, &arguments, "");
        }
    }
}
