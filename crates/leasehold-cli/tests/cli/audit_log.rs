//! `serve --audit` with a limited file size, and its signals.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{Home, LEASEHOLD, Running, eventually};

struct Service {
    process: Running,
    address: String,
}

impl Service {
    /// Serves leases in memory, with files limited to this size in KiB.
    fn start(home: &Home, kib: u32, options: &[&str]) -> Self {
        let limited = format!("ulimit -f {kib}; exec \"$@\"");
        let mut command = home.program("bash");
        let fixed = ["serve", "--store", "memory:", "--listen", "127.0.0.1:0"];
        command.args(["-c", &limited, "bash", LEASEHOLD]);
        command.args(fixed).args(options);
        let mut process = Running::start(&mut command);
        let line = process.expect("listening on http://");
        let (_, address) = line.split_once("http://").unwrap();
        let address = address.trim().to_owned();
        Self { process, address }
    }

    /// Sends a request, and returns the status and the whole response.
    fn send(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        (response[9..12].parse().unwrap(), response)
    }

    /// Waits until `/readyz` answers with this status.
    fn wait_for_readyz(&self, status: u16) {
        eventually("the status of /readyz", || {
            (self.send("GET /readyz").0 == status).then_some(())
        });
    }
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}"));
    text.lines().map(parse).collect()
}

#[test]
fn full_audit_file_refuses_changes_until_it_is_moved() {
    let home = Home::new();
    let (file, old) = (home.file("audit.jsonl"), home.file("old.jsonl"));
    let service = Service::start(&home, 4, &["--audit", "audit.jsonl"]);
    service.wait_for_readyz(200);
    let mut granted = Vec::new();
    let refused = loop {
        let name = format!("job-{}", granted.len());
        match service.send(&format!("POST /locks/{name}?nonce=n")) {
            (200, _) => granted.push(name),
            refused => break refused,
        }
    };
    assert!(!granted.is_empty());
    assert_eq!(refused.0, 503, "{refused:?}");
    assert!(refused.1.contains("audit log"), "{refused:?}");
    service.wait_for_readyz(503);
    assert_eq!(service.send("GET /healthz").0, 200);
    // Every grant has a record, and no line is torn.
    let recorded = lines(&file);
    for name in &granted {
        let has = |outcome| {
            let mut lines = recorded.iter();
            lines.any(|line| line["name"] == **name && line["outcome"] == outcome)
        };
        assert!(has("requested") && has("granted"), "{name}");
    }

    std::fs::rename(&file, &old).unwrap();
    service.wait_for_readyz(200);
    let last = service.send("POST /locks/last?nonce=n");
    assert_eq!(last.0, 200, "{last:?}");
    let recorded = lines(&file);
    assert!(recorded.iter().any(|line| line["outcome"] == "resumed"));
    assert_eq!(recorded.last().unwrap()["name"], "last");
    service.process.signal(Signal::SIGTERM);
    let log = service.process.ends_with(0);
    let failures = log.iter().filter(|line| line.contains("cannot write"));
    assert_eq!(failures.count(), 1, "logged once: {log:?}");
    let again = log.iter().filter(|line| line.contains("written again"));
    assert_eq!(again.count(), 1, "logged once: {log:?}");
}

#[test]
fn service_stays_unready_while_only_short_lines_fit_into_the_log() {
    const LIMIT: u64 = 4 * 1024;
    let home = Home::new();
    let file = home.file("audit.jsonl");
    let service = Service::start(&home, 4, &["--audit", "audit.jsonl"]);
    let room = || LIMIT - std::fs::metadata(&file).unwrap().len();
    for number in 0.. {
        if room() < 1_200 {
            break;
        }
        let granted = service.send(&format!("POST /locks/job-{number}?nonce=n"));
        assert_eq!(granted.0, 200, "{granted:?}");
    }
    // A line of 100 bytes or more for each of these.
    let names: String = (0..12).map(|number| format!("name={number}&")).collect();
    assert_eq!(service.send(&format!("POST /locks?{names}nonce=n")).0, 503);
    assert!(room() > 200, "a short line fits");
    let failures = || {
        let metrics = service.send("GET /metrics").1;
        let mut lines = metrics.lines();
        let found = lines.find_map(|line| line.strip_prefix("leasehold_audit_failures_total "));
        found.unwrap().parse::<u64>().unwrap()
    };
    eventually("more failures", || {
        assert_eq!(service.send("GET /readyz").0, 503);
        (failures() >= 3).then_some(())
    });
    std::fs::rename(&file, home.file("old.jsonl")).unwrap();
    service.wait_for_readyz(200);
}

#[test]
fn sighup_reopens_the_audit_log_and_the_service_continues() {
    let home = Home::new();
    let (file, old) = (home.file("audit.jsonl"), home.file("old.jsonl"));
    let mut service = Service::start(&home, 1_000, &["--audit", "audit.jsonl"]);
    std::fs::rename(&file, &old).unwrap();
    service.process.signal(Signal::SIGHUP);
    service.process.expect("SIGHUP");
    assert_eq!(service.send("POST /locks/a?nonce=n").0, 200);
    eventually("the new audit file", || file.exists().then_some(()));
    service.process.signal(Signal::SIGTERM);
    service.process.ends_with(0);
    let both = lines(&old).into_iter().chain(lines(&file));
    let outcomes: Vec<_> = both.filter(|line| line["name"] == "a").collect();
    assert_eq!(outcomes.len(), 2, "{outcomes:?}");
}

#[test]
fn audit_options_are_validated_and_printed() {
    let home = Home::new();
    let print = |options: &[&str]| {
        let fixed = ["serve", "--print-config", "--audit", "audit.jsonl"];
        home.run(fixed.iter().chain(options))
    };
    let printed = print(&["--audit-max-size", "100M"]).ok().stdout;
    for line in [
        "audit-on-failure = \"refuse\"",
        "audit-max-size = \"100M\"",
        "audit-keep = 9",
    ] {
        assert!(printed.contains(line), "{line} is not in {printed}");
    }
    for size in ["1", "63K", "M", "1T", "-1", "99999999999G", "1.5G"] {
        let option = format!("--audit-max-size={size}");
        print(&[&option]).failed(2, "64K");
    }
}
