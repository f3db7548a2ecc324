//! A few connections, each lent to one call at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::AbortHandle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::{self, Doubt};
use super::prepared::{Prepared, Sessions, Sql};
use crate::{Error, Result};

/// A value of a statement, with the type that it is sent as.
pub(super) type Value<'v> = (&'v (dyn ToSql + Sync), Type);

/// Connections that are made when they are needed and kept while they work.
pub(super) struct Pool {
    server: Config,
    tls: MakeRustlsConnect,
    place: String,
    idle: Mutex<Vec<Link>>,
    permits: Semaphore,
    sessions: Sessions,
}

/// One connection. Dropped, it is closed, whatever the server does.
pub(super) struct Link {
    client: Client,
    prepared: Prepared,
    driver: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A connection that a call has for itself. Only one that has answered everything is kept.
pub(super) struct Lent<'p> {
    pool: &'p Pool,
    link: Link,
    _permit: SemaphorePermit<'p>,
}

impl Pool {
    pub(super) fn new(server: Config, tls: MakeRustlsConnect, place: String, most: usize) -> Self {
        Self {
            server,
            tls,
            place,
            idle: Mutex::default(),
            permits: Semaphore::new(most),
            sessions: Sessions::default(),
        }
    }

    /// A connection: an idle one, or a new one. Where all are lent, one is waited for until `turn`; a new one is made by
    /// `deadline`.
    pub(super) async fn link(&self, turn: Instant, deadline: Instant) -> Result<Lent<'_>> {
        let late = |_| {
            Error::Unavailable(format!(
                "no connection to PostgreSQL at {} in time",
                self.place
            ))
        };
        let link = async {
            let permit = timeout_at(turn, self.permits.acquire())
                .await
                .map_err(late)?
                .map_err(|closed| Error::Unavailable(format!("the store is closed: {closed}")))?;
            let idle = loop {
                match self.idle().pop() {
                    Some(link) if link.client.is_closed() => {}
                    other => break other,
                }
            };
            let link = match idle {
                Some(link) => link,
                None => self.connect().await?,
            };
            Ok(Lent {
                pool: self,
                link,
                _permit: permit,
            })
        };
        timeout_at(deadline, link).await.map_err(late)?
    }

    async fn connect(&self) -> Result<Link> {
        let (client, connection) = self
            .server
            .connect(self.tls.clone())
            .await
            .map_err(|error| failure::connecting(&self.place, &error))?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
            }
        });
        Ok(Link {
            client,
            prepared: Prepared::default(),
            driver: driver.abort_handle(),
        })
    }

    /// Runs one statement on a connection of its own, in one round trip.
    pub(super) async fn ask(
        &self,
        deadline: Instant,
        doubt: Doubt,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>> {
        let lent = self.link(deadline, deadline).await?;
        let answer = lent.ask(deadline, doubt, statement, values).await;
        lent.give_back(&answer);
        answer
    }

    /// The same for a statement that is sent often.
    pub(super) async fn ask_often(
        &self,
        deadline: Instant,
        doubt: Doubt,
        sql: &Sql,
        values: &[Value<'_>],
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>> {
        let lent = self.link(deadline, deadline).await?;
        let answer = lent.ask_often(deadline, doubt, sql, values).await;
        lent.give_back(&answer);
        answer
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lent<'_> {
    /// Runs one statement: unnamed, so that nothing of it stays in the session, which may be another one each time.
    ///
    /// The inner error is one that the server gave and that has undone the statement.
    pub(super) async fn ask(
        &self,
        deadline: Instant,
        doubt: Doubt,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>> {
        let rows = self.link.client.query_typed(statement, values);
        self.heard(doubt, timeout_at(deadline, rows).await)
    }

    /// Runs one statement that is prepared in the session, or else is from now on: that is asked for in the same round
    /// trip.
    async fn ask_often(
        &self,
        deadline: Instant,
        doubt: Doubt,
        sql: &Sql,
        values: &[Value<'_>],
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>> {
        let Link {
            client, prepared, ..
        } = &self.link;
        let sessions = &self.pool.sessions;
        let rows = prepared.ask(client, sessions, sql, values);
        match timeout_at(deadline, rows).await {
            Ok(Some(answer)) => self.heard(doubt, Ok(answer)),
            Err(late) => self.heard(doubt, Err(late)),
            Ok(None) => {
                let asked = self.ask(deadline, doubt, sql.text(), values);
                let anew = prepared.prepare(client, sessions, sql, values);
                // After the others: an answer to this alone would look like one more round trip, and be one.
                let former = async { prepared.forget(sql) };
                tokio::join!(asked, timeout_at(deadline, anew), former).0
            }
        }
    }

    fn heard(
        &self,
        doubt: Doubt,
        answer: Result<Result<Vec<Row>, tokio_postgres::Error>, Elapsed>,
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>> {
        let Ok(answer) = answer else {
            let problem = format!("PostgreSQL at {} did not answer in time", self.pool.place);
            return Err(failure::lost(problem, doubt));
        };
        match answer {
            Ok(rows) => Ok(Ok(rows)),
            Err(error) if failure::is_outrun(&error) || failure::is_locked(&error) => {
                Ok(Err(error))
            }
            Err(error) => Err(failure::answered(&error, doubt)),
        }
    }

    /// Runs statements without values, all or none.
    pub(super) async fn run(&self, deadline: Instant, statements: &str) -> Result<()> {
        let ran = self.link.client.batch_execute(statements);
        match timeout_at(deadline, ran).await {
            Ok(ran) => ran.map_err(|error| failure::answered(&error, Doubt::MayHaveWritten)),
            Err(_) => Err(Error::Indeterminate(format!(
                "PostgreSQL at {} did not answer in time",
                self.pool.place
            ))),
        }
    }

    /// Keeps the connection for the next call, if this one was answered. Otherwise the others are not to be trusted
    /// either: a server that was away, or a network that forgot them, takes all alike.
    pub(super) fn give_back<T>(self, answer: &Result<T>) {
        let Self { pool, link, .. } = self;
        let mut idle = pool.idle();
        match answer {
            Ok(_) => idle.push(link),
            Err(_) => idle.clear(),
        }
    }
}
