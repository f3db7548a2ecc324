//! Leases in a PostgreSQL database.
//!
//! # Guarantee
//! Linearizable on the primary; a standby is refused. Acknowledged writes are committed, and as durable as the
//! server's `fsync` and `synchronous_commit` make them; an asynchronous failover may lose the last ones. A row locked
//! by another transaction does not delay other leases.
//!
//! # Stored form
//! One row of the table `leasehold_records` per record, in full, with its lists as JSON and its times in
//! microseconds. The view `leasehold_leases` shows the records in readable form. Processes that listen for changes
//! also have a row there, of the kind `listener`.
//!
//! # Set-up
//! The table, its index and the view are created if they are missing and the user has the right to. Otherwise an
//! administrator runs `leasehold init` and grants select, insert, update and delete on the table. Requires PostgreSQL
//! 12 or newer and a database with the encoding UTF8.
//!
//! # Options
//! `postgres://USER:PASSWORD@HOST:PORT/DATABASE?…`: `schema` (of the table), `sslmode` and `sslrootcert` (as in
//! libpq), `changes=off` (no notifications by `NOTIFY`: other processes then poll), `connections` (8), `margin`
//! (250ms), and libpq's usual ones. The password may be in `PGPASSWORD` instead.
//!
//! # Limits
//! Behind PgBouncer in transaction mode everything works except listening for changes, which is replaced by polling.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::Name;
use tokio::time::Instant;
use tokio_postgres::Config;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::sql::LockedRows;
use super::{Answer, Changes, Check, Facts, Page, Query, Store, Stored, Swapped, Write};
use crate::Result;

mod changes;
mod check;
mod failure;
mod listeners;
mod options;
mod pool;
mod prepared;
mod row;
mod schema;
mod shape;
mod statements;
mod swap;
mod tls;

use changes::Notifier;
use listeners::Audience;
use options::PostgresOptions;
use pool::Pool;
use schema::TableLocation;
use statements::Statements;

/// How long a call may take: less than the engine's own limit.
const CALL_TIMEOUT: Duration = Duration::from_secs(4);
/// The number of connections for writes that wait for a lock.
const RESERVED: usize = 2;
/// A store in a PostgreSQL database.
pub struct Postgres {
    /// For calls that do not wait for locked rows.
    pool: Arc<Pool>,
    /// For writes that wait for a locked row.
    reserved: Pool,
    statements: Statements,
    location: TableLocation,
    /// `None` if notifications are switched off.
    notifier: Option<Notifier>,
    server: Config,
    tls: MakeRustlsConnect,
    margin: Duration,
    locked_rows: LockedRows,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let store = Postgres::new(url)?;
    store.init().await?;
    Ok(Arc::new(store))
}

impl Postgres {
    fn new(url: &str) -> Result<Self> {
        let options = PostgresOptions::parse(url)?;
        let tls = options.trust.connector()?;
        let pool = |size| {
            Pool::new(
                options.server.clone(),
                tls.clone(),
                options.location(),
                size,
            )
        };
        let location = TableLocation::new(options.schema.clone());
        let main = Arc::new(pool(options.connections));
        let statements = Statements::new(&location);
        let notifier = options
            .changes
            .then(|| Notifier::start(main.clone(), &location, statements.mark()));
        Ok(Self {
            reserved: pool(RESERVED),
            pool: main,
            statements,
            location,
            notifier,
            server: options.server.clone(),
            tls: tls.clone(),
            margin: options.margin,
            locked_rows: LockedRows::default(),
        })
    }

    /// Notifies the audience of the writes that succeeded.
    fn notify(&self, writes: &[Write], swapped: &[Swapped], audience: Audience) {
        let notifier = self.notifier.as_ref();
        let Some(notifier) = notifier.filter(|_| audience != Audience::None) else {
            return;
        };
        for (write, swapped) in writes.iter().zip(swapped) {
            let put = write.put.as_ref().map(|(_, record)| &**record);
            if matches!(swapped, Swapped::Written { .. }) && changes::is_relevant(audience, put) {
                notifier.notify(&write.name);
            }
        }
    }
}

#[async_trait]
impl Store for Postgres {
    fn facts(&self) -> Facts {
        Facts {
            margin: self.margin,
            batch: 256,
            in_flight: 2,
            poll: match self.notifier {
                Some(_) => Duration::from_millis(200),
                None => Duration::from_millis(100),
            },
        }
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        let deadline = Instant::now() + CALL_TIMEOUT;
        self.statements.load(&self.pool, deadline, names).await
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        let deadline = Instant::now() + CALL_TIMEOUT;
        if writes.is_empty() {
            let Answer { stamp, .. } = self.load(&[]).await?;
            return Ok(Answer {
                value: Vec::new(),
                stamp,
            });
        }
        let (swapped, audience) = self.swap_all(&writes, deadline).await?;
        self.notify(&writes, &swapped.value, audience);
        Ok(swapped)
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        let deadline = Instant::now() + CALL_TIMEOUT;
        self.statements.find(&self.pool, deadline, query).await
    }

    fn changes(&self) -> Option<Changes> {
        let notifier = self.notifier.as_ref()?;
        Some(notifier.listen(self.server.clone(), self.tls.clone()))
    }

    fn watch(&self) {
        if let Some(notifier) = &self.notifier {
            notifier.watch();
        }
    }

    async fn close(&self) {
        if let Some(notifier) = &self.notifier {
            notifier.close().await;
        }
    }

    async fn init(&self) -> Result<()> {
        let deadline = Instant::now() + CALL_TIMEOUT;
        schema::init(&self.pool, &self.location, &self.statements, deadline).await
    }

    async fn check(&self) -> Result<Vec<Check>> {
        let deadline = Instant::now() + CALL_TIMEOUT;
        check::check(&self.pool, &self.location, deadline).await
    }
}
