//! A primary with a replica, on Redis or Valkey.

use std::time::Duration;

use leasehold::Error;
use leasehold::core::{Kind, Name};
use leasehold::store::{self, Query, Store, Stored};
use leasehold_testbed::{Proxy, Server};

use crate::records::{create, record, replace};
use crate::redis_support::run_command;

/// Starts a replica, and waits until it is up to date.
pub(crate) async fn start_replica(scheme: &str, primary: &Server) -> Server {
    let replica = Server::builder(scheme)
        .arg("--replicaof")
        .arg(format!("127.0.0.1 {}", primary.port()))
        .start()
        .await
        .expect("installed");
    wait_for_replication(primary, "state=online").await;
    replica
}

/// Waits until a server reports this about its replication.
pub(crate) async fn wait_for_replication(server: &Server, words: &str) {
    while !run_command::<String>(server, "INFO replication")
        .await
        .contains(words)
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Checks that with `?wait=1` a write that no replica has is never confirmed, neither by a read, a search nor a
/// conflict, and also not on another connection.
pub(crate) async fn unreplicated_write_is_never_confirmed(scheme: &str) {
    let primary = Server::start(scheme).await.expect("installed");
    let replica = start_replica(scheme, &primary).await;
    let proxy = Proxy::to(primary.port()).await;
    let options = "?changes=off&wait=1&wait_timeout=200ms";
    let url = primary.url_at(proxy.port()) + options;
    let store = store::open(&url).await.expect("opens");
    let name = Name::lock("job").expect("a valid name");
    // On a busy machine the replica may be late, which does not undo the write.
    let _ = store.swap(vec![create(&name, record(1, ""))]).await;
    let first = confirmed(&*store, &name).await;

    replica.pause().await;
    let write = replace(&name, &first, record(2, ""));
    let written = store.swap(vec![write]).await;
    assert!(
        matches!(written, Err(Error::Indeterminate(_))),
        "{written:?}"
    );
    for _ in 0..2 {
        // The next call opens a new connection, which has written nothing.
        proxy.cut();
        loop {
            let loaded = store.load(std::slice::from_ref(&name)).await;
            let message = loaded.expect_err("no replica has it").to_string();
            // A connection that was cut first reports another error.
            if message.contains("replicas") {
                break;
            }
        }
        proxy.cut();
        loop {
            let found = store.find(&Query::all(Kind::Lock)).await;
            let message = found.expect_err("no replica has it").to_string();
            if message.contains("replicas") {
                break;
            }
        }
        proxy.cut();
        loop {
            let conflict = store.swap(vec![create(&name, record(9, ""))]).await;
            let message = conflict.expect_err("no replica has it").to_string();
            if message.contains("replicas") {
                break;
            }
        }
    }
    replica.resume().await;
    let second = confirmed(&*store, &name).await;
    assert_eq!(second.record.fence.get(), 2);
}

/// Returns the record once the replica has it.
async fn confirmed(store: &dyn Store, name: &Name) -> Stored {
    loop {
        match store.load(std::slice::from_ref(name)).await {
            Ok(mut loaded) => return loaded.value.remove(0).expect("the record exists"),
            Err(error) => assert!(matches!(error, Error::Unavailable(_)), "{error:?}"),
        }
    }
}
