//! A few connections, each lent to one call at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, Row};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::failure::{self, Doubt};
use crate::{Error, Result};

/// How long a connection may have been idle to be trusted unasked. A dead one would leave a write in doubt.
const TRUSTED: Duration = Duration::from_secs(5);

/// The rows of each statement of a batch.
pub(super) type Sets = Vec<Vec<Row>>;

/// Connections that are made when they are needed and kept while they work.
pub(super) struct Pool {
    server: Opts,
    place: String,
    idle: Mutex<Vec<(Conn, Instant)>>,
    permits: Semaphore,
}

/// Statements that are sent as one.
pub(super) struct Script {
    pub(super) text: String,
    /// The number of the statement that commits, counted from zero; `None` where nothing is written.
    pub(super) commit: Option<usize>,
}

impl Pool {
    pub(super) fn new(server: Opts, place: String, most: usize) -> Self {
        Self {
            server,
            place,
            idle: Mutex::default(),
            permits: Semaphore::new(most),
        }
    }

    /// Runs statements on a connection of their own, in one round trip. `None` where somebody else's transaction was in
    /// the way, and all is undone.
    pub(super) async fn ask(&self, deadline: Instant, script: &Script) -> Result<Option<Sets>> {
        let in_time = |_| Error::Unavailable(format!("no connection to {} in time", self.place));
        let permit = timeout_at(deadline, self.permits.acquire()).await;
        let _permit = permit.map_err(in_time)?;
        let mut conn = timeout_at(deadline, self.connection())
            .await
            .map_err(in_time)??;
        let sent = timeout_at(deadline, run(&mut conn, script)).await;
        let Ok(answer) = sent else {
            self.idle().clear();
            let doubt = match script.commit {
                Some(_) => Doubt::MayHaveWritten,
                None => Doubt::None,
            };
            let problem = format!("the server at {} did not answer in time", self.place);
            return Err(failure::lost(problem, doubt));
        };
        let answer = match answer {
            Ok(sets) => Ok(Some(sets)),
            Err((error, _)) if failure::is_in_the_way(&error) => {
                match timeout_at(deadline, conn.query_drop("rollback")).await {
                    Ok(Ok(())) => Ok(None),
                    // Undone by the server as soon as it sees that the connection is gone.
                    _ => return Ok(None),
                }
            }
            Err((error, doubt)) => Err(failure::answered(&error, doubt)),
        };
        let mut idle = self.idle();
        match answer {
            Ok(_) => idle.push((conn, Instant::now())),
            // A server that was away, or a network that forgot them, takes all alike.
            Err(_) => idle.clear(),
        }
        answer
    }

    /// A connection: an idle one, or a new one.
    async fn connection(&self) -> Result<Conn> {
        loop {
            let idle = self.idle().pop();
            match idle {
                None => break,
                Some((conn, since)) if since.elapsed() < TRUSTED => return Ok(conn),
                Some((mut conn, _)) => {
                    if conn.ping().await.is_ok() {
                        return Ok(conn);
                    }
                }
            }
        }
        Conn::new(self.server.clone())
            .await
            .map_err(|error| failure::connecting(&self.place, &error))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Conn, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs statements; the rows of each. An error comes with what it leaves open.
async fn run(conn: &mut Conn, script: &Script) -> Result<Sets, (mysql_async::Error, Doubt)> {
    let writes = match script.commit {
        Some(_) => Doubt::MayHaveWritten,
        None => Doubt::None,
    };
    // Of the first statement, which never commits; unless no answer came at all.
    let first = |error: mysql_async::Error| match error {
        mysql_async::Error::Server(_) => (error, Doubt::None),
        _ => (error, writes),
    };
    let mut result = conn.query_iter(&script.text).await.map_err(first)?;
    let mut sets = Sets::new();
    let (failed, statement) = loop {
        match result.collect().await {
            Ok(rows) => sets.push(rows),
            // Perhaps the next one's already, whose beginning is read with the end of this one.
            Err(error) => break (error, sets.len() + 1),
        }
        if result.is_empty() {
            // It is empty too when the next statement failed, which only this tells.
            match result.drop_result().await {
                Ok(()) => return Ok(sets),
                Err(error) => break (error, sets.len()),
            }
        }
    };
    let before_commit = script.commit.is_none_or(|commit| statement < commit);
    let undone = before_commit && matches!(failed, mysql_async::Error::Server(_));
    Err((failed, if undone { Doubt::None } else { writes }))
}
