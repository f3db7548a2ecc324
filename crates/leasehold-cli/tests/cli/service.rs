//! `serve`, and other commands that use the service.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::support::{Home, Running, stat};

/// A running service on the default store.
pub(crate) struct Service {
    pub(crate) process: Running,
    pub(crate) address: String,
}

impl Service {
    pub(crate) fn start(home: &Home) -> Self {
        Self::start_with(home, &[])
    }

    /// Starts a service with more options.
    pub(crate) fn start_with(home: &Home, options: &[&str]) -> Self {
        let fixed = ["serve", "--listen", "127.0.0.1:0"];
        let mut process = home.start(fixed.iter().chain(options));
        let line = process.expect("listening on http://");
        let (_, address) = line.split_once("http://").unwrap();
        Self {
            address: address.trim().to_owned(),
            process,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends a POST, and returns the whole response.
    pub(crate) fn post(&mut self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }
}

#[test]
fn lease_is_the_same_through_the_service_and_the_file() {
    let home = Home::new();
    let mut service = Service::start(&home);
    let answer = service.post("/locks/job?nonce=n&owner=web");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    home.run(["run", "job", "-n", "true"])
        .failed(75, "held by web");
    let listed = home.run(["list", "--json"]).json();
    let through = home
        .run(["list", "--json", "--store", &service.url()])
        .json();
    assert_eq!(listed["locks"][0]["fence"], through["locks"][0]["fence"]);
    let script = r#""$LEASEHOLD" update "$LEASEHOLD_NAME" "$LEASEHOLD_FENCE" remote"#;
    home.run([
        "run",
        "other",
        "--keep-body",
        "--store",
        &service.url(),
        "--",
        "sh",
        "-c",
        script,
    ])
    .ok();
    assert_eq!(home.show("other")["body"], "remote");
    home.run(["acquire", "job", "-n", "--store", &service.url()])
        .failed(75, "held by web");

    service.process.signal(Signal::SIGTERM);
    service.process.ends_with(0);
}

#[test]
fn service_logs_as_json_and_stops_on_signals() {
    let home = Home::new();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut service = home.start(["serve", "--listen", "127.0.0.1:0", "--log", "json"]);
        let line = service.expect("listening on");
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["level"], "INFO");
        service.signal(signal);
        service.ends_with(0);
    }
}

#[test]
fn port_in_use_is_reported() {
    let home = Home::new();
    let service = Service::start(&home);
    home.run(["serve", "--listen", &service.address])
        .failed(71, "cannot listen on");
}

#[test]
fn command_is_ended_when_its_service_dies_or_hangs() {
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        let home = Home::new();
        let service = Service::start(&home);
        let script = "echo $$; echo ready; while :; do sleep 0.01; done";
        let run = [
            "run",
            "job",
            "--ttl",
            "2s",
            "--store",
            &service.url(),
            "--",
            "sh",
            "-c",
            script,
        ];
        let mut run = home.start(run);
        let command = Pid::from_raw(run.expect("").parse().unwrap());
        run.expect("ready");
        service.process.signal(signal);
        run.expect("lost job, and its command was ended");
        assert_eq!(stat(command), None);
        run.ends_with(76);
    }
}

#[test]
fn items_gates_and_several_leases_work_through_the_service() {
    let home = Home::new();
    let service = Service::start(&home);
    let url = service.url();
    let through = |arguments: &[&str]| home.run(["--store", &url].iter().chain(arguments));
    through(&["put", "order", "--state", "NEW", "--body", "apples"]).ok();
    let work = [
        "work", "NEW", "--next", "DONE", "--failed", "FAILED", "--drain", "--output",
    ];
    through(&[&work[..], &["tr", "a-z", "A-Z"]].concat()).ok();
    let shown = home.show("order");
    assert_eq!(
        (&shown["state"], &shown["body"]),
        (&"DONE".into(), &"APPLES".into())
    );
    let claimed = through(&["claim", "DONE", "--json"]).json();
    assert_eq!(claimed["items"][0]["name"], "order");
    through(&["remove", "order"]).failed(75, "order is held by");

    through(&["gate", "alert", "--every", "1h", "true"]).ok();
    home.run(["gate", "alert", "--every", "1h", "true"])
        .failed(75, "alert is shut for another 59m");
    let again = through(&["gate", "alert", "--every", "1h", "--json"]).failed(75, "");
    let problem: serde_json::Value = serde_json::from_str(&again.stderr).unwrap();
    assert_eq!(problem["type"], "throttled");
    let gates = through(&["list", "--gates", "--json"]).json();
    assert_eq!(gates["gates"][0]["name"], "alert");
    let both = [
        "run",
        "a",
        "--also",
        "b",
        "sh",
        "-c",
        "echo $LEASEHOLD_FENCES",
    ];
    assert!(through(&both).ok().stdout.contains("\"b\":"));
}
