//! A server that closes an idle connection just when the client reuses it: the request is lost on a healthy network.

use leasehold::Client;
use leasehold::Error;
use leasehold::core::{Kind, Name};
use leasehold::engine::Engine;
use leasehold::store::{self, Query, Swapped};
use leasehold_testbed::Proxy;
use std::sync::Arc;

use crate::records::{create, load_one, record, replace};

/// Checks that the store retries reads, and that the engine resolves ambiguous writes, so that operations succeed.
pub(crate) async fn operations_succeed(url: &str, proxy: &Proxy) {
    let store = store::open(url).await.expect("it opens");
    let name = Name::lock("idle").expect("a valid name");
    let written = store.swap(vec![create(&name, record(1, ""))]).await;
    assert!(written.is_ok(), "{written:?}");

    proxy.cut_on_next_use();
    let current = load_one(&*store, &name).await.expect("the record exists");
    proxy.cut_on_next_use();
    let found = store.find(&Query::all(Kind::Lock)).await;
    assert_eq!(found.expect("it finds").value.records.len(), 1);
    proxy.cut_on_next_use();
    let swapped = store.swap(vec![replace(&name, &current, record(2, ""))]);
    match swapped.await.map(|answer| answer.value) {
        Err(Error::Indeterminate(_)) => {}
        Ok(swapped) if matches!(swapped[..], [Swapped::Failed(Error::Indeterminate(_))]) => {}
        other => panic!("a write that was sent may have happened: {other:?}"),
    }

    let engine = Engine::start(store).await.expect("it starts");
    let client = Client::new(Arc::new(engine.clone()));
    let lease = client.lease("held").acquire().await.expect("it is free");
    for body in ["one", "two"] {
        proxy.cut_on_next_use();
        lease.update(body).await.expect("it succeeds");
        proxy.cut_on_next_use();
        let shown = engine.show(lease.name()).await.expect("it answers");
        assert_eq!(&*shown.expect("a record").record.body, body);
    }
    proxy.cut_on_next_use();
    lease.release().await.expect("it succeeds");
    client.close().await;
}
