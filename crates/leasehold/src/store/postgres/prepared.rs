//! Statements that a session keeps, parsed and planned, where there is a session.
//!
//! Behind a pooler each call may meet another session, in which a name is unknown, or means a statement of somebody
//! else: the driver of each process counts its names from zero. So a statement that is prepared does nothing unless it
//! is sent with the mark of the process that wrote it, and tells that mark. Where a name fails, or another mark comes
//! back, nothing was done: the call is sent again without a name, and the pool prepares no more.
//!
//! A plan suits the table as it was when it was made: one for an empty table goes through all of it, and goes on so when
//! that has become large, until somebody analyses the table. So a statement is prepared anew after a while, at first soon.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row, Statement};

use super::failure;
use super::pool::Value;

/// How long a statement is kept at first; twice as long each time that it is prepared anew…
const KEPT_AT_FIRST: Duration = Duration::from_millis(250);
/// …up to this.
const KEPT_AT_MOST: Duration = Duration::from_secs(8);

/// A statement that is sent often.
pub(super) struct Sql {
    text: Arc<str>,
    mark: Arc<str>,
}

impl Sql {
    /// A statement whose answer has a column `mark`, with this mark in it.
    pub(super) fn new(text: &str, mark: &str) -> Self {
        Self {
            text: text.into(),
            mark: mark.into(),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    fn has_given(&self, rows: &[Row]) -> bool {
        let mark = rows.first().map(|row| row.try_get::<_, &str>("mark"));
        matches!(mark, Some(Ok(mark)) if *mark == *self.mark)
    }
}

/// Whether a pool prepares statements.
#[derive(Default)]
pub(super) struct Sessions {
    are_shared: AtomicBool,
}

impl Sessions {
    fn are_ours(&self) -> bool {
        !self.are_shared.load(Ordering::Relaxed)
    }

    fn found_shared(&self, why: &dyn std::fmt::Display) {
        if !self.are_shared.swap(true, Ordering::Relaxed) {
            tracing::debug!(%why, "PostgreSQL is behind a pooler: no statement is prepared");
        }
    }
}

/// What is prepared in the session of a connection.
#[derive(Default)]
pub(super) struct Prepared(Mutex<Vec<Kept>>);

/// A statement that is prepared, or was.
struct Kept {
    text: Arc<str>,
    statement: Option<Statement>,
    until: Instant,
    long: Duration,
}

impl Kept {
    fn is(&self, sql: &Sql) -> bool {
        Arc::ptr_eq(&self.text, &sql.text)
    }
}

impl Prepared {
    /// Sends a statement that is prepared here; `None` if it is not, or was not found, and nothing was done.
    pub(super) async fn ask(
        &self,
        client: &Client,
        sessions: &Sessions,
        sql: &Sql,
        values: &[Value<'_>],
    ) -> Option<Result<Vec<Row>, Error>> {
        let statement = self.find(sql).filter(|_| sessions.are_ours())?;
        let values: Vec<_> = values.iter().map(|(value, _)| *value).collect();
        match client.query(&statement, &values).await {
            Ok(rows) if !sql.has_given(&rows) => {
                sessions.found_shared(&"a statement was somebody else's");
                None
            }
            Err(error) if failure::is_unknown(&error) => {
                sessions.found_shared(&error);
                None
            }
            Err(error) if failure::is_outdated(&error) => {
                self.all().clear();
                None
            }
            answer => Some(answer),
        }
    }

    /// Prepares a statement, unless the session may be another one next time. It matters to nobody if it fails.
    pub(super) async fn prepare(
        &self,
        client: &Client,
        sessions: &Sessions,
        sql: &Sql,
        values: &[Value<'_>],
    ) {
        if !sessions.are_ours() {
            return;
        }
        let types: Vec<Type> = values.iter().map(|(_, kind)| kind.clone()).collect();
        match client.prepare_typed(&sql.text, &types).await {
            Ok(statement) => self.keep(sql, statement),
            Err(error) if failure::is_unknown(&error) => sessions.found_shared(&error),
            Err(error) => tracing::debug!(%error, "a statement was not prepared"),
        }
    }

    fn find(&self, sql: &Sql) -> Option<Statement> {
        let all = self.all();
        let kept = all.iter().find(|kept| kept.is(sql))?;
        let statement = kept.statement.as_ref();
        statement.filter(|_| Instant::now() < kept.until).cloned()
    }

    /// Lets go of a statement, so that the server does.
    pub(super) fn forget(&self, sql: &Sql) {
        if let Some(kept) = self.all().iter_mut().find(|kept| kept.is(sql)) {
            kept.statement = None;
        }
    }

    fn keep(&self, sql: &Sql, statement: Statement) {
        let mut all = self.all();
        let before = all.iter().position(|kept| kept.is(sql));
        let long = match before.map(|place| all.swap_remove(place)) {
            Some(kept) => (2 * kept.long).min(KEPT_AT_MOST),
            None => KEPT_AT_FIRST,
        };
        all.push(Kept {
            text: sql.text.clone(),
            statement: Some(statement),
            until: Instant::now() + long,
            long,
        });
    }

    fn all(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
