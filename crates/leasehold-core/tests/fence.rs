//! A fence can be checked by a text search, as `leasehold::fence` does in every database.

mod common;

use std::collections::BTreeMap;

use common::*;
use leasehold_core::{
    Acquire, Fence, GrantKind, Hash, Holder, HolderRef, Mode, Operation, Outcome, Record,
};

/// Returns whether a resource that searches the stored holders accepts this fence.
fn is_accepted(name: &Name, fence: Fence) -> bool {
    let holders = name.record.as_ref().map(|record| &record.holders);
    let holders = serde_json::to_string(&holders).unwrap();
    holders.contains(&format!("{{\"fence\":{fence},"))
}

/// The expected state of a granted fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    Holds(Mode, Hash),
    /// Released, broken, or replaced by a conflicting grant.
    Ended,
}

/// Reproducible random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// The check is safe: it refuses holders that were replaced, released or broken. It is no stricter than the core: every
/// holder that may renew passes. An expired holder without a successor passes too, which is harmless.
#[test]
fn text_search_for_a_fence_agrees_with_the_core() {
    let mut checked = [0_u32; 3];
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut name = Name::default();
        let mut expectations = BTreeMap::new();
        for step in 0..60 {
            name.after(random.below(6));
            let fences: Vec<Fence> = expectations.keys().copied().collect();
            let operation = any_operation(&mut random, &fences);
            let outcome = name.perform(operation.clone());
            update_expectations(&mut expectations, &name, &operation, &outcome);
            for (&fence, &expected) in &expectations {
                let may_renew = matches!(decide(&name, renew(fence)), Outcome::Renewed(_));
                let is_accepted = is_accepted(&name, fence);
                let has_holder = |record: &Record| record.has_holder(fence);
                assert_eq!(is_accepted, name.record.as_ref().is_some_and(has_holder));
                let context =
                    format!("seed {seed}, step {step}, {operation:?}: {fence} {expected:?}");
                match (may_renew, expected) {
                    (true, _) => assert!(is_accepted, "a live holder is refused: {context}"),
                    (false, Expected::Ended) => assert!(!is_accepted, "a zombie passes: {context}"),
                    (false, Expected::Holds(..)) => {}
                }
                checked[if may_renew {
                    0
                } else {
                    1 + usize::from(expected == Expected::Ended)
                }] += 1;
            }
        }
    }
    assert!(checked.iter().all(|count| *count > 500), "{checked:?}");
}

/// Returns the outcome of an operation without performing it.
fn decide(name: &Name, operation: Operation) -> Outcome {
    let mut copy = Name {
        record: name.record.clone(),
        second: name.second,
        high_water: name.high_water,
    };
    copy.perform(operation)
}

fn any_operation(random: &mut Random, fences: &[Fence]) -> Operation {
    let newest = fences.len().saturating_sub(1 + random.below(2) as usize);
    let fence = fences.get(newest).copied().unwrap_or_default();
    match random.below(12) {
        0..=5 => {
            let nonce = ["a", "b", "c"][random.below(3) as usize];
            Operation::Acquire(Acquire {
                // An owner that a careless search would mistake for a holder entry.
                owner: format!("[{{\"fence\":{fence},\"").into(),
                mode: [Mode::Exclusive, TWO, SHARED][random.below(3) as usize],
                ..acquire(nonce)
            })
        }
        6 | 7 => renew(fence),
        8 => release(fence),
        9 => complete(fence, "done"),
        10 => force(Some(fence), random.below(2) == 0),
        _ => force(None, random.below(2) == 0),
    }
}

/// Updates the expected states after an operation.
fn update_expectations(
    expectations: &mut BTreeMap<Fence, Expected>,
    name: &Name,
    operation: &Operation,
    outcome: &Outcome,
) {
    match (operation, outcome) {
        (Operation::Acquire(acquire), Outcome::Granted(grant)) => {
            for expected in expectations.values_mut() {
                let stays = match *expected {
                    Expected::Holds(mode, nonce) => {
                        mode == acquire.mode
                            && mode != Mode::Exclusive
                            && (nonce != acquire.nonce || grant.granted == GrantKind::Fresh)
                    }
                    Expected::Ended => false,
                };
                if !stays {
                    *expected = Expected::Ended;
                }
            }
            expectations.insert(grant.fence, Expected::Holds(acquire.mode, acquire.nonce));
        }
        (_, Outcome::Released | Outcome::Completed) => {
            let own = match operation {
                Operation::Release(release) => match release.holder {
                    HolderRef::Fence(fence) => fence,
                    HolderRef::Nonce(_) => unreachable!("no operation here releases by nonce"),
                },
                Operation::Update(update) => update.fence,
                other => unreachable!("{other:?}"),
            };
            expectations.insert(own, Expected::Ended);
        }
        (Operation::Break(_), Outcome::Broken { .. }) => {
            let record = name.record.as_ref().expect("a broken lease has a record");
            for (fence, expected) in expectations.iter_mut() {
                let acting = |holder: &Holder| holder.fence == *fence && holder.broken.is_none();
                if !record.holders.iter().any(acting) {
                    *expected = Expected::Ended;
                }
            }
        }
        _ => {}
    }
}
