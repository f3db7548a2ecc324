//! A connection pool.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, Row};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::failure::{self, Ambiguity};
use crate::{Error, Result};

/// How long an idle connection is used without a check. A write on a dead connection would be ambiguous.
const TRUSTED_IDLE_TIME: Duration = Duration::from_secs(5);

/// The rows of each statement of a batch.
pub(super) type ResultSets = Vec<Vec<Row>>;

/// Connections that are opened on demand and reused while they work.
pub(super) struct Pool {
    server: Opts,
    location: String,
    idle: Mutex<Vec<(Conn, Instant)>>,
    permits: Semaphore,
}

/// Statements that are sent in one request.
pub(super) struct Script {
    pub(super) text: String,
    /// The index of the statement that commits; `None` if nothing is written.
    pub(super) commit: Option<usize>,
}

impl Pool {
    pub(super) fn new(server: Opts, location: String, size: usize) -> Self {
        Self {
            server,
            location,
            idle: Mutex::default(),
            permits: Semaphore::new(size),
        }
    }

    /// Runs statements on a pooled connection, in one round trip. Returns `None` if everything was rolled back because
    /// of another transaction.
    pub(super) async fn query(
        &self,
        deadline: Instant,
        script: &Script,
    ) -> Result<Option<ResultSets>> {
        let late = |_| {
            Error::Unavailable(format!(
                "timed out waiting for a connection to {}",
                self.location
            ))
        };
        let permit = timeout_at(deadline, self.permits.acquire()).await;
        let _permit = permit.map_err(late)?;
        let mut conn = timeout_at(deadline, self.connection())
            .await
            .map_err(late)??;
        let sent = timeout_at(deadline, run(&mut conn, script)).await;
        let Ok(answer) = sent else {
            self.idle().clear();
            let ambiguity = match script.commit {
                Some(_) => Ambiguity::MayHaveWritten,
                None => Ambiguity::None,
            };
            let problem = format!("the server at {} did not answer in time", self.location);
            return Err(failure::unanswered(problem, ambiguity));
        };
        let answer = match answer {
            Ok(sets) => Ok(Some(sets)),
            Err((error, _)) if failure::is_blocked(&error) => {
                match timeout_at(deadline, conn.query_drop("rollback")).await {
                    Ok(Ok(())) => Ok(None),
                    // The server rolls back when it notices that the connection is closed.
                    _ => return Ok(None),
                }
            }
            Err((error, ambiguity)) => Err(failure::from_server(&error, ambiguity)),
        };
        let mut idle = self.idle();
        match answer {
            Ok(_) => idle.push((conn, Instant::now())),
            // A server restart or a network failure affects all connections.
            Err(_) => idle.clear(),
        }
        answer
    }

    /// Returns an idle or a new connection.
    async fn connection(&self) -> Result<Conn> {
        loop {
            let idle = self.idle().pop();
            match idle {
                None => break,
                Some((conn, since)) if since.elapsed() < TRUSTED_IDLE_TIME => return Ok(conn),
                Some((mut conn, _)) => {
                    if conn.ping().await.is_ok() {
                        return Ok(conn);
                    }
                }
            }
        }
        Conn::new(self.server.clone())
            .await
            .map_err(|error| failure::while_connecting(&self.location, &error))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Conn, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs statements, and returns the rows of each. An error is returned with its ambiguity.
async fn run(
    conn: &mut Conn,
    script: &Script,
) -> Result<ResultSets, (mysql_async::Error, Ambiguity)> {
    let writes = match script.commit {
        Some(_) => Ambiguity::MayHaveWritten,
        None => Ambiguity::None,
    };
    // The first statement never commits, so only a missing answer is ambiguous.
    let first = |error: mysql_async::Error| match error {
        mysql_async::Error::Server(_) => (error, Ambiguity::None),
        _ => (error, writes),
    };
    let mut result = conn.query_iter(&script.text).await.map_err(first)?;
    let mut sets = ResultSets::new();
    let (failed, statement) = loop {
        match result.collect().await {
            Ok(rows) => sets.push(rows),
            // The error may belong to the next statement, whose answer is read together with the end of this one.
            Err(error) => break (error, sets.len() + 1),
        }
        if result.is_empty() {
            // The result is also empty if the next statement failed, which only this call reports.
            match result.drop_result().await {
                Ok(()) => return Ok(sets),
                Err(error) => break (error, sets.len()),
            }
        }
    };
    let before_commit = script.commit.is_none_or(|commit| statement < commit);
    let undone = before_commit && matches!(failed, mysql_async::Error::Server(_));
    Err((failed, if undone { Ambiguity::None } else { writes }))
}
