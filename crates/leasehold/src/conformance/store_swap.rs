//! What `load` and `swap` promise.

use super::bench::Bench;
use super::store_kit::{delete, load, load_all, new_id, put, record, stored_body, swap, write};
use crate::store::{Swapped, Version, Write};

super::promises!(Store:
    says_what_an_engine_needs_to_know,
    prepares_itself_again_and_again,
    tells_the_time_when_nothing_is_asked,
    loads_in_the_order_asked,
    creates_only_where_nothing_is,
    replaces_only_the_version_it_expects,
    a_write_with_a_version_never_inserts,
    deletes_only_the_version_it_expects,
    a_name_that_comes_back_is_another_version,
    a_loser_can_try_again_with_what_it_got,
    each_write_of_a_batch_stands_alone,
    takes_batches_of_the_size_it_declares,
    takes_an_empty_batch,
    keeps_a_body_that_did_not_change,
    a_second_connection_sees_the_same,
);

async fn says_what_an_engine_needs_to_know(bench: Bench) {
    let facts = bench.store().await.facts();
    assert!(facts.batch > 0 && facts.in_flight > 0 && !facts.poll.is_zero());
}

async fn prepares_itself_again_and_again(bench: Bench) {
    let store = bench.store().await;
    let name = bench.name("kept");
    store.init().await.expect("it prepares itself");
    put(&*store, &name, None, &record("kept")).await;
    store.init().await.expect("it is prepared already");
    assert_eq!(stored_body(&*store, &name).await.as_deref(), Some("kept"));
}

async fn tells_the_time_when_nothing_is_asked(bench: Bench) {
    let answer = bench.store().await.load(&[]).await.expect("it answers");
    assert!(answer.value.is_empty());
    let year = answer.stamp.time.as_micros() / 1_000_000 / 31_556_952 + 1970;
    assert!((2020..2200).contains(&year), "it says that it is {year}");
}

async fn loads_in_the_order_asked(bench: Bench) {
    let store = bench.store().await;
    let names: Vec<_> = (0..9).map(|n| bench.name(&format!("{n}"))).collect();
    for name in names.iter().step_by(2) {
        put(&*store, name, None, &record(name.as_str())).await;
    }
    let asked: Vec<_> = [8, 1, 0, 7, 4, 2, 3, 6]
        .map(|n: usize| names[n].clone())
        .into();
    let loaded = load_all(&*store, &asked).await;
    for (name, stored) in asked.iter().zip(loaded) {
        let there = names.iter().step_by(2).any(|there| there == name);
        let body = stored.map(|stored| stored.record.body.to_string());
        assert_eq!(body, there.then(|| name.as_str().to_owned()));
    }
}

async fn creates_only_where_nothing_is(bench: Bench) {
    let (store, name) = (bench.store().await, bench.name("one"));
    assert_eq!(load(&*store, &name).await, None);
    let version = put(&*store, &name, None, &record("first")).await;
    let current = load(&*store, &name).await.expect("it is there");
    assert_eq!(
        (&current.version, &*current.record),
        (&version, &record("first"))
    );
    let second = swap(&*store, write(&name, None, &record("second"))).await;
    assert_eq!(second, Swapped::Conflict(Some(current.clone())));
    assert_eq!(load(&*store, &name).await, Some(current));
}

async fn replaces_only_the_version_it_expects(bench: Bench) {
    let (store, name) = (bench.store().await, bench.name("one"));
    let first = put(&*store, &name, None, &record("first")).await;
    let second = put(&*store, &name, Some(&first), &record("second")).await;
    let current = load(&*store, &name).await.expect("it is there");
    assert_eq!(
        (&current.version, &*current.record.body),
        (&second, "second")
    );
    let late = swap(&*store, write(&name, Some(&first), &record("late"))).await;
    assert_eq!(late, Swapped::Conflict(Some(current.clone())));
    assert_eq!(load(&*store, &name).await, Some(current));
}

async fn a_write_with_a_version_never_inserts(bench: Bench) {
    let (store, name) = (bench.store().await, bench.name("one"));
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

async fn deletes_only_the_version_it_expects(bench: Bench) {
    let (store, name) = (bench.store().await, bench.name("one"));
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

async fn a_name_that_comes_back_is_another_version(bench: Bench) {
    let (store, name) = (bench.store().await, bench.name("one"));
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

async fn a_loser_can_try_again_with_what_it_got(bench: Bench) {
    let (store, name) = (bench.store().await, bench.name("one"));
    put(&*store, &name, None, &record("first")).await;
    let lost = swap(&*store, write(&name, None, &record("second"))).await;
    let Swapped::Conflict(Some(current)) = lost else {
        panic!("it should have lost: {lost:?}");
    };
    put(&*store, &name, Some(&current.version), &record("second")).await;
    assert_eq!(stored_body(&*store, &name).await.as_deref(), Some("second"));
}

async fn each_write_of_a_batch_stands_alone(bench: Bench) {
    let store = bench.store().await;
    let [new, taken, changed, stale, gone, never] =
        ["new", "taken", "changed", "stale", "gone", "never"].map(|suffix| bench.name(suffix));
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
    let swapped = store.swap(batch).await.expect("it answers").value;
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

async fn takes_batches_of_the_size_it_declares(bench: Bench) {
    let store = bench.store().await;
    let names: Vec<_> = (0..store.facts().batch)
        .map(|n| bench.name(&format!("{n:05}")))
        .collect();
    let create = names
        .iter()
        .map(|name| write(name, None, &record(name.as_str())));
    let swapped = store
        .swap(create.collect())
        .await
        .expect("it answers")
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
        let stored = stored.unwrap_or_else(|| panic!("{name:?} was acknowledged and is not there"));
        assert_eq!(&*stored.record.body, name.as_str());
        removal.push(delete(name, &stored.version));
    }
    let swapped = store.swap(removal).await.expect("it answers").value;
    assert!(
        swapped
            .iter()
            .all(|swapped| matches!(swapped, Swapped::Written { .. }))
    );
    assert!(load_all(&*store, &names).await.iter().all(Option::is_none));
}

async fn takes_an_empty_batch(bench: Bench) {
    let answer = bench.store().await.swap(Vec::new()).await;
    assert!(answer.expect("it answers").value.is_empty());
}

async fn keeps_a_body_that_did_not_change(bench: Bench) {
    let (store, name) = (bench.store().await, bench.name("one"));
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
    let stored = load(&*store, &name).await.expect("it is there");
    assert_eq!((stored.version.write, &*stored.record), (id, &current));
    let late = swap(&*store, renewal).await;
    assert_eq!(
        late,
        Swapped::Conflict(Some(stored)),
        "it expects a version all the same"
    );
}

async fn a_second_connection_sees_the_same(bench: Bench) {
    let (one, other) = (bench.store().await, bench.store().await);
    let name = bench.name("one");
    let version = put(&*one, &name, None, &record("first")).await;
    let version = put(&*other, &name, Some(&version), &record("second")).await;
    assert_eq!(stored_body(&*one, &name).await.as_deref(), Some("second"));
    put(&*one, &name, Some(&version), &record("third")).await;
    assert_eq!(stored_body(&*other, &name).await.as_deref(), Some("third"));
}
