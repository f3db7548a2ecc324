//! Foreign text on a terminal.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use crate::service::Service;
use crate::support::{Home, Ran};

/// Colours, a title, a C1 introducer, a line break and DEL: what a terminal would act on; and what it would hide, or
/// show in another order.
const HOSTILE: &str = "me\x1b[31m\x1b]0;x\x07\u{9b}2J\r\nFORGED\u{7f}\u{202e}\u{200b}";

/// The same without what no name can have.
const HOSTILE_NAME: &str = "job\u{202e}gpj\u{200b}\u{feff}";

#[track_caller]
fn has_no_hidden_characters(text: &str) {
    let hidden = |char: char| {
        char.is_control()
            || matches!(char, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{feff}')
    };
    for line in text.split('\n') {
        assert!(!line.contains(hidden), "{line:?}");
        // Nothing foreign begins a line.
        assert!(!line.starts_with("FORGED"), "{line:?}");
    }
}

/// Runs it for people and for programs.
#[track_caller]
fn shows(home: &Home, arguments: &[&str], words: &str) -> [Ran; 2] {
    [&[][..], &["--json"]].map(|json| {
        let (first, rest) = arguments.split_first().unwrap();
        let ran = home.run([first].into_iter().chain(json).chain(rest));
        has_no_hidden_characters(&ran.stdout);
        has_no_hidden_characters(&ran.stderr);
        let told = format!("{}{}", ran.stdout, ran.stderr);
        assert!(told.contains(words), "{arguments:?}: {words}: {ran:?}");
        ran
    })
}

const SHOWN: &str = r"me\u001b[31m\u001b]0;x\u0007\u009b2J";
const SHOWN_NAME: &str = r"job\u202egpj\u200b\ufeff";

#[test]
fn foreign_text_never_reaches_a_terminal_as_control_characters() {
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
    shows(&home, &put, "");
    let take = [
        "acquire",
        HOSTILE_NAME,
        "--ttl",
        "1h",
        "--nonce",
        "n",
        "--owner",
        HOSTILE,
    ];
    shows(&home, &take, "me");
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
        shows(&home, arguments, words);
    }
    let listed = home.run(["list", "--json", "--prefix", "job"]).json();
    assert_eq!(listed["locks"][0]["name"], HOSTILE_NAME);
    assert_eq!(home.show(HOSTILE_NAME)["body"], HOSTILE);
    for watching in [watching, watching_json] {
        has_no_hidden_characters(&watching.expect(SHOWN));
        watching
            .seen()
            .iter()
            .for_each(|line| has_no_hidden_characters(line));
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
        for ran in shows(&home, arguments, "") {
            assert_ne!(ran.code, Some(0), "{ran:?}");
        }
    }
    // What none has to be afraid of stays as it is.
    home.run(["show", "line\nbreak"]).failed(2, r"line\nbreak");
}

#[test]
fn the_log_of_a_service_has_no_control_characters() {
    let home = Home::new();
    let mut service = Service::start_with(&home, &["--log-level", "trace"]);
    service.post("/locks/job?owner=%1b[31m%c2%9b&nonce=a%0d%0ab");
    service.post("/locks/\u{9b}2J\u{202e}?nonce=\u{9b}");
    service.post("/locks/%1b%5b31m?wait=%1b");
    service.process.signal(nix::sys::signal::Signal::SIGTERM);
    for line in service.process.ends_with(0) {
        has_no_hidden_characters(&line);
    }
}

/// A service that answers everything like this.
fn hostile_service(status: &'static str, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 16 * 1024]);
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\nConnection: \
                 close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

#[test]
fn answers_of_a_service_are_foreign_text() {
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
            shows(&home, &arguments, "");
        }
    }
}
