//! Leases in a PostgreSQL database.
//!
//! # Guarantee
//! Linearizable, on the primary: a standby is refused. What was acknowledged is committed, and as durable as the
//! server's `fsync` and `synchronous_commit` make it; an asynchronous failover may forget the last moments. A row that
//! somebody's transaction has locked delays nobody's other leases.
//!
//! # Stored form
//! A row of the table `leasehold_records` for each record: exact, with its lists as JSON and its times in
//! microseconds. The view `leasehold_leases` shows the same to people. Processes that listen for hints have a row there,
//! too, of the kind `listener`.
//!
//! # Set-up
//! The table, its index and the view are made when they are not there and the user may create them. Otherwise an
//! administrator runs `leasehold init` and grants select, insert, update and delete on the table. PostgreSQL 12 or
//! newer, a database with the encoding UTF8.
//!
//! # Options
//! `postgres://USER:PASSWORD@HOST:PORT/DATABASE?…`: `schema` (where the table is), `sslmode` and `sslrootcert` (as
//! libpq has them), `changes=off` (no hints by `NOTIFY`: others then poll), `connections` (8), `margin` (250ms), and
//! libpq's usual ones. The password may be in `PGPASSWORD` instead.
//!
//! # Limits
//! Behind PgBouncer in transaction mode everything works but hearing of changes, for which there is polling.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::Name;
use tokio::time::Instant;
use tokio_postgres::Config;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::sql::Stuck;
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
use options::Options;
use pool::Pool;
use schema::Place;
use statements::Statements;

/// How long a call may take; below an engine's own limit.
const PATIENCE: Duration = Duration::from_secs(4);
/// Connections for writes that wait for a lock.
const RESERVED: usize = 2;
/// Records in a PostgreSQL database.
pub struct Postgres {
    /// For all calls, none of which waits for a row.
    pool: Arc<Pool>,
    /// For writes that do.
    reserved: Pool,
    statements: Statements,
    place: Place,
    /// Unless hints are switched off.
    notifier: Option<Notifier>,
    server: Config,
    tls: MakeRustlsConnect,
    margin: Duration,
    stuck: Stuck,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let store = Postgres::new(url)?;
    store.init().await?;
    Ok(Arc::new(store))
}

impl Postgres {
    fn new(url: &str) -> Result<Self> {
        let options = Options::parse(url)?;
        let tls = options.trust.connector()?;
        let pool = |most| Pool::new(options.server.clone(), tls.clone(), options.place(), most);
        let place = Place::new(options.schema.clone());
        let main = Arc::new(pool(options.connections));
        let statements = Statements::new(&place);
        let notifier = options
            .changes
            .then(|| Notifier::start(main.clone(), &place, statements.mark()));
        Ok(Self {
            reserved: pool(RESERVED),
            pool: main,
            statements,
            place,
            notifier,
            server: options.server.clone(),
            tls: tls.clone(),
            margin: options.margin,
            stuck: Stuck::default(),
        })
    }

    /// Notifies the audience of what was written.
    fn notify(&self, writes: &[Write], swapped: &[Swapped], audience: Audience) {
        let notifier = self.notifier.as_ref();
        let Some(notifier) = notifier.filter(|_| audience != Audience::None) else {
            return;
        };
        for (write, swapped) in writes.iter().zip(swapped) {
            let put = write.put.as_ref().map(|(_, record)| &**record);
            if matches!(swapped, Swapped::Written { .. }) && changes::concerns(audience, put) {
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
        let deadline = Instant::now() + PATIENCE;
        self.statements.load(&self.pool, deadline, names).await
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        let deadline = Instant::now() + PATIENCE;
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
        let deadline = Instant::now() + PATIENCE;
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
        let deadline = Instant::now() + PATIENCE;
        schema::init(&self.pool, &self.place, &self.statements, deadline).await
    }

    async fn check(&self) -> Result<Vec<Check>> {
        let deadline = Instant::now() + PATIENCE;
        check::check(&self.pool, &self.place, deadline).await
    }
}
