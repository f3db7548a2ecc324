//! Work items, and records that nobody needs any more.

use std::time::Duration;

use leasehold_core::{Hash, Kind, Operation, Outcome, Put, Record, Update, limits};

use super::bench::{Bench, nonce_hash};
use super::engine::{granted, perform, release_of, stored};
use super::store_kit::{delete, fence, load, put, record, swap};
use crate::Error;
use crate::engine::{Patience, Purged};
use crate::store::Swapped;

super::promises!(Engine:
    an_item_is_put_and_removed,
    a_repeated_put_resets_nothing,
    a_leased_item_is_neither_put_nor_removed,
    an_old_free_and_empty_record_is_purged,
    a_purge_deletes_the_old_and_keeps_the_rest,
    what_is_in_use_is_not_purged,
    fences_grow_over_a_purge,
    fences_of_one_engine_grow_when_the_database_is_emptied,
);

const PURGE: Operation = Operation::Purge {
    retention: limits::MIN_RETENTION,
};

async fn an_item_is_put_and_removed(bench: Bench) {
    let (engine, name) = (bench.engine().await, bench.name("item"));
    for (state, body) in [("REQUESTED", "1"), ("DONE", "2")] {
        assert_eq!(
            perform(&engine, &name, put_of(state, body, None)).await,
            Outcome::Put
        );
        let item = stored(&bench, &name).await.expect("it is there");
        assert_eq!(
            (item.state.map(|state| state.label.to_string()), &*item.body),
            (Some(state.into()), body)
        );
    }
    assert_eq!(
        perform(&engine, &name, Operation::Remove).await,
        Outcome::Removed
    );
    let item = stored(&bench, &name)
        .await
        .expect("the record stays until it is purged");
    assert_eq!((item.state, &*item.body), (None, ""));
    assert_eq!(
        perform(&engine, &name, Operation::Remove).await,
        Outcome::Removed
    );
    let never = bench.name("never");
    assert_eq!(
        perform(&engine, &never, Operation::Remove).await,
        Outcome::Removed
    );
    assert_eq!(stored(&bench, &never).await, None);
}

async fn a_repeated_put_resets_nothing(bench: Bench) {
    let (engine, name) = (bench.engine().await, bench.name("item"));
    let again = put_of("REQUESTED", "new", Some(nonce_hash()));
    assert_eq!(perform(&engine, &name, again.clone()).await, Outcome::Put);
    let fence = granted(&engine, &name).await;
    let finish = Operation::Update(Update {
        fence,
        principal: None,
        body: Some("finished".into()),
        state: Some(Some("DONE".into())),
        then_release: true,
    });
    assert_eq!(perform(&engine, &name, finish).await, Outcome::Completed);
    assert_eq!(perform(&engine, &name, again).await, Outcome::Put);
    let item = stored(&bench, &name).await.expect("it is there");
    assert_eq!(&*item.body, "finished");
}

async fn a_leased_item_is_neither_put_nor_removed(bench: Bench) {
    let (engine, name) = (bench.engine().await, bench.name("item"));
    perform(&engine, &name, put_of("REQUESTED", "kept", None)).await;
    granted(&engine, &name).await;
    for operation in [put_of("REQUESTED", "other", None), Operation::Remove] {
        let outcome = perform(&engine, &name, operation).await;
        assert!(
            matches!(&outcome, Outcome::Held(held) if &*held.owner == "ada"),
            "{outcome:?}"
        );
    }
    assert_eq!(
        stored(&bench, &name)
            .await
            .map(|item| item.body.to_string()),
        Some("kept".into())
    );
}

async fn an_old_free_and_empty_record_is_purged(bench: Bench) {
    let (engine, name) = (bench.engine().await, bench.name("old"));
    put(&*bench.store().await, &name, None, &old()).await;
    assert_eq!(perform(&engine, &name, PURGE).await, Outcome::Purged);
    assert_eq!(stored(&bench, &name).await, None);
    assert_eq!(perform(&engine, &name, PURGE).await, Outcome::Purged);
}

async fn a_purge_deletes_the_old_and_keeps_the_rest(bench: Bench) {
    let (store, engine) = (bench.store().await, bench.engine().await);
    let held = bench.name("held");
    let fence = granted(&engine, &held).await;
    for kind in [Kind::Lock, Kind::Gate] {
        for number in 0..3 {
            put(
                &*store,
                &bench.of_kind(kind, &format!("old-{number}")),
                None,
                &old(),
            )
            .await;
        }
    }
    let mut told = Purged::default();
    let purged = engine
        .purge(bench.prefix(), limits::MIN_RETENTION, |so_far| {
            told = so_far
        })
        .await
        .expect("the store answers");
    assert_eq!((purged.deleted, told), (6, purged));
    assert_eq!(
        stored(&bench, &bench.of_kind(Kind::Gate, "old-1")).await,
        None
    );
    perform(&engine, &held, release_of(fence)).await;
    let hasty = engine.purge(bench.prefix(), Duration::ZERO, |_| ()).await;
    assert!(matches!(hasty, Err(Error::Invalid(_))), "{hasty:?}");
    assert!(stored(&bench, &held).await.is_some());
}

async fn what_is_in_use_is_not_purged(bench: Bench) {
    let (store, engine) = (bench.store().await, bench.engine().await);
    let (young, held, full) = (bench.name("young"), bench.name("held"), bench.name("full"));
    let fence = granted(&engine, &young).await;
    perform(&engine, &young, release_of(fence)).await;
    granted(&engine, &held).await;
    let body = Record {
        body: "kept".into(),
        ..old()
    };
    put(&*store, &full, None, &body).await;
    for name in [young, held, full] {
        let before = stored(&bench, &name).await;
        assert_eq!(
            perform(&engine, &name, PURGE).await,
            Outcome::NotPurged,
            "{name}"
        );
        assert_eq!(stored(&bench, &name).await, before);
    }
    let hasty = Operation::Purge {
        retention: Duration::from_secs(1),
    };
    let answer = engine
        .perform(&bench.name("x"), hasty, Patience::NONE)
        .await;
    assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
}

async fn fences_grow_over_a_purge(bench: Bench) {
    let (engine, name) = (bench.engine().await, bench.name("old"));
    put(&*bench.store().await, &name, None, &old()).await;
    assert_eq!(perform(&engine, &name, PURGE).await, Outcome::Purged);
    assert!(granted(&engine, &name).await > old().fence);
    let kept = bench.name("kept");
    put(&*bench.store().await, &kept, None, &old()).await;
    let next = granted(&engine, &kept).await;
    assert_eq!(next.get(), old().fence.get() + 1);
    perform(&engine, &kept, release_of(next)).await;
    // Its release may still be repeated: the record has to remember it for as long as a request may live.
    assert_eq!(perform(&engine, &kept, PURGE).await, Outcome::NotPurged);
}

async fn fences_of_one_engine_grow_when_the_database_is_emptied(bench: Bench) {
    let (store, engine, name) = (bench.store().await, bench.engine().await, bench.name("one"));
    let mut last = granted(&engine, &name).await;
    for _ in 0..10 {
        perform(&engine, &name, release_of(last)).await;
        let kept = load(&*store, &name).await.expect("it is there");
        let deleted = swap(&*store, delete(&name, &kept.version)).await;
        assert!(matches!(deleted, Swapped::Written { .. }), "{deleted:?}");
        let next = granted(&engine, &name).await;
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}

fn put_of(state: &str, body: &str, nonce: Option<Hash>) -> Operation {
    Operation::Put(Put {
        state: state.into(),
        body: Some(body.into()),
        nonce,
    })
}

/// A record whose last fence was granted long ago.
fn old() -> Record {
    Record {
        fence: fence(1_000_000_000_000_001),
        ..record("")
    }
}
