//! Load, swap and find: several statements in one request and one round trip.
//!
//! A swap is a transaction. It first locks the rows that still have the expected versions, and skips those that
//! another transaction has locked: a locking read always sees the newest version. Only locked rows are written. The
//! time is read after the commit, so an answer with a time implies that the transaction was committed.

use std::time::Duration;

use leasehold_core::{Kind, Name, Stamp, Time};
use tokio::time::Instant;

use super::failure;
use super::pool::{Pool, ResultSets, Script};
use super::row::{self, COLUMNS};
use crate::store::{Answer, Page, Query, Stored, Swapped, Write, sql};
use crate::{Error, Result};

const TABLE: &str = "leasehold_records";
const TIME: &str =
    "select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)), @@global.read_only";

/// Whether a write waits for a row that another transaction has locked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Locks {
    Skip,
    Wait,
}

/// Loads the records under these names, as of one point in time.
pub(super) async fn load(
    pool: &Pool,
    deadline: Instant,
    names: &[Name],
) -> Result<Answer<Vec<Option<Stored>>>> {
    let script = Script {
        text: match names {
            // Reads no record, but uses every column.
            [] => format!("select {COLUMNS} from {TABLE} where false; {TIME}"),
            _ => format!(
                "select {COLUMNS} from {TABLE} where {}; {TIME}",
                any_of(names.iter())
            ),
        },
        commit: None,
    };
    let sets = read(pool, deadline, &script).await?;
    let stamp = stamp(&sets)?;
    let mut found = Vec::new();
    for row in &sets[0] {
        found.push(row::stored(row)?);
    }
    let value = names
        .iter()
        .map(|name| {
            let position = found.iter().position(|(found, _)| found == name)?;
            Some(found.swap_remove(position).1)
        })
        .collect();
    Ok(Answer { value, stamp })
}

/// Finds a page of records. Names are stored and compared as bytes.
pub(super) async fn find(pool: &Pool, deadline: Instant, query: &Query) -> Result<Answer<Page>> {
    let search = sql::Search::new(query)?;
    let literal = |text: &str| row::bytes(text.as_bytes());
    let mut conditions = vec![
        format!("kind = {}", literal(query.kind.as_str())),
        format!("name >= {}", literal(search.from)),
        format!("held_until between {} and {}", search.held.0, search.held.1),
    ];
    conditions.extend(search.to.map(|end| format!("name < {}", literal(&end))));
    let (after, since) = (literal(search.after), search.since);
    let order = match &query.state {
        None => {
            conditions.push(format!("name > {after}"));
            "name"
        }
        Some(state) => {
            conditions.push(format!("state = {}", literal(state)));
            conditions.push(format!(
                "(state_since > {since} or state_since = {since} and name > {after})"
            ));
            "state_since, name"
        }
    };
    let script = Script {
        text: format!(
            "select {COLUMNS} from {TABLE} where {} order by {order} limit {}; {TIME}",
            conditions.join(" and "),
            search.limit
        ),
        commit: None,
    };
    let sets = read(pool, deadline, &script).await?;
    let stamp = stamp(&sets)?;
    let records = sets[0].iter().map(row::stored).collect::<Result<_>>()?;
    Ok(Answer {
        value: sql::page(records, query),
        stamp,
    })
}

async fn read(pool: &Pool, deadline: Instant, script: &Script) -> Result<ResultSets> {
    let sets = pool.query(deadline, script).await?;
    sets.ok_or_else(|| Error::Unavailable("reading was blocked by another transaction".into()))
}

/// Returns the statements that swap these writes, whose answer [`swapped`] reads.
pub(super) fn swap(writes: &[&Write], locks: Locks) -> Result<Script> {
    let mut statements = vec!["start transaction".to_owned()];
    statements.extend(lock(writes, locks));
    let (mut counts, mut own_ids) = (Vec::new(), Vec::new());
    for (n, write) in writes.iter().enumerate() {
        statements.push(statement(write)?);
        statements.push(format!("set @w{n} = row_count()"));
        counts.push(format!("@w{n}"));
        // Records that were just written need not be returned.
        own_ids.extend(
            write
                .put
                .as_ref()
                .map(|(id, _)| format!("if(@w{n} = 1, {}, '')", row::id(*id))),
        );
    }
    own_ids.push("''".into());
    statements.push(format!("select {}", counts.join(", ")));
    statements.push(format!(
        "select {COLUMNS} from {TABLE} where ({}) and write_id not in ({})",
        any_of(writes.iter().map(|write| &write.name)),
        own_ids.join(", ")
    ));
    let commit = statements.len();
    statements.push("commit".into());
    statements.push(TIME.into());
    Ok(Script {
        text: statements.join("; "),
        commit: Some(commit),
    })
}

/// Locks the rows that still have the expected versions, in the order of names, and stores their keys in `@locked`.
fn lock(writes: &[&Write], locks: Locks) -> Option<String> {
    let expected = writes.iter().filter_map(|write| {
        let expected = write.expect.as_ref()?;
        let (key, version) = (row::key(&write.name), row::id(expected.write));
        Some(format!("{key} and write_id = {version}"))
    });
    let expected: Vec<_> = expected.collect();
    let skip = match locks {
        Locks::Skip => " skip locked",
        Locks::Wait => "",
    };
    (!expected.is_empty()).then(|| {
        format!(
            "select group_concat(concat(kind, ':', hex(name))) into @locked from (select kind, name from {TABLE} \
             where {} order by kind, name limit {} for update{skip}) l",
            expected.join(" or "),
            // The limit keeps the inner query and its locks separate: without it, the query is merged into the outer
            // one.
            expected.len()
        )
    })
}

fn statement(write: &Write) -> Result<String> {
    let assignments = row::assignments(write)?;
    let Some(expected) = &write.expect else {
        return Ok(insert(&write.name, &assignments));
    };
    // Does not even read the index of a row that is not locked: that would wait for the transaction that has locked
    // it.
    let condition = format!(
        "{} and write_id = {}",
        row::key_if_locked(&write.name),
        row::id(expected.write)
    );
    if assignments.is_empty() {
        return Ok(format!("delete from {TABLE} where {condition}"));
    }
    let set: Vec<_> = assignments
        .iter()
        .map(|(column, value)| format!("{column} = {value}"))
        .collect();
    Ok(format!(
        "update {TABLE} set {} where {condition}",
        set.join(", ")
    ))
}

/// Inserts unless the record exists. Waits for a concurrent insert of the same name, and then changes nothing.
fn insert(name: &Name, assignments: &[(&str, String)]) -> String {
    if assignments.is_empty() {
        return "do 0".into();
    }
    let columns: Vec<_> = assignments.iter().map(|(column, _)| *column).collect();
    let values: Vec<_> = assignments
        .iter()
        .map(|(_, value)| value.as_str())
        .collect();
    format!(
        "insert into {TABLE} (kind, name, {}) select {}, {}, {} from dual \
         where not exists (select 1 from {TABLE} where {}) on duplicate key update {TABLE}.kind = {TABLE}.kind",
        columns.join(", "),
        row::bytes(name.kind().as_str().as_bytes()),
        row::bytes(name.as_str().as_bytes()),
        values.join(", "),
        row::key(name)
    )
}

/// Reads the result of each write; `None` for a record that another transaction is writing.
pub(super) fn swapped(
    sets: &ResultSets,
    writes: &[&Write],
) -> Result<Answer<Vec<Option<Swapped>>>> {
    let stamp = stamp(sets)?;
    let unreadable = || Error::Corrupt("the database returned an unexpected answer".into());
    // The last four: the counts of written rows, the current records of the others, the commit, and the time.
    let [.., counts, current, _, _] = &sets[..] else {
        return Err(unreadable());
    };
    let counts = counts.first().ok_or_else(unreadable)?;
    let mut others = Vec::new();
    for row in current {
        let (kind, name): (String, String) = (row::value(row, 0)?, row::value(row, 1)?);
        others.push((kind, name, row::stored(row).map(|(_, stored)| stored)));
    }
    let mut outcomes = Vec::new();
    for (n, write) in writes.iter().enumerate() {
        if row::value::<i64>(counts, n)? == 1 {
            outcomes.push(Some(Swapped::Written { tag: None }));
            continue;
        }
        let of_this = |(kind, name, _): &(String, String, _)| {
            kind == write.name.kind().as_str() && name == write.name.as_str()
        };
        let found = others.iter().position(of_this);
        outcomes.push(match found.map(|at| others.swap_remove(at).2).transpose() {
            Ok(current) => sql::unwritten_result(write, current),
            Err(corrupt) => Some(Swapped::Failed(corrupt)),
        });
    }
    Ok(Answer {
        value: outcomes,
        stamp,
    })
}

/// Returns a condition that is true for the records under these names.
fn any_of<'n>(names: impl Iterator<Item = &'n Name> + Clone) -> String {
    let of_kind = |kind: Kind| {
        let names = names.clone().filter(|name| name.kind() == kind);
        let names: Vec<_> = names
            .map(|name| row::bytes(name.as_str().as_bytes()))
            .collect();
        let kind = row::bytes(kind.as_str().as_bytes());
        (!names.is_empty()).then(|| format!("kind = {kind} and name in ({})", names.join(", ")))
    };
    let conditions: Vec<_> = Kind::ALL.into_iter().filter_map(of_kind).collect();
    conditions.join(" or ")
}

/// Reads the server's time, the last of the answers. Fails if the server is read-only.
fn stamp(sets: &ResultSets) -> Result<Stamp> {
    let row = sets.last().and_then(|rows| rows.first());
    let row = row.ok_or_else(|| Error::Corrupt("the database did not report its time".into()))?;
    let read_only: String = row::value(row, 1)?;
    if read_only != "0" && read_only != "OFF" {
        return Err(failure::read_only());
    }
    Ok(Stamp {
        time: Time::from_micros(row::value(row, 0)?),
        resolution: Duration::from_micros(1),
    })
}
