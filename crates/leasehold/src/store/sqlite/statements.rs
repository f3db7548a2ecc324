//! Load, swap and find, each in one transaction.

use leasehold_core::{Name, Time};
use rusqlite::types::Value;
use rusqlite::{Connection, Statement, ToSql, params};

use super::clock::{StoreClock, micros};
use super::file::{File, Transaction};
use super::row::{self, columns};
use crate::store::{Availability, Page, Query, Stored, Swapped, Write};
use crate::{Error, Result};

/// Loads the records under these names, as of one point in time.
pub(super) fn load(
    file: &File,
    connection: &mut Connection,
    names: &[Name],
) -> Result<Vec<Option<Stored>>> {
    file.check_in_place()?;
    let mut load = || {
        let tx = Transaction::begin(connection, "begin")?;
        let mut select = tx.prepare_cached(LOAD)?;
        let records = names.iter().map(|name| load_one(&mut select, name));
        records.collect::<rusqlite::Result<Result<Vec<_>>>>()
    };
    load().map_err(|error| file.before_commit(&error))?
}

const LOAD: &str = concat!(
    "select ",
    columns!(),
    " from records where kind = ?1 and name = ?2"
);

fn load_one(select: &mut Statement<'_>, name: &Name) -> rusqlite::Result<Result<Option<Stored>>> {
    let mut rows = select.query(params![name.kind().as_str(), name.as_str()])?;
    match rows.next()? {
        None => Ok(Ok(None)),
        Some(row) => Ok(row::stored(row)?.map(|(_, stored)| Some(stored))),
    }
}

/// Swaps the records, and persists the high-water mark, in one commit.
pub(super) fn swap(
    file: &File,
    clock: &StoreClock,
    connection: &mut Connection,
    writes: &[Write],
) -> Result<Vec<Swapped>> {
    let ambiguous = match try_swap(file, clock, connection, writes) {
        Err(error @ Error::Indeterminate(_)) => error,
        settled => return settled,
    };
    // A commit whose fsync failed is invisible, but its frames are in the log, and would be recovered if all
    // processes crashed now. The next commit overwrites them, so make it the same one.
    try_swap(file, clock, connection, writes).map_err(|_| ambiguous)
}

fn try_swap(
    file: &File,
    clock: &StoreClock,
    connection: &mut Connection,
    writes: &[Write],
) -> Result<Vec<Swapped>> {
    file.check_in_place()?;
    let tx = file.begin(connection)?;
    clock.persist(file, &tx)?;
    let swapped = swap_all(&tx, writes).map_err(|error| file.before_commit(&error))?;
    let wrote = swapped
        .iter()
        .any(|swapped| matches!(swapped, Swapped::Written { .. }));
    // If all writes conflicted, there is nothing to sync.
    if wrote {
        file.commit(tx)?;
    }
    Ok(swapped)
}

fn swap_all(connection: &Connection, writes: &[Write]) -> rusqlite::Result<Vec<Swapped>> {
    // Prepared once for the batch: looking up a cached statement takes longer than binding it.
    let mut insert = connection.prepare_cached(row::INSERT)?;
    let mut update = connection.prepare_cached(row::UPDATE_ROW)?;
    let swap = |write| swap_one(connection, &mut insert, &mut update, write);
    writes.iter().map(swap).collect()
}

fn swap_one(
    connection: &Connection,
    insert: &mut Statement<'_>,
    update: &mut Statement<'_>,
    write: &Write,
) -> rusqlite::Result<Swapped> {
    let expect = write.expect.as_ref();
    let expected = expect.map(|version| version.write.0.to_be_bytes());
    let tag = expect.and_then(|version| version.tag.as_ref());
    let row: Option<i64> = tag.and_then(|tag| tag.parse().ok());
    let changed = match (&write.put, expected) {
        (Some((id, record)), None) => {
            row::bind(insert, *id, record, true)?;
            row::bind_name(insert, &write.name)?;
            if insert.raw_execute()? == 1 {
                let tag = Some(row::tag(connection.last_insert_rowid()));
                return Ok(Swapped::Written { tag });
            }
            0
        }
        (Some((id, record)), Some(expected)) if row.is_some() => {
            row::bind(update, *id, record, write.body_changed)?;
            update.raw_bind_parameter(13, expected)?;
            update.raw_bind_parameter(14, row)?;
            update.raw_execute()?
        }
        (Some((id, record)), Some(expected)) => {
            let mut update = connection.prepare_cached(row::UPDATE)?;
            row::bind(&mut update, *id, record, write.body_changed)?;
            row::bind_name(&mut update, &write.name)?;
            update.raw_bind_parameter(13, expected)?;
            update.raw_execute()?
        }
        (None, Some(expected)) => connection
            .prepare_cached("delete from records where kind = ?1 and name = ?2 and write = ?3")?
            .execute(params![
                write.name.kind().as_str(),
                write.name.as_str(),
                expected
            ])?,
        // A delete that expects no record: either a no-op or a conflict.
        (None, None) => 0,
    };
    if changed == 1 {
        // The row id does not change.
        let tag = tag.cloned();
        return Ok(Swapped::Written { tag });
    }
    let mut select = connection.prepare_cached(LOAD)?;
    Ok(match load_one(&mut select, &write.name)? {
        Ok(None) if write.put.is_none() && expected.is_none() => Swapped::Written { tag: None },
        Ok(current) => Swapped::Conflict(current),
        Err(corrupt) => Swapped::Failed(corrupt),
    })
}

/// Finds a page of records. Names are compared bytewise, which is SQLite's default.
pub(super) fn find(file: &File, connection: &mut Connection, query: &Query) -> Result<Page> {
    file.check_in_place()?;
    // Before every time, and before every name.
    let (mut since, mut after) = (i64::MIN, "");
    let mut from = query.prefix.clone();
    match (&query.state, query.cursor.as_deref()) {
        (Some(_), Some(cursor)) => (since, after) = parse_state_cursor(cursor)?,
        // The next text after the cursor, merged into one lower bound, because SQLite seeks to one bound only.
        (None, Some(cursor)) => from = from.max(format!("{cursor}\0")),
        (_, None) => {}
    }
    let (held_from, held_to) = match query.availability {
        None => (i64::MIN, i64::MAX),
        Some(Availability::Free(at)) => (i64::MIN, as_bound(at) - 1),
        Some(Availability::Held(at)) => (as_bound(at), i64::MAX),
    };
    // One more, to detect a next page.
    let limit = i64::try_from(query.limit).map_or(i64::MAX, |limit| limit.saturating_add(1));
    let find = || {
        let mut select = connection.prepare_cached(match query.state {
            Some(_) => BY_STATE,
            None => BY_NAME,
        })?;
        let values: [&dyn ToSql; 9] = [
            &query.kind.as_str(),
            &from,
            &end_of(&query.prefix),
            &held_from,
            &held_to,
            &limit,
            &after,
            &since,
            &query.state.as_deref(),
        ];
        let values = &values[..select.parameter_count()];
        let rows = select.query_map(values, row::stored)?;
        rows.collect::<rusqlite::Result<Result<Vec<_>>>>()
    };
    let records = find().map_err(|error| file.before_commit(&error))??;
    Ok(page(records, query))
}

/// The parameters: `?1` to `?3` kind and range of names, `?4` and `?5` availability, `?6` limit; by state also `?7`
/// and `?8` the cursor, and `?9` the state.
const BY_NAME: &str = concat!(
    "select ",
    columns!(),
    " from records where kind = ?1 and name >= ?2 and name < ?3 and held_until between ?4 and ?5 \
     order by name limit ?6"
);
const BY_STATE: &str = concat!(
    "select ",
    columns!(),
    " from records where kind = ?1 and name >= ?2 and name < ?3 and held_until between ?4 and ?5 \
     and state = ?9 and (state_since, name) > (?8, ?7) order by state_since, name limit ?6"
);

fn page(mut records: Vec<(Name, Stored)>, query: &Query) -> Page {
    let more = records.len() > query.limit;
    records.truncate(query.limit);
    let cursor = records
        .last()
        .filter(|_| more)
        .map(|(name, stored)| match &stored.record.state {
            Some(state) if query.state.is_some() => format!("{}:{name}", micros(state.since)),
            _ => name.as_str().to_owned(),
        });
    Page { records, cursor }
}

fn parse_state_cursor(cursor: &str) -> Result<(i64, &str)> {
    cursor
        .split_once(':')
        .and_then(|(since, name)| Some((since.parse().ok()?, name)))
        .ok_or_else(|| {
            Error::invalid("invalid cursor: it is not from this store; start without a cursor")
        })
}

fn as_bound(time: Time) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Returns the first value after all names with this prefix: the next text, or, if there is none, a blob, which
/// SQLite sorts after every text.
fn end_of(prefix: &str) -> Value {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // In UTF-8, byte order is character order. Character ranges skip the surrogates.
        if let Some(next) = (last..=char::MAX).nth(1) {
            end.push(next);
            return Value::Text(end);
        }
    }
    Value::Blob(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::super::Boot;
    use super::*;
    use crate::host::{Host as _, Machine};
    use crate::store::WriteId;

    #[test]
    fn prefix_range_ends_before_the_next_text() {
        for (prefix, end) in [("a", "b"), ("a\u{10FFFF}", "b"), ("\u{D7FF}", "\u{E000}")] {
            assert_eq!(end_of(prefix), Value::Text(end.into()));
        }
        for endless in ["", "\u{10FFFF}\u{10FFFF}"] {
            assert_eq!(end_of(endless), Value::Blob(Vec::new()));
        }
    }

    #[test]
    fn batch_on_a_full_disk_changes_nothing() {
        let path = std::env::temp_dir().join(format!("leasehold-{:x}.db", Machine.random()));
        let (file, mut connection) = File::open(&path).unwrap();
        let clock = StoreClock::open(&file, &mut connection, Boot::current().unwrap()).unwrap();
        let write = |name: &str, body: &str| {
            let record = serde_json::json!({ "fence": 1, "holders": [], "body": body });
            Write {
                name: Name::lock(name).unwrap(),
                expect: None,
                put: Some((WriteId(1), serde_json::from_value(record).unwrap())),
                body_changed: true,
            }
        };
        connection
            .pragma_update(None, "max_page_count", 12)
            .unwrap();
        let batch = [write("small", ""), write("large", &"x".repeat(60_000))];
        let error = swap(&file, &clock, &mut connection, &batch).unwrap_err();
        assert!(
            matches!(&error, Error::Unavailable(why) if why.contains("full")),
            "{error:?}"
        );
        let names = batch.map(|write| write.name);
        assert_eq!(load(&file, &mut connection, &names).unwrap(), [None, None]);

        connection
            .pragma_update(None, "max_page_count", 1000)
            .unwrap();
        let batch = [write("small", ""), write("large", &"x".repeat(60_000))];
        let swapped = swap(&file, &clock, &mut connection, &batch).unwrap();
        let written = |row: &str| Swapped::Written {
            tag: Some(row.into()),
        };
        assert_eq!(swapped, [written("1"), written("2")]);
        drop(connection);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn searches_use_an_index_and_do_not_sort() {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(include_str!("schema.sql"))
            .unwrap();
        for (search, index) in [(BY_NAME, "autoindex_records"), (BY_STATE, "by_state")] {
            let plan: Vec<String> = connection
                .prepare(&format!("explain query plan {search}"))
                .and_then(|mut plan| plan.raw_query().mapped(|row| row.get(3)).collect())
                .unwrap();
            assert!(plan.len() == 1 && plan[0].contains(index), "{plan:?}");
        }
    }
}
