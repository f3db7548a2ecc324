//! Deliberately broken rules. The checker must detect each of them, which shows that it can fail.

use std::time::Duration;

use leasehold_core::{
    BootTime, Break, Change, Clock, ClockChange, Decision, Fence, Interval, Mode, Now, Operation,
    Outcome, Record, apply, deadline,
};

use super::*;

/// Explores a configuration with these rules, which must violate that property.
fn expect_violation(config: Config, rules: Rules, property: &str) {
    match explore(&Leases::new(Config { rules, ..config })) {
        Ok(explored) => panic!("not detected: {explored:?}"),
        Err(found) => assert!(found.broken.contains(property), "{found:?}"),
    }
}

type Apply = fn(Option<&Record>, &Operation, &Now<'_>) -> Decision;

fn rules_with_apply(apply: Apply) -> Rules {
    Rules { apply, ..RULES }
}

fn rules_with_deadline(deadline: fn(&DeadlineInputs) -> BootTime) -> Rules {
    Rules { deadline, ..RULES }
}

/// Changes the record of a decision.
fn rewritten(mut decision: Decision, change: impl FnOnce(&mut Record)) -> Decision {
    if let Change::Write(record) = &mut decision.change {
        change(record);
    }
    decision
}

const TWO_BELIEVE: &str = "two exclusive holders believe";

#[test]
fn expiry_judged_by_the_latest_time() {
    let hurried: Apply = |record, operation, now| {
        let interval = Interval::exactly(now.interval.latest);
        apply(record, operation, &Now { interval, ..*now })
    };
    expect_violation(SLOW, rules_with_apply(hurried), TWO_BELIEVE);
}

#[test]
fn expiry_counted_from_the_earliest_time() {
    let short: Apply = |record, operation, now| {
        let decision = apply(record, operation, now);
        let width = now.interval.latest.since(now.interval.earliest);
        rewritten(decision, |record| {
            if let Some(holder) = record.holders.last_mut() {
                holder.expires_at = holder.expires_at - width;
            }
        })
    };
    let trusting = |answered: &DeadlineInputs| answered.sent + answered.ttl;
    let rules = Rules {
        apply: short,
        deadline: trusting,
        ..RULES
    };
    expect_violation(SLOW, rules, TWO_BELIEVE);
}

#[test]
fn deadline_counted_from_the_receipt() {
    let late = |answered: &DeadlineInputs| {
        let DeadlineInputs { received, ttl, .. } = *answered;
        deadline(
            received,
            ttl,
            answered.expires_at,
            answered.stamp,
            answered.margin,
        )
    };
    expect_violation(LOST, rules_with_deadline(late), TWO_BELIEVE);
}

#[test]
fn deadline_that_ignores_how_late_the_write_landed() {
    let trusting = |answered: &DeadlineInputs| answered.sent + answered.ttl;
    expect_violation(SENT_LATE, rules_with_deadline(trusting), TWO_BELIEVE);
}

#[test]
fn deadline_without_the_margin() {
    let greedy = |answered: &DeadlineInputs| {
        let DeadlineInputs { sent, ttl, .. } = *answered;
        deadline(
            sent,
            ttl,
            answered.expires_at,
            answered.stamp,
            Duration::ZERO,
        )
    };
    expect_violation(AHEAD, rules_with_deadline(greedy), TWO_BELIEVE);
    expect_violation(SMALL_STEP, rules_with_deadline(greedy), TWO_BELIEVE);
}

#[test]
fn steps_ignored() {
    let trusting: Apply = |record, operation, now| {
        let earlier = None;
        apply(record, operation, &Now { earlier, ..*now })
    };
    expect_violation(BIG_STEP, rules_with_apply(trusting), TWO_BELIEVE);
}

#[test]
fn restarts_ignored() {
    let trusting: Apply = |record, operation, now| {
        let restarted = None;
        apply(record, operation, &Now { restarted, ..*now })
    };
    expect_violation(REBOOT, rules_with_apply(trusting), TWO_BELIEVE);
}

#[test]
fn shifts_compared_with_the_last_answer_only() {
    let following = |clock: &mut Clock, sent, received, stamp| {
        let observed = clock.observe(sent, received, stamp);
        if observed == ClockChange::Widened {
            *clock = Clock::new(sent, received, stamp, SLEW.tick * SLEW.margin as u32);
        }
        observed
    };
    let rules = Rules {
        observe: following,
        ..RULES
    };
    expect_violation(SLEW, rules, TWO_BELIEVE);
}

#[test]
fn renewals_without_a_trace() {
    let silent: Apply = |record, operation, now| {
        let decision = apply(record, operation, now);
        let Operation::Renew(renew) = operation else {
            return decision;
        };
        let old = record.and_then(|old| old.holders.iter().find(|h| h.fence == renew.fence));
        rewritten(decision, |record| {
            for holder in record.holders.iter_mut().filter(|h| h.fence == renew.fence) {
                holder.renewed_at = old.map_or(holder.renewed_at, |old| old.renewed_at);
            }
        })
    };
    expect_violation(BIG_STEP, rules_with_apply(silent), TWO_BELIEVE);
}

#[test]
fn shorter_ttl_at_once() {
    let short: Apply = |record, operation, now| {
        let decision = apply(record, operation, now);
        let Operation::Renew(renew) = operation else {
            return decision;
        };
        rewritten(decision, |record| {
            for holder in record.holders.iter_mut().filter(|h| h.fence == renew.fence) {
                holder.ttl = renew.ttl.unwrap_or(holder.ttl);
                holder.expires_at = now.interval.latest + holder.ttl;
            }
        })
    };
    expect_violation(SHORTER, rules_with_apply(short), TWO_BELIEVE);
}

#[test]
fn broken_holders_removed_at_once() {
    let unsafe_break: Apply = |record, operation, now| match operation {
        Operation::Break(Break::Force { reason, .. }) => {
            let (fence, reason) = (None, reason.clone());
            let at_once = Break::Force {
                fence,
                reason,
                now: true,
            };
            apply(record, &Operation::Break(at_once), now)
        }
        _ => apply(record, operation, now),
    };
    expect_violation(BREAK, rules_with_apply(unsafe_break), TWO_BELIEVE);
}

#[test]
fn fence_not_incremented() {
    let same: Apply = |record, operation, now| {
        let mut decision = apply(record, operation, now);
        let before = record.map(|record| record.fence);
        if let (Outcome::Granted(grant), Some(before)) = (&mut decision.outcome, before) {
            grant.fence = before;
            return rewritten(decision, |record| {
                record.fence = before;
                if let Some(holder) = record.holders.last_mut() {
                    holder.fence = before;
                }
            });
        }
        decision
    };
    expect_violation(CRASH, rules_with_apply(same), "granted after");
}

#[test]
fn fences_that_start_from_one() {
    let counter: Apply = |record, operation, now| {
        let mut decision = apply(record, operation, now);
        if let (Outcome::Granted(grant), None) = (&mut decision.outcome, record) {
            let one = Fence::new(1).expect("a fence");
            grant.fence = one;
            return rewritten(decision, |record| {
                record.fence = one;
                record.holders[0].fence = one;
            });
        }
        decision
    };
    expect_violation(PURGE, rules_with_apply(counter), "granted after");
}

#[test]
fn purge_without_retention() {
    let hasty: Apply = |record, operation, now| match operation {
        Operation::Purge { .. } => {
            let retention = Duration::ZERO;
            apply(record, &Operation::Purge { retention }, now)
        }
        _ => apply(record, operation, now),
    };
    expect_violation(PURGE, rules_with_apply(hasty), "granted after");
}

#[test]
fn versions_restart_from_one() {
    let rules = Rules {
        versions_return: true,
        ..RULES
    };
    let config = Config {
        operations: 4,
        ..PURGE
    };
    expect_violation(config, rules, "granted after");
}

#[test]
fn limit_not_enforced() {
    let generous: Apply = |record, operation, now| match operation {
        Operation::Acquire(acquire) => {
            let mut acquire = acquire.clone();
            acquire.mode = Mode::Shared { limit: Some(3) };
            apply(record, &Operation::Acquire(acquire), now)
        }
        _ => apply(record, operation, now),
    };
    expect_violation(SHARED, rules_with_apply(generous), "above the limit");
}

#[test]
fn sharers_ignored() {
    let pushy: Apply = |record, operation, now| {
        let mut alone = record.cloned();
        if let (Some(record), Operation::Acquire(acquire)) = (&mut alone, operation)
            && acquire.mode == Mode::Exclusive
        {
            record
                .holders
                .retain(|holder| holder.mode == Mode::Exclusive);
        }
        apply(alone.as_ref(), operation, now)
    };
    expect_violation(
        READERS,
        rules_with_apply(pushy),
        "an exclusive and a shared holder believe",
    );
}

#[test]
fn any_fence_writes() {
    let lax: Apply = |record, operation, now| match (record, operation) {
        (Some(record), Operation::Update(update)) => {
            let mut update = update.clone();
            update.fence = record.fence;
            apply(Some(record), &Operation::Update(update), now)
        }
        _ => apply(record, operation, now),
    };
    expect_violation(ZOMBIE, rules_with_apply(lax), "has written");
}

#[test]
fn reservations_ignored() {
    let rude: Apply = |record, operation, now| {
        let mut unreserved = record.cloned();
        if let (Some(record), Operation::Acquire(_)) = (&mut unreserved, operation) {
            record.next = None;
        }
        apply(unreserved.as_ref(), operation, now)
    };
    expect_violation(RESERVE, rules_with_apply(rude), "reserved");
}

#[test]
fn expired_holders_block_grants() {
    let stuck: Apply = |record, operation, now| {
        let mut immortal = record.cloned();
        for holder in immortal.iter_mut().flat_map(|record| &mut record.holders) {
            holder.expires_at = now.interval.latest;
        }
        apply(immortal.as_ref(), operation, now)
    };
    expect_violation(CRASH, rules_with_apply(stuck), "free");
}
