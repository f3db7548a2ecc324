//! PostgreSQL behind PgBouncer in transaction mode, where each statement may meet another session.
#![cfg(feature = "postgres")]

mod postgres_support;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::core::Outcome;
use leasehold::engine::Engine;
use leasehold::store::Swapped;
use postgres_support::*;
use tempfile::TempDir;

/// A PgBouncer that ends with the test.
struct Bouncer {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Bouncer {
    /// In front of this server, with two sessions for everybody.
    async fn to(server: u16) -> Self {
        let folder = TempDir::new().unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 2\n\
             unix_socket_dir =\n"
        );
        // As the server's own user: it refuses to run as root.
        let settings = settings
            .replace("* =", "leasehold =")
            .replace("port=", "user=postgres port=");
        std::fs::write(folder.path().join("ini"), settings).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"]
            .into_iter()
            .find(|program| Path::new(program).exists())
            .expect("the tests need `pgbouncer`: run `testbed/install postgres`");
        let mut command = Command::new(program);
        let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
        if is_root {
            command.args(["-u", "postgres"]);
        }
        let child = command
            .arg(folder.path().join("ini"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let bouncer = Self {
            child,
            port,
            _folder: folder,
        };
        for _ in 0..500 {
            if tokio::net::TcpStream::connect(("127.0.0.1", port))
                .await
                .is_ok()
            {
                return bouncer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("PgBouncer does not come up");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_lose_nothing_in_sessions_that_are_never_the_same() {
    let server = leasehold_testbed::shared("postgres").await.unwrap();
    let bouncer = Bouncer::to(server.port()).await;
    let ground = Ground::on(bouncer.port);
    let names: Vec<_> = (0..4).map(|n| name(&format!("counter {n}"))).collect();
    let first = ground.open().await;
    let zeros = names.iter().map(|name| create(name, record(1, "0")));
    first.swap(zeros.collect()).await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let (store, names) = (ground.open().await, names.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..8 {
                let mut left = names.clone();
                while !left.is_empty() {
                    let loaded = store.load(&left).await.unwrap().value;
                    let batch = left.iter().zip(loaded).map(|(name, stored)| {
                        let stored = stored.unwrap();
                        let count: u32 = stored.record.body.parse().unwrap();
                        replace(name, &stored, record(1, &(count + 1).to_string()))
                    });
                    let swapped = store.swap(batch.collect()).await.unwrap().value;
                    let mut answers = swapped.into_iter();
                    left.retain(|_| !matches!(answers.next(), Some(Swapped::Written { .. })));
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for stored in first.load(&names).await.unwrap().value {
        assert_eq!(&*stored.unwrap().record.body, "48");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_take_turns_through_it() {
    let server = leasehold_testbed::shared("postgres").await.unwrap();
    let bouncer = Bouncer::to(server.port()).await;
    let ground = Ground::on(bouncer.port);
    let name = name("turns");
    let mut tasks = Vec::new();
    for engine in 0..3 {
        let engine_on = Engine::start(ground.open().await).await.unwrap();
        let name = name.clone();
        tasks.push(tokio::spawn(async move {
            for round in 0..4 {
                let nonce = format!("{engine} {round}");
                let fence = grant(&engine_on, &name, &nonce, Duration::from_secs(60)).await;
                assert_eq!(
                    release(&engine_on, &name, fence).await,
                    Ok(Outcome::Released)
                );
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}
