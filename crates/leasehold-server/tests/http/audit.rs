//! The audit log: failures to write it, rotation, and callers that try to fill it.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::engine::Engine;
use leasehold::store;
use leasehold_server::{Audit, AuditOptions, Config, OnFailure};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Server, TIMEOUT};
use crate::guarded::Guarded;

/// A device that fails every write, like a full disk.
pub(crate) const FULL: &str = "/dev/full";

/// Returns the lines of a file as JSON.
pub(crate) fn lines_of(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?} in {text}"));
    text.lines().map(parse).collect()
}

/// Returns operation, name and outcome of the lines about requests.
fn request_lines(file: &Path) -> Vec<String> {
    let lines = lines_of(file).into_iter();
    let lines = lines.filter(|line| line["operation"] != "audit");
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    lines
        .map(|line| {
            ["operation", "name", "outcome"]
                .map(|key| text(&line[key]))
                .join(" ")
        })
        .collect()
}

pub(crate) async fn start(path: &Path, on_failure: OnFailure) -> Server {
    let mut options = AuditOptions::default();
    options.on_failure = on_failure;
    let mut config = Config::default();
    config.audit = Some(Audit::open_with(path, options).unwrap());
    let store = store::open("memory:").await.unwrap();
    Server::start_with(Engine::start(store).await.unwrap(), config).await
}

pub(crate) async fn wait_for_readiness(server: &Server, status: u16) {
    let asking = async {
        while server.get("/readyz").await.status != status {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(TIMEOUT, asking).await;
    waited.unwrap_or_else(|_| panic!("/readyz does not become {status}"));
}

async fn metric(server: &Server, name: &str) -> u64 {
    let page = server.get("/metrics").await.body;
    let mut lines = page.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.expect("the metric exists").parse().unwrap()
}

/// A symbolic link in place of the audit log, whose target can be replaced.
pub(crate) struct LogLink {
    folder: TempDir,
}

impl LogLink {
    pub(crate) fn new(to: impl AsRef<Path>) -> Self {
        let link = Self {
            folder: TempDir::new().unwrap(),
        };
        link.point_to(to);
        link
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("audit.jsonl")
    }

    pub(crate) fn point_to(&self, to: impl AsRef<Path>) {
        let beside = self.folder.path().join("new");
        symlink(to, &beside).unwrap();
        std::fs::rename(beside, self.path()).unwrap();
    }
}

#[tokio::test]
async fn full_audit_disk_refuses_changes_and_fails_readiness() {
    let server = start(Path::new(FULL), OnFailure::Refuse).await;
    server
        .get("/readyz")
        .await
        .problem(503, "store-unavailable");
    for (method, target) in [
        ("POST", "/locks/a?nonce=n"),
        ("POST", "/locks?name=a&name=b&nonce=n"),
        ("POST", "/gates/a?every=1m"),
        ("PUT", "/items/a?state=NEW"),
        ("DELETE", "/items/a"),
        ("POST", "/claims?state=NEW"),
        ("POST", "/locks/a/break?force=true&reason=x"),
        ("POST", "/locks/a/1/heartbeat"),
        ("DELETE", "/locks/a/1"),
    ] {
        let refused = server.send(method, target, b"").await;
        let refused = refused.problem(503, "store-unavailable");
        let detail = refused.text("detail");
        assert!(detail.contains("audit log"), "{method} {target}: {detail}");
        assert!(!detail.contains("/dev"), "{detail}");
    }
    let heartbeats = br#"{"leases":[{"name":"a","fence":1}]}"#;
    let refused = server.send("POST", "/heartbeats", heartbeats).await;
    refused.problem(503, "store-unavailable");
    let many = br#"{"requests":[{"method":"POST","target":"/locks/a?nonce=n"}]}"#;
    let many = server.send("POST", "/requests", many).await.ok();
    assert_eq!(many.json["answers"][0]["status"], 503, "{many:?}");
    // Reads are answered, and show that nothing was changed.
    server.get("/healthz").await.ok();
    let locks = server.get("/locks").await.ok();
    assert_eq!(locks.json["locks"], Value::Array(Vec::new()));
    assert!(metric(&server, "leasehold_audit_failures_total").await > 10);
}

#[tokio::test]
async fn changes_continue_without_a_record_if_configured() {
    let server = start(Path::new(FULL), OnFailure::Continue).await;
    let fence = server.acquire("/locks/a?nonce=n").await;
    server.delete(&format!("/locks/a/{fence}")).await.ok();
    server.get("/readyz").await.ok();
    assert!(metric(&server, "leasehold_audit_failures_total").await >= 4);
}

#[tokio::test]
async fn change_whose_outcome_cannot_be_recorded_is_indeterminate_and_its_grant_is_released() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("audit.jsonl");
    let link = LogLink::new(&file);
    let server = start(&link.path(), OnFailure::Refuse).await;
    let held = server.acquire("/locks/a?nonce=1&ttl=1m").await;
    let waiter = server
        .begin("POST", "/locks/a?nonce=2&wait=5m&ttl=5m", "", b"")
        .await;
    server.wait_for_waiters("a", 1).await;
    link.point_to(FULL);
    wait_for_readiness(&server, 503).await;
    server
        .delete(&format!("/locks/a/{held}"))
        .await
        .problem(503, "store-unavailable");
    // Through the engine, like another service: this one refuses the release.
    let name = leasehold::core::Name::lock("a").unwrap();
    let release = leasehold::core::Operation::Release(leasehold::core::Release {
        holder: leasehold::core::HolderRef::Fence(leasehold::core::Fence::new(held).unwrap()),
        principal: None,
    });
    let no_wait = leasehold::engine::WaitLimit::NONE;
    let released = server.engine.perform(&name, release, no_wait).await;
    released.unwrap().take();
    crate::common::read_answer(waiter)
        .await
        .problem(503, "indeterminate");
    let free = async {
        while server.get("/locks/a").await.ok().json["held"] == true {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, free)
        .await
        .expect("the grant is released");
    // The log has at least the request.
    assert_eq!(request_lines(&file).last().unwrap(), "acquire a requested");
}

#[tokio::test]
async fn restored_log_has_the_number_of_missing_lines() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("audit.jsonl");
    let link = LogLink::new(FULL);
    let server = start(&link.path(), OnFailure::Refuse).await;
    server
        .post("/locks/a?nonce=1")
        .await
        .problem(503, "store-unavailable");
    link.point_to(&file);
    wait_for_readiness(&server, 200).await;
    server.acquire("/locks/a?nonce=1").await;
    let resumed = |line: &&Value| line["outcome"] == "resumed";
    let resumed = lines_of(&file).iter().find(resumed).cloned();
    let missing = resumed.expect("a line about the gap")["lines"]
        .as_u64()
        .unwrap();
    assert!(missing >= 2, "opened, and a request at least: {missing}");
    assert_eq!(
        request_lines(&file),
        ["acquire a requested", "acquire a granted"]
    );
}

#[tokio::test]
async fn log_that_is_moved_away_at_once_is_created_again() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("audit.jsonl");
    let server = start(&file, OnFailure::Refuse).await;
    std::fs::rename(&file, folder.path().join("old.jsonl")).unwrap();
    let again = async {
        while !std::fs::read_to_string(&file).is_ok_and(|text| text.contains("opened")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, again)
        .await
        .expect("the log is created again");
    server.acquire("/locks/a?nonce=n").await;
    assert_eq!(
        request_lines(&file),
        ["acquire a requested", "acquire a granted"]
    );
}

#[tokio::test]
async fn request_of_a_disconnected_caller_is_recorded_as_abandoned() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("audit.jsonl");
    let server = start(&file, OnFailure::Refuse).await;
    server.acquire("/locks/a?nonce=1").await;
    let waiter = server
        .begin("POST", "/locks/a?nonce=2&wait=5m", "", b"")
        .await;
    server.wait_for_waiters("a", 1).await;
    drop(waiter);
    server.wait_for_waiters("a", 0).await;
    let recorded = async {
        while request_lines(&file).last().unwrap() != "acquire a abandoned" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, recorded)
        .await
        .expect("it is recorded");
    let lines = lines_of(&file);
    let [.., requested, abandoned] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(requested["request"], abandoned["request"]);
}

#[tokio::test]
async fn unknown_callers_cannot_fill_the_log() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("audit.jsonl");
    let audit = Audit::open(&file).unwrap();
    let guarded = Guarded::start_with(|config| config.audit = Some(audit)).await;
    for _ in 0..30 {
        guarded
            .post("/locks/a?nonce=n", "lh_s3cret")
            .await
            .problem(401, "unauthorized");
    }
    let refused = request_lines(&file);
    assert_eq!(refused, vec!["acquire a unauthorized"; 10]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("s3cret"), "{text}");
    // Known callers are still recorded.
    let token = guarded.token("ci", &["acquire:"]).await;
    guarded.post("/locks/a?nonce=n", &token).await.ok();
    assert_eq!(request_lines(&file).last().unwrap(), "acquire a granted");
    let reader = guarded.token("reader", &["read:"]).await;
    let metrics = guarded.ask("GET", "/metrics", &reader, b"").await;
    let mut lines = metrics.body.lines();
    let omitted = lines.find_map(|line| line.strip_prefix("leasehold_audit_omitted_total "));
    assert!(
        omitted.unwrap().parse::<u64>().unwrap() >= 20,
        "{omitted:?}"
    );
}

#[tokio::test]
async fn full_file_is_rotated_between_lines() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("audit.jsonl");
    let mut options = AuditOptions::default();
    (options.max_bytes, options.keep) = (Some(2_000), 2);
    let mut config = Config::default();
    config.audit = Some(Audit::open_with(&file, options).unwrap());
    let store = store::open("memory:").await.unwrap();
    let server = Server::start_with(Engine::start(store).await.unwrap(), config).await;
    for number in 0..20 {
        server.acquire(&format!("/locks/{number}?nonce=n")).await;
    }
    let old = |number| folder.path().join(format!("audit.jsonl.{number}"));
    let mut lines = Vec::new();
    for file in [old(2), old(1), file] {
        assert!(std::fs::metadata(&file).unwrap().len() <= 2_000);
        lines.extend(request_lines(&file));
    }
    assert!(!old(3).exists());
    assert_eq!(lines.pop().unwrap(), "acquire 19 granted");
    assert_eq!(lines.pop().unwrap(), "acquire 19 requested");
}
