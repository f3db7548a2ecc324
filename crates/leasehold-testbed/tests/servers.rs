//! The basis of every test: each server starts, restarts on its port after a kill, and leaves nothing behind, even if
//! the test itself is killed. A server that is not installed is shown as ignored; under `CI=true` that is a failure.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_testbed::{Cluster, SERVERS, Server, installed};
use libtest_mimic::{Arguments, Failed, Trial};

/// Set for a copy of this program that only starts a server, and is then killed.
const VICTIM: &str = "LEASEHOLD_TESTBED_VICTIM";

fn main() {
    if std::env::var_os(VICTIM).is_some() {
        return runtime().block_on(run_as_victim());
    }
    let mut trials: Vec<_> = SERVERS
        .into_iter()
        .map(|name| trial("starts_restarts_and_ends", name, starts_restarts_and_ends))
        .collect();
    for name in ["etcd", "mongodb"] {
        trials.push(trial("replaces_its_leader", name, replaces_its_leader));
    }
    trials.push(trial("is_reachable_through_pgbouncer", "postgres", |_| {
        runtime().block_on(is_reachable_through_pgbouncer());
    }));
    for name in ["cosmos", "redis"] {
        trials.push(trial(
            "can_be_started_manually",
            name,
            can_be_started_manually,
        ));
    }
    trials.push(trial("ends_with_a_killed_test", "postgres", |_| {
        ends_with_a_killed_test();
    }));
    trials.push(trial(
        "unknown_server_is_reported_as_missing",
        "redis",
        |_| {
            assert!(
                installed("teapot")
                    .unwrap_err()
                    .to_string()
                    .contains("teapot")
            );
        },
    ));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn trial(case: &str, server: &'static str, run: fn(&'static str)) -> Trial {
    let present = installed(server);
    let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    let ignored = present.is_err() && !is_ci;
    Trial::test(format!("{server}::{case}"), move || {
        present.map_err(Failed::from)?;
        run(server);
        Ok(())
    })
    .with_ignored_flag(ignored)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("a runtime")
}

fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

fn starts_restarts_and_ends(name: &str) {
    let server = runtime().block_on(async {
        let server = Server::start(name).await.unwrap();
        assert!(server.url().contains(&server.port().to_string()));
        server.kill().await;
        assert!(!is_open(server.port()), "killed");
        server.restart().await;
        assert!(is_open(server.port()), "restarted");
        server.stop().await;
        assert!(!is_open(server.port()), "stopped");
        server.restart().await;
        server
    });
    let (port, folder) = (server.port(), server.folder().to_owned());
    assert!(is_open(port), "runs on after the runtime that started it");
    drop(server);
    assert!(!is_open(port), "ends with its handle");
    assert!(!folder.exists(), "the folder is removed with the server");
}

fn replaces_its_leader(name: &str) {
    runtime().block_on(async {
        let cluster = Cluster::start(name, 3).await.unwrap();
        for node in cluster.nodes() {
            assert!(cluster.url().contains(&node.port().to_string()));
        }
        let killed = cluster.kill_leader().await;
        let next = cluster.leader().await;
        assert_ne!(next.port(), killed.port());
        killed.restart().await;
    });
}

async fn is_reachable_through_pgbouncer() {
    let postgres = Server::start("postgres").await.unwrap();
    let pgbouncer = postgres.behind_pgbouncer().await.unwrap();
    assert_eq!(pgbouncer.url(), postgres.url_at(pgbouncer.port()));
    assert!(is_open(pgbouncer.port()));
}

/// Checks that the program prints the store URL of a server, which serves until the program ends.
fn can_be_started_manually(name: &str) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_leasehold-testbed"))
        .arg(name)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let url = lines.next().expect("a store URL").unwrap();
    let (_, address) = url
        .split_once("127.0.0.1:")
        .expect("an address on loopback");
    let port: String = address.chars().take_while(char::is_ascii_digit).collect();
    let port = port.parse().expect("a port");
    assert!(
        url.starts_with(&format!("{name}://")) && is_open(port),
        "{url}"
    );
    program.kill().unwrap();
    program.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while is_open(port) {
        assert!(Instant::now() < deadline, "{url} is still reachable");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Checks that a server ends with a killed test: PostgreSQL's processes leave the group that they were started in.
fn ends_with_a_killed_test() {
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let port: u16 = lines.next().unwrap().unwrap().parse().unwrap();
    let folder = std::path::PathBuf::from(lines.next().unwrap().unwrap());
    assert!(is_open(port) && folder.exists());
    victim.kill().unwrap();
    victim.wait().unwrap();

    let deadline = Instant::now() + Duration::from_secs(30);
    while is_open(port) || folder.exists() {
        assert!(
            Instant::now() < deadline,
            "{} still exists",
            folder.display()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

async fn run_as_victim() {
    let server = Server::start("postgres").await.unwrap();
    println!("{}\n{}", server.port(), server.folder().display());
    std::future::pending::<()>().await;
}
