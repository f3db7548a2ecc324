//! A connection pool.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::AbortHandle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::{self, Ambiguity};
use super::prepared::{Prepared, Sessions, Sql};
use crate::{Error, Result};

/// A parameter of a statement, with its type.
pub(super) type Value<'v> = (&'v (dyn ToSql + Sync), Type);

/// Connections that are opened on demand and reused while they work.
pub(super) struct Pool {
    server: Config,
    tls: MakeRustlsConnect,
    location: String,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
    sessions: Sessions,
}

/// One connection. Dropping it closes it, whatever the server does.
pub(super) struct Connection {
    client: Client,
    prepared: Prepared,
    driver: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A connection in exclusive use by a call. It returns to the pool only if everything was answered.
pub(super) struct PooledConnection<'p> {
    pool: &'p Pool,
    connection: Connection,
    _permit: SemaphorePermit<'p>,
}

impl Pool {
    pub(super) fn new(
        server: Config,
        tls: MakeRustlsConnect,
        location: String,
        size: usize,
    ) -> Self {
        Self {
            server,
            tls,
            location,
            idle: Mutex::default(),
            permits: Semaphore::new(size),
            sessions: Sessions::default(),
        }
    }

    /// Returns an idle or a new connection. Waits until `turn` if all are in use; a new one must be open by
    /// `deadline`.
    pub(super) async fn acquire(
        &self,
        turn: Instant,
        deadline: Instant,
    ) -> Result<PooledConnection<'_>> {
        let late = |_| {
            Error::Unavailable(format!(
                "timed out waiting for a connection to PostgreSQL at {}",
                self.location
            ))
        };
        let connection = async {
            let permit = timeout_at(turn, self.permits.acquire())
                .await
                .map_err(late)?
                .map_err(|closed| Error::Unavailable(format!("the store is closed: {closed}")))?;
            let idle = loop {
                match self.idle().pop() {
                    Some(connection) if connection.client.is_closed() => {}
                    other => break other,
                }
            };
            let connection = match idle {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            Ok(PooledConnection {
                pool: self,
                connection,
                _permit: permit,
            })
        };
        timeout_at(deadline, connection).await.map_err(late)?
    }

    async fn connect(&self) -> Result<Connection> {
        let (client, connection) = self
            .server
            .connect(self.tls.clone())
            .await
            .map_err(|error| failure::while_connecting(&self.location, &error))?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
            }
        });
        Ok(Connection {
            client,
            prepared: Prepared::default(),
            driver: driver.abort_handle(),
        })
    }

    /// Runs one statement on a pooled connection, in one round trip.
    pub(super) async fn query(
        &self,
        deadline: Instant,
        ambiguity: Ambiguity,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>> {
        let connection = self.acquire(deadline, deadline).await?;
        let answer = connection
            .query(deadline, ambiguity, statement, values)
            .await;
        connection.release(&answer);
        answer
    }

    /// Runs a frequent statement, which is prepared if possible.
    pub(super) async fn query_prepared(
        &self,
        deadline: Instant,
        ambiguity: Ambiguity,
        sql: &Sql,
        values: &[Value<'_>],
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>> {
        let connection = self.acquire(deadline, deadline).await?;
        let answer = connection
            .query_prepared(deadline, ambiguity, sql, values)
            .await;
        connection.release(&answer);
        answer
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PooledConnection<'_> {
    /// Runs one statement unprepared, so that nothing remains in the session, which may be another one each time.
    ///
    /// The inner error is the server's, and has rolled back the statement.
    pub(super) async fn query(
        &self,
        deadline: Instant,
        ambiguity: Ambiguity,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>> {
        let rows = self.connection.client.query_typed(statement, values);
        self.received(ambiguity, timeout_at(deadline, rows).await)
    }

    /// Runs one statement that is prepared in the session. If it is not yet, prepares it in the same round trip.
    async fn query_prepared(
        &self,
        deadline: Instant,
        ambiguity: Ambiguity,
        sql: &Sql,
        values: &[Value<'_>],
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>> {
        let Connection {
            client, prepared, ..
        } = &self.connection;
        let sessions = &self.pool.sessions;
        let rows = prepared.query(client, sessions, sql, values);
        match timeout_at(deadline, rows).await {
            Ok(Some(answer)) => self.received(ambiguity, Ok(answer)),
            Err(late) => self.received(ambiguity, Err(late)),
            Ok(None) => {
                let answer = self.query(deadline, ambiguity, sql.text(), values);
                let prepare = prepared.prepare(client, sessions, sql, values);
                // Sent after the others: the answer to this alone would look like another round trip, and be one.
                let forget = async { prepared.forget(sql) };
                tokio::join!(answer, timeout_at(deadline, prepare), forget).0
            }
        }
    }

    fn received(
        &self,
        ambiguity: Ambiguity,
        answer: Result<Result<Vec<Row>, tokio_postgres::Error>, Elapsed>,
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>> {
        let Ok(answer) = answer else {
            let problem = format!(
                "PostgreSQL at {} did not answer in time",
                self.pool.location
            );
            return Err(failure::unanswered(problem, ambiguity));
        };
        match answer {
            Ok(rows) => Ok(Ok(rows)),
            Err(error) if failure::is_retryable(&error) || failure::is_locked(&error) => {
                Ok(Err(error))
            }
            Err(error) => Err(failure::from_server(&error, ambiguity)),
        }
    }

    /// Runs statements without parameters, all or none.
    pub(super) async fn run(&self, deadline: Instant, statements: &str) -> Result<()> {
        let ran = self.connection.client.batch_execute(statements);
        match timeout_at(deadline, ran).await {
            Ok(ran) => ran.map_err(|error| failure::from_server(&error, Ambiguity::MayHaveWritten)),
            Err(_) => Err(Error::Indeterminate(format!(
                "PostgreSQL at {} did not answer in time",
                self.pool.location
            ))),
        }
    }

    /// Keeps the connection for the next call if this one was answered. Otherwise drops all idle connections too: a
    /// server restart or a network failure affects them all.
    pub(super) fn release<T>(self, answer: &Result<T>) {
        let Self {
            pool, connection, ..
        } = self;
        let mut idle = pool.idle();
        match answer {
            Ok(_) => idle.push(connection),
            Err(_) => idle.clear(),
        }
    }
}
