//! Work items, and purging of unused records.

use std::time::Duration;

use leasehold_core::{Hash, Kind, Operation, Outcome, Put, Record, Update, limits};

use super::context::{TestContext, nonce_hash};
use super::engine::{granted, perform, release_operation, stored};
use super::store_helpers::{delete, fence, load, put, record, swap};
use crate::Error;
use crate::engine::{PurgeProgress, WaitLimit};
use crate::store::Swapped;

super::define_cases!(Engine:
    items_can_be_put_and_removed,
    repeated_put_changes_nothing,
    leased_item_cannot_be_put_or_removed,
    old_free_empty_record_is_purged,
    purge_deletes_only_old_records,
    records_in_use_are_not_purged,
    fences_increase_across_a_purge,
    fences_of_one_engine_increase_when_the_database_is_emptied,
);

const PURGE: Operation = Operation::Purge {
    retention: limits::MIN_RETENTION,
};

async fn items_can_be_put_and_removed(context: TestContext) {
    let (engine, name) = (context.engine().await, context.name("item"));
    for (state, body) in [("REQUESTED", "1"), ("DONE", "2")] {
        assert_eq!(
            perform(&engine, &name, put_operation(state, body, None)).await,
            Outcome::Put
        );
        let item = stored(&context, &name).await.expect("the record exists");
        assert_eq!(
            (item.state.map(|state| state.label.to_string()), &*item.body),
            (Some(state.into()), body)
        );
    }
    assert_eq!(
        perform(&engine, &name, Operation::Remove).await,
        Outcome::Removed
    );
    let item = stored(&context, &name)
        .await
        .expect("the record stays until it is purged");
    assert_eq!((item.state, &*item.body), (None, ""));
    assert_eq!(
        perform(&engine, &name, Operation::Remove).await,
        Outcome::Removed
    );
    let never = context.name("never");
    assert_eq!(
        perform(&engine, &never, Operation::Remove).await,
        Outcome::Removed
    );
    assert_eq!(stored(&context, &never).await, None);
}

async fn repeated_put_changes_nothing(context: TestContext) {
    let (engine, name) = (context.engine().await, context.name("item"));
    let again = put_operation("REQUESTED", "new", Some(nonce_hash()));
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
    let item = stored(&context, &name).await.expect("the record exists");
    assert_eq!(&*item.body, "finished");
}

async fn leased_item_cannot_be_put_or_removed(context: TestContext) {
    let (engine, name) = (context.engine().await, context.name("item"));
    perform(&engine, &name, put_operation("REQUESTED", "kept", None)).await;
    granted(&engine, &name).await;
    for operation in [put_operation("REQUESTED", "other", None), Operation::Remove] {
        let outcome = perform(&engine, &name, operation).await;
        assert!(
            matches!(&outcome, Outcome::Held(held) if &*held.owner == "ada"),
            "{outcome:?}"
        );
    }
    assert_eq!(
        stored(&context, &name)
            .await
            .map(|item| item.body.to_string()),
        Some("kept".into())
    );
}

async fn old_free_empty_record_is_purged(context: TestContext) {
    let (engine, name) = (context.engine().await, context.name("old"));
    put(&*context.store().await, &name, None, &old()).await;
    assert_eq!(perform(&engine, &name, PURGE).await, Outcome::Purged);
    assert_eq!(stored(&context, &name).await, None);
    assert_eq!(perform(&engine, &name, PURGE).await, Outcome::Purged);
}

async fn purge_deletes_only_old_records(context: TestContext) {
    let (store, engine) = (context.store().await, context.engine().await);
    let held = context.name("held");
    let fence = granted(&engine, &held).await;
    for kind in [Kind::Lock, Kind::Gate] {
        for number in 0..3 {
            put(
                &*store,
                &context.name_of_kind(kind, &format!("old-{number}")),
                None,
                &old(),
            )
            .await;
        }
    }
    let mut progress = PurgeProgress::default();
    let purged = engine
        .purge(context.prefix(), limits::MIN_RETENTION, |so_far| {
            progress = so_far
        })
        .await
        .expect("the store answers");
    assert_eq!((purged.deleted, progress), (6, purged));
    assert_eq!(
        stored(&context, &context.name_of_kind(Kind::Gate, "old-1")).await,
        None
    );
    perform(&engine, &held, release_operation(fence)).await;
    let too_short = engine.purge(context.prefix(), Duration::ZERO, |_| ()).await;
    assert!(matches!(too_short, Err(Error::Invalid(_))), "{too_short:?}");
    assert!(stored(&context, &held).await.is_some());
}

async fn records_in_use_are_not_purged(context: TestContext) {
    let (store, engine) = (context.store().await, context.engine().await);
    let (young, held, full) = (
        context.name("young"),
        context.name("held"),
        context.name("full"),
    );
    let fence = granted(&engine, &young).await;
    perform(&engine, &young, release_operation(fence)).await;
    granted(&engine, &held).await;
    let body = Record {
        body: "kept".into(),
        ..old()
    };
    put(&*store, &full, None, &body).await;
    for name in [young, held, full] {
        let before = stored(&context, &name).await;
        assert_eq!(
            perform(&engine, &name, PURGE).await,
            Outcome::NotPurged,
            "{name}"
        );
        assert_eq!(stored(&context, &name).await, before);
    }
    let too_short = Operation::Purge {
        retention: Duration::from_secs(1),
    };
    let answer = engine
        .perform(&context.name("x"), too_short, WaitLimit::NONE)
        .await;
    assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
}

async fn fences_increase_across_a_purge(context: TestContext) {
    let (engine, name) = (context.engine().await, context.name("old"));
    put(&*context.store().await, &name, None, &old()).await;
    assert_eq!(perform(&engine, &name, PURGE).await, Outcome::Purged);
    assert!(granted(&engine, &name).await > old().fence);
    let kept = context.name("kept");
    put(&*context.store().await, &kept, None, &old()).await;
    let next = granted(&engine, &kept).await;
    assert_eq!(next.get(), old().fence.get() + 1);
    perform(&engine, &kept, release_operation(next)).await;
    // The release may be repeated: the record must keep it for the maximum lifetime of a request.
    assert_eq!(perform(&engine, &kept, PURGE).await, Outcome::NotPurged);
}

async fn fences_of_one_engine_increase_when_the_database_is_emptied(context: TestContext) {
    let (store, engine, name) = (
        context.store().await,
        context.engine().await,
        context.name("one"),
    );
    let mut last = granted(&engine, &name).await;
    for _ in 0..10 {
        perform(&engine, &name, release_operation(last)).await;
        let kept = load(&*store, &name).await.expect("the record exists");
        let deleted = swap(&*store, delete(&name, &kept.version)).await;
        assert!(matches!(deleted, Swapped::Written { .. }), "{deleted:?}");
        let next = granted(&engine, &name).await;
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}

fn put_operation(state: &str, body: &str, nonce: Option<Hash>) -> Operation {
    Operation::Put(Put {
        state: state.into(),
        body: Some(body.into()),
        nonce,
    })
}

/// Returns a record whose last fence was granted long ago.
fn old() -> Record {
    Record {
        fence: fence(1_000_000_000_000_001),
        ..record("")
    }
}
