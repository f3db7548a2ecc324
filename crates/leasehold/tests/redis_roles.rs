//! Redis servers that change roles under an open connection, and the state of replicas.
#![cfg(feature = "redis")]

mod records;
mod redis_support;
#[path = "redis_support/replicas.rs"]
mod replicas;

use leasehold::core::{Kind, Name};
use leasehold::engine::Engine;
use leasehold::store::{self, Query};
use leasehold::{Client, Error, ListRequest};
use leasehold_testbed::Server;
use records::{create, load_one, record, replace};
use redis_support::{connect, run_command};
use replicas::{start_replica, wait_for_replication};

#[tokio::test]
async fn unreplicated_write_is_never_confirmed() {
    replicas::unreplicated_write_is_never_confirmed("redis").await;
}

/// Promotes the replica, and makes the primary its replica, without losing data.
async fn fail_over(primary: &Server, replica: &Server) {
    // `WAIT` waits for the writes of its own connection only, so it follows one.
    let mut writes = redis::pipe();
    writes.cmd("SET").arg("last write").arg(1).ignore();
    writes.cmd("WAIT").arg(1).arg(10_000);
    let replicas: (u32,) = writes
        .query_async(&mut connect(primary).await)
        .await
        .expect("an answer");
    assert_eq!(replicas, (1,), "the replica has all writes");
    run_command::<()>(replica, "REPLICAOF NO ONE").await;
    run_command::<()>(primary, &format!("REPLICAOF 127.0.0.1 {}", replica.port())).await;
}

fn assert_demoted<T: std::fmt::Debug>(answer: Result<T, Error>) {
    match answer {
        Err(Error::Unavailable(why)) if why.contains("has become a replica") => {}
        other => panic!("a replica answered: {other:?}"),
    }
}

#[tokio::test]
async fn demoted_primary_answers_no_call_of_the_store() {
    let primary = Server::start("redis").await.expect("installed");
    let replica = start_replica("redis", &primary).await;
    for options in ["", "?wait=1&wait_timeout=60s"] {
        let store = store::open(&(primary.url() + options)).await;
        let store = store.expect("opens");
        let name = Name::lock(format!("job{options}")).expect("a valid name");
        let written = store.swap(vec![create(&name, record(1, ""))]).await;
        written.expect("written");
        let current = load_one(&*store, &name).await.expect("the record exists");

        fail_over(&primary, &replica).await;
        assert_demoted(store.load(std::slice::from_ref(&name)).await);
        assert_demoted(store.load(&[]).await);
        assert_demoted(store.find(&Query::all(Kind::Lock)).await);
        let write = replace(&name, &current, record(2, ""));
        assert_demoted(store.swap(vec![write]).await);
        // A conflict writes nothing, but is an answer nevertheless.
        assert_demoted(store.swap(vec![create(&name, record(1, ""))]).await);

        wait_for_replication(&primary, "master_link_status:up").await;
        fail_over(&replica, &primary).await;
        wait_for_replication(&primary, "state=online").await;
        let loaded = load_one(&*store, &name).await;
        assert_eq!(loaded.expect("the record exists").version, current.version);
    }
}

#[tokio::test]
async fn demoted_primary_answers_no_call_of_the_engine() {
    let primary = Server::start("redis").await.expect("installed");
    let replica = start_replica("redis", &primary).await;
    let store = store::open(&primary.url()).await.expect("opens");
    let engine = Engine::start(store).await.expect("starts");
    let client = Client::new(std::sync::Arc::new(engine.clone()));
    let lease = client.lease("job").acquire().await.expect("granted");
    fail_over(&primary, &replica).await;
    // The record of the old primary is outdated.
    let elsewhere = leasehold::connect(&replica.url()).await.expect("connects");
    let name = Name::lock("job").expect("a valid name");
    let force = leasehold::BreakRequest::Force {
        fence: None,
        reason: "test".into(),
        now: true,
    };
    let broken = elsewhere.leases().break_lease(&name, force).await;
    broken.expect("broken");

    assert_demoted(engine.show(&name).await);
    assert_demoted(engine.list(ListRequest::default()).await);
    assert_demoted(client.lease("other").acquire().await.map(drop));
    assert_demoted(lease.update("step 3").await);
}
