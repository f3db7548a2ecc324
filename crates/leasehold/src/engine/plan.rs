//! Applies the queued operations of one name, and plans the store call that they need.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    BootTime, Change, Fence, GrantKind, Held, Name, Now, Operation, Outcome, Record, Reserve, apply,
};

use super::pending::{PendingOperation, QueueHead};
use super::table::{Entry, Table};
use crate::host::Host;
use crate::store::{Write, WriteId};

/// The maximum number of operations in one write.
const MAX_COALESCED: usize = 1_024;
/// If the last answer of the store is older than this, its time is read first, because the interval has grown wide.
const CLOCK_AGE: Duration = Duration::from_secs(30);
/// If other callers are granted before the first waiter, it reserves the next grant after this time.
const RESERVE_AFTER: Duration = Duration::from_millis(50);
/// The number of wrong guesses in a row after which unknown names are loaded before they are planned.
const MAX_WRONG_GUESSES: u8 = 4;
/// How long a reservation lasts.
const RESERVATION: Duration = Duration::from_secs(2);

/// The store call that a name needs.
#[allow(clippy::large_enum_variant, reason = "moved once, and mostly a write")]
pub(super) enum Plan {
    /// None. These operations are confirmed, and can be answered.
    Answer(Vec<PlannedOperation>),
    /// A load. These operations can be answered before it.
    Load(Vec<PlannedOperation>),
    /// A write. These operations can be answered after it.
    Write(Write, Vec<PlannedOperation>),
}

/// An operation with its outcome, which is delivered once the plan has been executed.
pub(super) struct PlannedOperation {
    pub(super) pending: Box<PendingOperation>,
    pub(super) outcome: Outcome,
    /// Whether it was in the wait queue, and returns there if the plan fails.
    pub(super) was_waiting: bool,
}

impl Table {
    /// Notes whether an unknown name exists in the store. If most do, the guess that it does not exist wastes a write,
    /// which conflicts.
    pub(super) fn note_guess(&mut self, exists: bool) {
        self.wrong_guesses = match exists {
            true => (self.wrong_guesses + 1).min(2 * MAX_WRONG_GUESSES),
            false => self.wrong_guesses.saturating_sub(1),
        };
    }

    /// Whether to assume that an unknown name does not exist in the store.
    pub(super) fn guesses_absent(&self) -> bool {
        self.wrong_guesses < MAX_WRONG_GUESSES
    }

    /// Plans the queued operations and the waiters of a name. Marks the name as busy if the plan is a write.
    pub(super) fn plan(&mut self, name: &Name, boot: BootTime, host: &dyn Host) -> Plan {
        let is_clock_old = self.clock.age(boot) > CLOCK_AGE;
        let closed = self.is_closed();
        let Some(entry) = self.entries.get_mut(name) else {
            return Plan::Answer(Vec::new());
        };
        entry.listed = false;
        let has_operations = !(entry.queue.is_empty() && entry.wait_queue.is_empty());
        if entry.load_first || (is_clock_old && has_operations) {
            return Plan::Load(Vec::new());
        }
        self.counts.queued -= drop_abandoned(entry);
        let observations = self.observations.of(name);
        let Entry {
            cached,
            queue,
            wait_queue,
            held,
            recheck,
            busy,
            ..
        } = entry;
        let (stored, confirmed) = match &*cached {
            Some(cached) => (cached.stored.as_ref(), cached.confirmed),
            // Unknown: planned as if there were no record. If there is one, the write conflicts.
            None => (None, 0),
        };
        let base = stored.map(|stored| &stored.record);
        let mut coalescer = Coalescer {
            record: base.cloned(),
            changed: false,
            now: Now {
                high_water: self.high_water,
                ..self.clock.now(boot, observations).for_kind(name.kind())
            },
            // Mostly one. Without a capacity, the first push allocates four.
            planned: Vec::with_capacity(queue.len().min(MAX_COALESCED)),
        };

        let waiters_before = wait_queue.len();
        coalescer.serve_waiters(wait_queue, held);
        while coalescer.planned.len() < MAX_COALESCED
            && let Some(mut pending) = queue.pop_front()
        {
            self.counts.queued -= 1;
            let may_free = !matches!(
                pending.operation,
                Operation::Acquire(_) | Operation::Renew(_)
            );
            match coalescer.perform(&mut pending, wait_queue.is_empty(), held) {
                Outcome::Held(_) if !closed && pending.is_waiting(boot) => {
                    // The first waiter needs a load if no answer confirms that it has to wait.
                    *recheck |= wait_queue.is_empty() && confirmed <= pending.id;
                    wait_queue.insert(pending.id, pending);
                }
                outcome => coalescer.planned.push(PlannedOperation {
                    pending,
                    outcome,
                    was_waiting: false,
                }),
            }
            if may_free {
                coalescer.serve_waiters(wait_queue, held);
            }
        }
        coalescer.reserve(wait_queue);
        self.counts.waiters = self.counts.waiters + wait_queue.len() as u64 - waiters_before as u64;

        let Coalescer {
            record,
            changed,
            planned,
            now,
        } = coalescer;
        self.high_water = now.high_water;
        if changed && (record.is_some() || stored.is_some()) {
            // The obstacle after this write must not be a reason for a refusal before the write has landed.
            *held = None;
            *busy = true;
            let body_changed = match (&record, base) {
                (Some(new), Some(old)) => new.body != old.body,
                _ => true,
            };
            let put = record.map(|record| (WriteId(host.random()), record));
            let expect = stored.map(|stored| stored.version.clone());
            return Plan::Write(
                Write {
                    name: name.clone(),
                    expect,
                    put,
                    body_changed,
                },
                planned,
            );
        }
        let (answered, unconfirmed): (Vec<_>, Vec<_>) = planned
            .into_iter()
            .partition(|planned| confirmed > planned.pending.id);
        let needs_load = *recheck && !wait_queue.is_empty();
        if unconfirmed.is_empty() && !needs_load {
            return Plan::Answer(answered);
        }
        self.requeue(name, unconfirmed, boot);
        Plan::Load(answered)
    }

    /// Puts operations back into their queues, in order. Waiters of a closing engine are refused instead.
    pub(super) fn requeue(&mut self, name: &Name, planned: Vec<PlannedOperation>, boot: BootTime) {
        if planned.is_empty() {
            return;
        }
        let closed = self.is_closed();
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        let mut refused = Vec::new();
        for PlannedOperation {
            pending,
            was_waiting,
            ..
        } in planned.into_iter().rev()
        {
            let waits = was_waiting && pending.is_waiting(boot) && !pending.is_abandoned();
            if waits && closed {
                refused.push(pending);
            } else if waits {
                self.counts.waiters += 1;
                entry.wait_queue.insert(pending.id, pending);
            } else {
                self.counts.queued += 1;
                entry.queue.push_front(pending);
            }
        }
        for waiter in refused {
            self.refuse_waiter(name, waiter);
        }
    }
}

/// Removes abandoned operations. Returns how many there were.
///
/// They are not performed, because the caller may have sent another operation since, which must not be followed by an
/// older one. This includes operations with an unanswered write: if it had landed, the record that was loaded since
/// would have resolved them.
fn drop_abandoned(entry: &mut Entry) -> u64 {
    let before = entry.queue.len();
    entry.queue.retain(|pending| !pending.is_abandoned());
    (before - entry.queue.len()) as u64
}

/// Coalesces operations: applies them to a record in order, for one write.
struct Coalescer<'a> {
    record: Option<Arc<Record>>,
    changed: bool,
    now: Now<'a>,
    planned: Vec<PlannedOperation>,
}

impl Coalescer<'_> {
    /// Applies an operation. A new grant is refused while there are waiters.
    fn perform(
        &mut self,
        pending: &mut PendingOperation,
        has_no_waiters: bool,
        held: &Option<Held>,
    ) -> Outcome {
        let decision = apply(self.record.as_deref(), &pending.operation, &self.now);
        if let (Outcome::Granted(grant), Some(held), false) =
            (&decision.outcome, held, has_no_waiters)
            && grant.granted == GrantKind::Fresh
        {
            return Outcome::Held(held.clone());
        }
        self.change(decision.change);
        decision.outcome
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::None => return,
            Change::Write(record) => {
                self.now.high_water = self.now.high_water_with(&record);
                self.record = Some(Arc::new(record));
            }
            Change::Delete => self.record = None,
        }
        self.changed = true;
    }

    /// Grants the lease to waiters in order, until one has to wait.
    fn serve_waiters(
        &mut self,
        wait_queue: &mut BTreeMap<u64, Box<PendingOperation>>,
        held: &mut Option<Held>,
    ) {
        *held = None;
        while let Some(first) = wait_queue.first_entry() {
            if first.get().is_abandoned() {
                // Its cancellation is imminent, and resolves its unanswered write.
                if first.get().is_ambiguous() {
                    return;
                }
                first.remove();
                continue;
            }
            let decision = apply(self.record.as_deref(), &first.get().operation, &self.now);
            if let Outcome::Held(obstacle) = decision.outcome {
                *held = Some(obstacle);
                return;
            }
            self.change(decision.change);
            let pending = first.remove();
            self.planned.push(PlannedOperation {
                pending,
                outcome: decision.outcome,
                was_waiting: true,
            });
        }
    }

    /// Reserves the next grant for the first waiter if other callers were granted before it.
    fn reserve(&mut self, wait_queue: &mut BTreeMap<u64, Box<PendingOperation>>) {
        let Some(mut first) = wait_queue.first_entry() else {
            return;
        };
        let Operation::Acquire(acquire) = &first.get().operation else {
            return;
        };
        let fence = self
            .record
            .as_ref()
            .map_or(Fence::default(), |record| record.fence);
        let boot = self.now.boot;
        let (nonce, mode) = (acquire.nonce, acquire.mode);
        let reserve = Operation::Reserve(Reserve {
            nonce,
            mode,
            span: RESERVATION,
        });
        let head = first.get_mut().head.get_or_insert(QueueHead {
            since: boot,
            fence,
            refresh_at: None,
        });
        let is_overtaken = fence > head.fence && boot.since(head.since) >= RESERVE_AFTER;
        // The record decides whether it is reserved: a reservation that was lost in a conflict is repeated at once.
        let next = self.record.as_ref().and_then(|record| record.next.as_ref());
        let is_reserved = next.is_some_and(|next| next.nonce == nonce);
        if !is_overtaken || (is_reserved && head.refresh_at.is_some_and(|at| boot < at)) {
            return;
        }
        let decision = apply(self.record.as_deref(), &reserve, &self.now);
        head.refresh_at = Some(boot + RESERVATION / 2);
        self.change(decision.change);
    }
}
