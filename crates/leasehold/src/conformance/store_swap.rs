//! The contract of `init`, `load` and `swap`.

use super::context::TestContext;
use super::store_helpers::{delete, load, load_all, new_id, put, record, stored_body, swap, write};
use crate::store::{Swapped, Version, Write};

super::define_cases!(Store:
    facts_are_plausible,
    init_can_be_repeated,
    empty_load_returns_the_time,
    load_keeps_the_order_of_names,
    create_requires_an_absent_record,
    replace_requires_the_expected_version,
    conditional_write_never_inserts,
    delete_requires_the_expected_version,
    recreated_record_has_a_new_version,
    conflict_returns_what_a_retry_needs,
    writes_of_a_batch_are_independent,
    batches_of_the_declared_size_are_accepted,
    empty_batch_is_accepted,
    unchanged_body_is_kept,
    connections_see_the_same_records,
);

async fn facts_are_plausible(context: TestContext) {
    let facts = context.store().await.facts();
    assert!(facts.batch > 0 && facts.in_flight > 0 && !facts.poll.is_zero());
}

async fn init_can_be_repeated(context: TestContext) {
    let store = context.store().await;
    let name = context.name("kept");
    store.init().await.expect("the store is created");
    put(&*store, &name, None, &record("kept")).await;
    store.init().await.expect("the store exists already");
    assert_eq!(stored_body(&*store, &name).await.as_deref(), Some("kept"));
}

async fn empty_load_returns_the_time(context: TestContext) {
    let answer = context
        .store()
        .await
        .load(&[])
        .await
        .expect("the store answers");
    assert!(answer.value.is_empty());
    let year = answer.stamp.time.as_micros() / 1_000_000 / 31_556_952 + 1970;
    assert!((2020..2200).contains(&year), "the store's year is {year}");
}

async fn load_keeps_the_order_of_names(context: TestContext) {
    let store = context.store().await;
    let names: Vec<_> = (0..9).map(|n| context.name(&format!("{n}"))).collect();
    for name in names.iter().step_by(2) {
        put(&*store, name, None, &record(name.as_str())).await;
    }
    let requested: Vec<_> = [8, 1, 0, 7, 4, 2, 3, 6]
        .map(|n: usize| names[n].clone())
        .into();
    let loaded = load_all(&*store, &requested).await;
    for (name, stored) in requested.iter().zip(loaded) {
        let there = names.iter().step_by(2).any(|there| there == name);
        let body = stored.map(|stored| stored.record.body.to_string());
        assert_eq!(body, there.then(|| name.as_str().to_owned()));
    }
}

async fn create_requires_an_absent_record(context: TestContext) {
    let (store, name) = (context.store().await, context.name("one"));
    assert_eq!(load(&*store, &name).await, None);
    let version = put(&*store, &name, None, &record("first")).await;
    let current = load(&*store, &name).await.expect("the record exists");
    assert_eq!(
        (&current.version, &*current.record),
        (&version, &record("first"))
    );
    let second = swap(&*store, write(&name, None, &record("second"))).await;
    assert_eq!(second, Swapped::Conflict(Some(current.clone())));
    assert_eq!(load(&*store, &name).await, Some(current));
}

async fn replace_requires_the_expected_version(context: TestContext) {
    let (store, name) = (context.store().await, context.name("one"));
    let first = put(&*store, &name, None, &record("first")).await;
    let second = put(&*store, &name, Some(&first), &record("second")).await;
    let current = load(&*store, &name).await.expect("the record exists");
    assert_eq!(
        (&current.version, &*current.record.body),
        (&second, "second")
    );
    let late = swap(&*store, write(&name, Some(&first), &record("late"))).await;
    assert_eq!(late, Swapped::Conflict(Some(current.clone())));
    assert_eq!(load(&*store, &name).await, Some(current));
}

async fn conditional_write_never_inserts(context: TestContext) {
    let (store, name) = (context.store().await, context.name("one"));
    let never = Version {
        write: new_id(),
        tag: None,
    };
    let swapped = swap(&*store, write(&name, Some(&never), &record("ghost"))).await;
    assert_eq!(swapped, Swapped::Conflict(None));
    assert_eq!(load(&*store, &name).await, None);

    let version = put(&*store, &name, None, &record("there")).await;
    let gone = swap(&*store, delete(&name, &version)).await;
    assert!(matches!(gone, Swapped::Written { .. }), "{gone:?}");
    let swapped = swap(&*store, write(&name, Some(&version), &record("ghost"))).await;
    assert_eq!(swapped, Swapped::Conflict(None));
    assert_eq!(load(&*store, &name).await, None);
}

async fn delete_requires_the_expected_version(context: TestContext) {
    let (store, name) = (context.store().await, context.name("one"));
    let first = put(&*store, &name, None, &record("first")).await;
    let second = put(&*store, &name, Some(&first), &record("second")).await;
    let current = load(&*store, &name).await;
    assert_eq!(
        swap(&*store, delete(&name, &first)).await,
        Swapped::Conflict(current.clone())
    );
    assert_eq!(load(&*store, &name).await, current);
    let gone = swap(&*store, delete(&name, &second)).await;
    assert!(matches!(gone, Swapped::Written { .. }), "{gone:?}");
    assert_eq!(load(&*store, &name).await, None);
    assert_eq!(
        swap(&*store, delete(&name, &second)).await,
        Swapped::Conflict(None)
    );
}

async fn recreated_record_has_a_new_version(context: TestContext) {
    let (store, name) = (context.store().await, context.name("one"));
    let first = put(&*store, &name, None, &record("same")).await;
    swap(&*store, delete(&name, &first)).await;
    let again = put(&*store, &name, None, &record("same")).await;
    let current = load(&*store, &name).await;
    assert_ne!(first.write, again.write);
    let late = swap(&*store, write(&name, Some(&first), &record("late"))).await;
    assert_eq!(late, Swapped::Conflict(current.clone()));
    assert_eq!(
        swap(&*store, delete(&name, &first)).await,
        Swapped::Conflict(current.clone())
    );
    assert_eq!(load(&*store, &name).await, current);
}

async fn conflict_returns_what_a_retry_needs(context: TestContext) {
    let (store, name) = (context.store().await, context.name("one"));
    put(&*store, &name, None, &record("first")).await;
    let lost = swap(&*store, write(&name, None, &record("second"))).await;
    let Swapped::Conflict(Some(current)) = lost else {
        panic!("not a conflict: {lost:?}");
    };
    put(&*store, &name, Some(&current.version), &record("second")).await;
    assert_eq!(stored_body(&*store, &name).await.as_deref(), Some("second"));
}

async fn writes_of_a_batch_are_independent(context: TestContext) {
    let store = context.store().await;
    let [new, taken, changed, stale, gone, never] =
        ["new", "taken", "changed", "stale", "gone", "never"].map(|suffix| context.name(suffix));
    put(&*store, &taken, None, &record("taken")).await;
    let changed_from = put(&*store, &changed, None, &record("old")).await;
    let stale_from = put(&*store, &stale, None, &record("old")).await;
    put(&*store, &stale, Some(&stale_from), &record("newer")).await;
    let gone_from = put(&*store, &gone, None, &record("old")).await;
    let batch = vec![
        write(&stale, Some(&stale_from), &record("lost")),
        write(&new, None, &record("created")),
        write(&taken, None, &record("lost")),
        delete(&gone, &gone_from),
        write(&never, Some(&gone_from), &record("lost")),
        write(&changed, Some(&changed_from), &record("replaced")),
    ];
    let swapped = store.swap(batch).await.expect("the store answers").value;
    let written: Vec<_> = swapped
        .iter()
        .map(|swapped| matches!(swapped, Swapped::Written { .. }))
        .collect();
    assert_eq!(
        written,
        [false, true, false, true, false, true],
        "{swapped:?}"
    );
    let names = [new, taken, changed, stale, gone, never];
    let bodies: Vec<_> = load_all(&*store, &names)
        .await
        .into_iter()
        .map(|stored| stored.map(|stored| stored.record.body.to_string()))
        .collect();
    let expected = [
        Some("created"),
        Some("taken"),
        Some("replaced"),
        Some("newer"),
        None,
        None,
    ];
    assert_eq!(bodies, expected.map(|body| body.map(str::to_owned)));
}

async fn batches_of_the_declared_size_are_accepted(context: TestContext) {
    let store = context.store().await;
    let names: Vec<_> = (0..store.facts().batch)
        .map(|n| context.name(&format!("{n:05}")))
        .collect();
    let create = names
        .iter()
        .map(|name| write(name, None, &record(name.as_str())));
    let swapped = store
        .swap(create.collect())
        .await
        .expect("the store answers")
        .value;
    assert_eq!(swapped.len(), names.len());
    assert!(
        swapped
            .iter()
            .all(|swapped| matches!(swapped, Swapped::Written { .. }))
    );
    let loaded = load_all(&*store, &names).await;
    let mut removal = Vec::new();
    for (name, stored) in names.iter().zip(loaded) {
        let stored = stored.unwrap_or_else(|| panic!("the acknowledged write of {name:?} is lost"));
        assert_eq!(&*stored.record.body, name.as_str());
        removal.push(delete(name, &stored.version));
    }
    let swapped = store.swap(removal).await.expect("the store answers").value;
    assert!(
        swapped
            .iter()
            .all(|swapped| matches!(swapped, Swapped::Written { .. }))
    );
    assert!(load_all(&*store, &names).await.iter().all(Option::is_none));
}

async fn empty_batch_is_accepted(context: TestContext) {
    let answer = context.store().await.swap(Vec::new()).await;
    assert!(answer.expect("the store answers").value.is_empty());
}

async fn unchanged_body_is_kept(context: TestContext) {
    let (store, name) = (context.store().await, context.name("one"));
    let long = "0123456789abcdef".repeat(4096);
    let mut current = record(&long);
    let first = put(&*store, &name, None, &current).await;
    current.put = Some(leasehold_core::Hash::of(&[b"changed"]));
    let id = new_id();
    let renewal = Write {
        name: name.clone(),
        expect: Some(first.clone()),
        put: Some((id, current.clone().into())),
        body_changed: false,
    };
    let swapped = swap(&*store, renewal.clone()).await;
    assert!(matches!(swapped, Swapped::Written { .. }), "{swapped:?}");
    let stored = load(&*store, &name).await.expect("the record exists");
    assert_eq!((stored.version.write, &*stored.record), (id, &current));
    let late = swap(&*store, renewal).await;
    assert_eq!(
        late,
        Swapped::Conflict(Some(stored)),
        "the expected version is checked also without a body"
    );
}

async fn connections_see_the_same_records(context: TestContext) {
    let (one, other) = (context.store().await, context.store().await);
    let name = context.name("one");
    let version = put(&*one, &name, None, &record("first")).await;
    let version = put(&*other, &name, Some(&version), &record("second")).await;
    assert_eq!(stored_body(&*one, &name).await.as_deref(), Some("second"));
    put(&*one, &name, Some(&version), &record("third")).await;
    assert_eq!(stored_body(&*other, &name).await.as_deref(), Some("third"));
}
