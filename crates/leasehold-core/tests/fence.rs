//! A fence can be checked by looking for a text: what `leasehold::fence` does in every database.

mod common;

use std::collections::BTreeMap;

use common::*;
use leasehold_core::{
    Acquire, Fence, GrantKind, Hash, Holder, HolderRef, Mode, Operation, Outcome, Record,
};

/// Whether a resource that finds these holders lets this fence write.
fn passes(name: &Name, fence: Fence) -> bool {
    let holders = name.record.as_ref().map(|record| &record.holders);
    let holders = serde_json::to_string(&holders).unwrap();
    holders.contains(&format!("{{\"fence\":{fence},"))
}

/// What has become of every fence that was ever granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    Holds(Mode, Hash),
    /// Released, broken, or replaced by a conflicting grant.
    Ended,
}

/// Numbers that a seed repeats.
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
        let mut fates = BTreeMap::new();
        for step in 0..60 {
            name.after(random.below(6));
            let fences: Vec<Fence> = fates.keys().copied().collect();
            let operation = any_operation(&mut random, &fences);
            let outcome = name.does(operation.clone());
            follow(&mut fates, &name, &operation, &outcome);
            for (&fence, &fate) in &fates {
                let may_renew = matches!(decide(&name, renew(fence)), Outcome::Renewed(_));
                let passes = passes(&name, fence);
                let has_holder = |record: &Record| record.has_holder(fence);
                assert_eq!(passes, name.record.as_ref().is_some_and(has_holder));
                let told = format!("seed {seed}, step {step}, {operation:?}: {fence} {fate:?}");
                match (may_renew, fate) {
                    (true, _) => assert!(passes, "a live holder is refused: {told}"),
                    (false, Expected::Ended) => assert!(!passes, "a zombie passes: {told}"),
                    (false, Expected::Holds(..)) => {}
                }
                checked[if may_renew {
                    0
                } else {
                    1 + usize::from(fate == Expected::Ended)
                }] += 1;
            }
        }
    }
    assert!(checked.iter().all(|count| *count > 500), "{checked:?}");
}

/// The outcome alone.
fn decide(name: &Name, operation: Operation) -> Outcome {
    let mut copy = Name {
        record: name.record.clone(),
        second: name.second,
        high_water: name.high_water,
    };
    copy.does(operation)
}

fn any_operation(random: &mut Random, fences: &[Fence]) -> Operation {
    let newest = fences.len().saturating_sub(1 + random.below(2) as usize);
    let fence = fences.get(newest).copied().unwrap_or_default();
    match random.below(12) {
        0..=5 => {
            let nonce = ["a", "b", "c"][random.below(3) as usize];
            Operation::Acquire(Acquire {
                // A text that would deceive a careless search.
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

/// Notes what a change means to those who hold, or held.
fn follow(
    fates: &mut BTreeMap<Fence, Expected>,
    name: &Name,
    operation: &Operation,
    outcome: &Outcome,
) {
    match (operation, outcome) {
        (Operation::Acquire(acquire), Outcome::Granted(grant)) => {
            for fate in fates.values_mut() {
                let stays = match *fate {
                    Expected::Holds(mode, nonce) => {
                        mode == acquire.mode
                            && mode != Mode::Exclusive
                            && (nonce != acquire.nonce || grant.granted == GrantKind::Fresh)
                    }
                    Expected::Ended => false,
                };
                if !stays {
                    *fate = Expected::Ended;
                }
            }
            fates.insert(grant.fence, Expected::Holds(acquire.mode, acquire.nonce));
        }
        (_, Outcome::Released | Outcome::Completed) => {
            let own = match operation {
                Operation::Release(release) => match release.holder {
                    HolderRef::Fence(fence) => fence,
                    HolderRef::Nonce(_) => unreachable!("nothing here releases by nonce"),
                },
                Operation::Update(update) => update.fence,
                other => unreachable!("{other:?}"),
            };
            fates.insert(own, Expected::Ended);
        }
        (Operation::Break(_), Outcome::Broken { .. }) => {
            let record = name.record.as_ref().expect("it was broken");
            for (fence, fate) in fates.iter_mut() {
                let acting = |holder: &Holder| holder.fence == *fence && holder.broken.is_none();
                if !record.holders.iter().any(acting) {
                    *fate = Expected::Ended;
                }
            }
        }
        _ => {}
    }
}
