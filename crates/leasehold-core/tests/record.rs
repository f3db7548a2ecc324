//! Names, nonces, limits, events, and the serialised form of a record.

mod common;

use common::*;
use leasehold_core::{
    Acquire, EndReason, Event, Fence, Hash, Kind, Mode, Name as LeaseName, Nonce, Operation, Put,
    Record, Reserve, Update, events, latest, limits, view,
};

#[test]
fn names_are_any_text_without_control_characters() {
    for good in ["a", "a/b/c", "#?%", "..", " ", "émoji 🔒", &"x".repeat(512)] {
        assert_eq!(LeaseName::lock(good).unwrap().as_str(), good);
    }
    for bad in [
        "",
        "nul\0",
        "line\nbreak",
        "\u{85}",
        &"x".repeat(513),
        &"é".repeat(257),
    ] {
        assert!(LeaseName::lock(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn gates_and_locks_have_separate_namespaces() {
    let (gate, lock) = (LeaseName::gate("x").unwrap(), LeaseName::lock("x").unwrap());
    assert_ne!(gate, lock);
    for kind in Kind::ALL {
        assert_eq!(Kind::parse(kind.as_str()), Some(kind));
    }
    assert_eq!(Kind::parse("door"), None);
}

#[test]
fn nonces_have_1_to_64_characters_and_are_never_printed() {
    assert!(Nonce::new("").is_err());
    assert!(Nonce::new("é".repeat(64)).is_ok());
    assert!(Nonce::new("x".repeat(65)).is_err());
    let nonce = Nonce::new("secret").unwrap();
    assert!(!format!("{nonce:?}").contains("secret"));
    let name = LeaseName::lock("x").unwrap();
    assert_eq!(nonce.hash(&name), Nonce::new("secret").unwrap().hash(&name));
    assert_ne!(nonce.hash(&name), Nonce::new("Secret").unwrap().hash(&name));
}

#[test]
fn nonce_has_another_hash_under_every_name_and_kind() {
    let nonce = Nonce::new("secret").unwrap();
    let names = [
        LeaseName::lock("x").unwrap(),
        LeaseName::lock("y").unwrap(),
        LeaseName::gate("x").unwrap(),
    ];
    let hashes = names.map(|name| nonce.hash(&name));
    assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2]);
}

#[test]
fn hashes_depend_on_part_boundaries_and_parse_again() {
    assert_ne!(Hash::of(&[b"ab", b"c"]), Hash::of(&[b"a", b"bc"]));
    let hash = Hash::of(&[b"x"]);
    assert_eq!(Hash::parse(&hash.to_string()), Some(hash));
    for bad in ["", "xyz", &"g".repeat(32), &format!("+{}", "0".repeat(31))] {
        assert_eq!(Hash::parse(bad), None);
    }
}

#[test]
fn fences_fit_a_double() {
    assert_eq!(Fence::new((1 << 53) - 1), Some(Fence::MAX));
    assert_eq!(Fence::new(1 << 53), None);
}

#[test]
fn limits_are_checked_before_anything_is_queued() {
    let ok = |operation: Operation| operation.check(Kind::Lock).is_ok();
    let ttl = |ttl| {
        Operation::Acquire(Acquire {
            ttl,
            ..acquire("a")
        })
    };
    assert!(ok(ttl(limits::MIN_TTL)) && ok(ttl(limits::MAX_TTL)));
    assert!(!ok(ttl(secs(0))) && !ok(ttl(limits::MAX_TTL + secs(1))));
    assert!(
        ttl(limits::MAX_PERIOD).check(Kind::Gate).is_ok(),
        "a gate's period may be long"
    );
    assert!(!ok(Operation::Acquire(acquire(&"o".repeat(129)))));
    let mode = |limit| Mode::Shared { limit: Some(limit) };
    let shared = |limit| {
        Operation::Acquire(Acquire {
            mode: mode(limit),
            ..acquire("a")
        })
    };
    assert!(ok(shared(1)) && ok(shared(256)) && !ok(shared(0)) && !ok(shared(257)));
    let reserve = |limit| Reserve {
        nonce: nonce("w"),
        mode: mode(limit),
        span: secs(1),
    };
    assert!(!ok(Operation::Reserve(reserve(0))));
    let body = |bytes| Operation::Update(write(Fence::MAX, &"b".repeat(bytes)));
    assert!(ok(body(64 * 1024)) && !ok(body(64 * 1024 + 1)));
    let state = |label: &str| {
        Operation::Update(Update {
            state: Some(Some(label.into())),
            ..write(Fence::MAX, "")
        })
    };
    assert!(ok(state(&"s".repeat(64))) && !ok(state(&"s".repeat(65))) && !ok(state("")));
    let put = |state: &str| Put {
        state: state.into(),
        body: None,
        nonce: None,
    };
    assert!(ok(Operation::Put(put("NEW"))) && !ok(Operation::Put(put("a\nb"))));
    let purge = |retention| Operation::Purge { retention };
    assert!(ok(purge(secs(3_600))) && !ok(purge(secs(3_599))));
    let mut unexplained = force(None, false);
    if let Operation::Break(leasehold_core::Break::Force { reason, .. }) = &mut unexplained {
        *reason = "".into();
    }
    assert!(!ok(unexplained) && ok(force(None, true)));
}

/// Performs an operation and returns the events between the two versions of the record.
fn events_of(name: &mut Name, operation: impl Into<Operation>) -> Vec<Event> {
    let before = name.record.clone();
    name.perform(operation);
    events(before.as_ref(), name.record.as_ref())
}

#[test]
fn events_follow_from_two_versions_of_a_record() {
    let mut name = Name::default();
    let granted = events_of(&mut name, Operation::Acquire(acquire("a")));
    let holder = |name: &Name| name.stored().holders[0].clone();
    let first = holder(&name);
    let fence = first.fence;
    assert_eq!(granted, [Event::Granted(first.clone())]);
    let renewed = events_of(&mut name, renew(fence));
    assert_eq!(renewed, [Event::Renewed(holder(&name))]);
    let updated = events_of(&mut name, Operation::Update(write(fence, "x")));
    let state = None;
    assert_eq!(
        updated,
        [Event::Renewed(holder(&name)), Event::Updated { state }]
    );
    let broken = Event::ended(&first, Some(EndReason::Broken));
    assert_eq!(events_of(&mut name, force(None, false)), [broken]);
    assert_eq!(
        events_of(&mut name, release(fence)),
        [],
        "the hold had ended before"
    );
    assert_eq!(events_of(&mut name, release(fence)), []);
}

#[test]
fn events_include_an_expired_holder_and_its_successor() {
    let mut name = Name::default();
    name.expect_granted(acquire("a"));
    let expired = Event::ended(&name.stored().holders[0], Some(EndReason::Expired));
    let next = events_of(name.after(11), Operation::Acquire(acquire("b")));
    let granted = Event::Granted(name.stored().holders[0].clone());
    assert_eq!(next, [expired, granted]);
    assert_eq!(
        events(name.record.as_ref(), None).last(),
        Some(&Event::Purged)
    );
    assert_eq!(events(None, None), []);
}

#[test]
fn hold_between_two_versions_is_reported_by_its_end() {
    let mut name = Name::default();
    let mut before = None;
    for _ in 0..2 {
        let fence = name.expect_granted(acquire("a")).fence;
        name.after(1).perform(release(fence));
        let ended = Event::Ended {
            fence,
            owner: "a".into(),
            since: None,
            how: Some(EndReason::Released),
        };
        assert_eq!(events(before.as_ref(), name.record.as_ref()), [ended]);
        before = name.record.clone();
        assert_eq!(events(before.as_ref(), name.record.as_ref()), []);
    }
}

#[test]
fn latest_event_follows_from_a_record_alone() {
    let mut name = Name::default();
    let events_of = |name: &Name| latest(name.record.as_ref());
    assert_eq!(events_of(&name), Some(Event::Purged));
    let fence = name.expect_granted(acquire("a")).fence;
    let holder = |name: &Name| name.stored().holders[0].clone();
    assert_eq!(events_of(&name), Some(Event::Granted(holder(&name))));
    name.after(1).perform(renew(fence));
    assert_eq!(events_of(&name), Some(Event::Renewed(holder(&name))));
    name.after(1).perform(release(fence));
    let released = Event::Ended {
        fence,
        owner: "a".into(),
        since: None,
        how: Some(EndReason::Released),
    };
    assert_eq!(events_of(&name), Some(released));
    name.after(1).perform(Operation::Put(Put {
        state: "NEW".into(),
        body: None,
        nonce: None,
    }));
    let state = Some("NEW".into());
    assert_eq!(events_of(&name), Some(Event::Updated { state }));
}

#[test]
fn view_shows_holders_and_their_remaining_time() {
    let mut name = Name::default();
    name.expect_granted(Acquire {
        mode: SHARED,
        ..acquire("a")
    });
    name.after(5).expect_granted(Acquire {
        mode: SHARED,
        ..acquire("b")
    });
    let stamp = leasehold_core::Stamp {
        time: at(11),
        resolution: secs(0),
    };
    let boot = leasehold_core::BootTime::from_micros(0);
    let clock = leasehold_core::Clock::new(boot, boot, stamp, secs(0));
    let none = leasehold_core::Observations::none();
    let view = view(name.stored(), &clock.now(boot, &none));
    assert_eq!(view.record.holders.len(), 1);
    assert_eq!(
        (&*view.record.holders[0].owner, view.reserved),
        ("b", false)
    );
    assert_eq!(
        view.remaining,
        [secs(4) + std::time::Duration::from_micros(1)]
    );
}

#[test]
fn record_survives_serialisation() {
    let mut name = Name::default();
    name.perform(put("NEW", "body \u{1f512}", Some("p")));
    let fence = name
        .expect_granted(Acquire {
            principal: Some("alice".into()),
            ..acquire("a")
        })
        .fence;
    name.perform(reserve("w"));
    name.perform(force(Some(fence), false));
    for seconds in [0, 11] {
        let shared = Acquire {
            mode: TWO,
            ..acquire("w")
        };
        name.after(seconds).perform(Operation::Acquire(shared));
        let json = serde_json::to_string(name.stored()).unwrap();
        let back: Record = serde_json::from_str(&json).unwrap();
        assert_eq!(&back, name.stored(), "{json}");
    }
    assert!(name.stored().is_sound());
    let unsound = Record {
        fence: Fence::default(),
        ..name.stored().clone()
    };
    assert!(!unsound.is_sound());
}
