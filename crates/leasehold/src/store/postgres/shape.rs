//! The statement that swaps a batch; there is a variant for each mix of writes.

use super::listeners;
use super::row::{self, INPUT};
use crate::store::Write;

/// Whether a statement waits for rows that another transaction has locked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Locks {
    Skip,
    Wait,
}

/// The kinds of writes in a batch. The statement contains only the parts for these.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    updates: bool,
    inserts: bool,
    deletes: bool,
    locks: Locks,
}

impl Shape {
    pub(super) fn of(writes: &[&Write], locks: Locks) -> Self {
        let any = |put, expect| {
            let mut writes = writes.iter();
            writes.any(|write| write.put.is_some() == put && write.expect.is_some() == expect)
        };
        Self {
            updates: any(true, true),
            inserts: any(true, false),
            deletes: any(false, true),
            locks,
        }
    }

    /// Returns all shapes, each at the index [`number`](Self::number).
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..16).map(|number| Self {
            updates: number & 1 > 0,
            inserts: number & 2 > 0,
            deletes: number & 4 > 0,
            locks: if number & 8 > 0 {
                Locks::Wait
            } else {
                Locks::Skip
            },
        })
    }

    pub(super) fn number(self) -> usize {
        usize::from(self.updates)
            | usize::from(self.inserts) << 1
            | usize::from(self.deletes) << 2
            | usize::from(self.locks == Locks::Wait) << 3
    }

    /// Returns the statement. It does nothing unless it is sent with its mark.
    pub(super) fn statement(self, table: &str, mark: &str) -> String {
        let mut parts = vec![format!(
            "input as materialized (select i.*, p.lock_timeout from (select set_config('lock_timeout', $16, true) \
             as lock_timeout where $17 = '{mark}') p cross join {INPUT})"
        )];
        let mut written = Vec::new();
        if self.updates || self.deletes {
            parts.push(self.locked(table));
        }
        if self.updates {
            parts.push(updated(table));
            written.push("select n from updated");
        }
        if self.deletes {
            parts.push(format!(
                "deleted as (delete from {table} r using locked l where r.ctid = l.at and l.write_id is null \
                 returning l.n)"
            ));
            written.push("select n from deleted");
        }
        if self.inserts {
            parts.push(inserted(table));
            written.push("select i.n from inserted join input i using (kind, name)");
        }
        if written.is_empty() {
            written.push("select n from input where false");
        }
        parts.push(format!(
            "written as materialized ({})",
            written.join(" union all ")
        ));
        // `not in` uses a hash table, whereas `<> all` scans the whole array for each row.
        format!(
            "with {} select h.*, r.n, {} from (select clock_timestamp(), pg_is_in_recovery(), \
             array(select n from written) as written, '{mark}' as mark, {} as audience) h left join lateral (select i.n, c.* \
             from input i left join lateral (select * from {table} r where r.kind = i.kind and r.name = i.name \
             limit 1) c on true where i.n not in (select n from written)) r on true",
            parts.join(", "),
            row::columns(),
            listeners::audience_expression(table, mark)
        )
    }

    fn locked(self, table: &str) -> String {
        let strength = if self.deletes {
            "update"
        } else {
            "no key update"
        };
        let skip = match self.locks {
            Locks::Skip => "skip locked",
            Locks::Wait => "",
        };
        format!(
            "locked as materialized (select i.*, r.at from input i cross join lateral (select r.ctid as at \
             from {table} r where r.kind = i.kind and r.name = i.name and r.write_id = i.expect \
             for {strength} {skip}) r)"
        )
    }
}

fn updated(table: &str) -> String {
    format!(
        "updated as (update {table} r set write_id = l.write_id, fence = l.fence, held_until = l.held_until, \
         state = l.state, state_since = l.state_since, holders = l.holders, last = l.last, next = l.next, \
         put = l.put, body = coalesce(l.body, r.body), \
         body_bytes = case when l.body is null then r.body_bytes else l.body_bytes end \
         from locked l where r.ctid = l.at and l.write_id is not null returning l.n)"
    )
}

/// An insert waits for a concurrent insert of the same name. The order of names prevents deadlocks.
fn inserted(table: &str) -> String {
    format!(
        "inserted as (insert into {table} (kind, name, write_id, fence, held_until, state, state_since, holders, \
         last, next, put, body, body_bytes) select kind, name, write_id, fence, held_until, state, state_since, \
         holders, last, next, put, body, body_bytes from input i where i.expect is null and i.write_id is not null \
         and not exists (select from {table} r where r.kind = i.kind and r.name = i.name) order by i.n \
         on conflict (kind, name) do nothing returning kind, name)"
    )
}
