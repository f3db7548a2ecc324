//! Prepared statements, for sessions that keep them.
//!
//! Behind a pooler each call may use another session, in which a statement's name is unknown, or refers to a
//! statement of another process: the drivers count their names from zero. So a prepared statement does nothing unless
//! it is sent with the mark of the process that prepared it, and returns that mark. If a name fails, or another mark
//! is returned, nothing was done: the call is sent again unprepared, and the pool stops preparing statements.
//!
//! A plan suits the table's size when it was made: a plan for an empty table scans all of it, even after it has
//! grown, until the table is analysed. So statements are prepared again after a while, at first soon.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row, Statement};

use super::failure;
use super::pool::Value;

/// How long a statement is used at first. Doubled each time that it is prepared again…
const FIRST_LIFETIME: Duration = Duration::from_millis(250);
/// …up to this.
const MAX_LIFETIME: Duration = Duration::from_secs(8);

/// A statement that is sent often.
pub(super) struct Sql {
    text: Arc<str>,
    mark: Arc<str>,
}

impl Sql {
    /// Creates a statement that returns this mark in a column `mark`.
    pub(super) fn new(text: &str, mark: &str) -> Self {
        Self {
            text: text.into(),
            mark: mark.into(),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    fn is_answered_by(&self, rows: &[Row]) -> bool {
        let mark = rows.first().map(|row| row.try_get::<_, &str>("mark"));
        matches!(mark, Some(Ok(mark)) if *mark == *self.mark)
    }
}

/// Whether a pool prepares statements.
#[derive(Default)]
pub(super) struct Sessions {
    is_pooled: AtomicBool,
}

impl Sessions {
    fn can_prepare(&self) -> bool {
        !self.is_pooled.load(Ordering::Relaxed)
    }

    fn note_pooler(&self, why: &dyn std::fmt::Display) {
        if !self.is_pooled.swap(true, Ordering::Relaxed) {
            tracing::debug!(%why, "PostgreSQL is behind a pooler: statements are not prepared");
        }
    }
}

/// The prepared statements of a connection.
#[derive(Default)]
pub(super) struct Prepared(Mutex<Vec<PreparedStatement>>);

/// A statement that is prepared, or was.
struct PreparedStatement {
    text: Arc<str>,
    statement: Option<Statement>,
    until: Instant,
    lifetime: Duration,
}

impl PreparedStatement {
    fn is_for(&self, sql: &Sql) -> bool {
        Arc::ptr_eq(&self.text, &sql.text)
    }
}

impl Prepared {
    /// Runs a statement that is prepared here. Returns `None` if it is not, or was not found, and nothing was done.
    pub(super) async fn query(
        &self,
        client: &Client,
        sessions: &Sessions,
        sql: &Sql,
        values: &[Value<'_>],
    ) -> Option<Result<Vec<Row>, Error>> {
        let statement = self.find(sql).filter(|_| sessions.can_prepare())?;
        let values: Vec<_> = values.iter().map(|(value, _)| *value).collect();
        match client.query(&statement, &values).await {
            Ok(rows) if !sql.is_answered_by(&rows) => {
                sessions.note_pooler(&"a statement belongs to another process");
                None
            }
            Err(error) if failure::is_unknown(&error) => {
                sessions.note_pooler(&error);
                None
            }
            Err(error) if failure::is_outdated(&error) => {
                self.all().clear();
                None
            }
            answer => Some(answer),
        }
    }

    /// Prepares a statement, unless sessions are shared. A failure is harmless.
    pub(super) async fn prepare(
        &self,
        client: &Client,
        sessions: &Sessions,
        sql: &Sql,
        values: &[Value<'_>],
    ) {
        if !sessions.can_prepare() {
            return;
        }
        let types: Vec<Type> = values.iter().map(|(_, kind)| kind.clone()).collect();
        match client.prepare_typed(&sql.text, &types).await {
            Ok(statement) => self.keep(sql, statement),
            Err(error) if failure::is_unknown(&error) => sessions.note_pooler(&error),
            Err(error) => tracing::debug!(%error, "cannot prepare a statement"),
        }
    }

    fn find(&self, sql: &Sql) -> Option<Statement> {
        let all = self.all();
        let entry = all.iter().find(|entry| entry.is_for(sql))?;
        let statement = entry.statement.as_ref();
        statement.filter(|_| Instant::now() < entry.until).cloned()
    }

    /// Drops a statement, which deallocates it on the server.
    pub(super) fn forget(&self, sql: &Sql) {
        if let Some(entry) = self.all().iter_mut().find(|entry| entry.is_for(sql)) {
            entry.statement = None;
        }
    }

    fn keep(&self, sql: &Sql, statement: Statement) {
        let mut all = self.all();
        let index = all.iter().position(|entry| entry.is_for(sql));
        let lifetime = match index.map(|index| all.swap_remove(index)) {
            Some(entry) => (2 * entry.lifetime).min(MAX_LIFETIME),
            None => FIRST_LIFETIME,
        };
        all.push(PreparedStatement {
            text: sql.text.clone(),
            statement: Some(statement),
            until: Instant::now() + lifetime,
            lifetime,
        });
    }

    fn all(&self) -> MutexGuard<'_, Vec<PreparedStatement>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
