//! Leases in a MongoDB replica set.
//!
//! # Guarantee
//! Linearizable, and kept through the loss of a primary: every write is acknowledged by a majority and in its journals,
//! every read is linearizable and on the primary, whatever the URL or the database's defaults say. A standalone server,
//! and a URL that asks for less, are refused. Time is the primary's own, told in the same round trip.
//!
//! # Stored form
//! A document for each record, `_id` being `lock:NAME`: a field for everything, `owner`, `mode` and `expires` for people, exact
//! lists as JSON, times in microseconds. `asked` is when a write last found another version than it expected.
//!
//! # Set-up
//! The collection and its index are made when they are not there; the role `readWrite` on the database is enough.
//! MongoDB 4.4 or newer, as a replica set (one member will do) or behind `mongos`.
//!
//! # Options
//! `mongodb://[USER:PASSWORD@]HOST[:PORT],…/DATABASE?…`, or `mongodb+srv://` where the DNS has the hosts: `collection`
//! (`leases`), `changes=off` (no change stream: poll), `margin` (250ms: what a new primary's clock may differ by), and the
//! driver's usual ones.
//!
//! # Limits
//! A batch is as many commands at once: documents of their own, no transaction. A name that nothing is stored under, but
//! was expected to, costs a second round trip.
//!
//! Commands are never repeated by the driver (`retryWrites` in the URL changes nothing): the engine knows which may be.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::{Name, Stamp};
use mongodb::bson::{Document, doc};
use mongodb::options::{ReadPreference, SelectionCriteria};
use mongodb::{Client, Database};

use super::sql::{self, Search};
use super::{Answer, Changes, Check, Facts, Page, Query, Store, Stored, Swapped, Write};
use crate::{Error, Result};

mod background;
mod changes;
mod commands;
mod document;
mod failure;
mod options;
mod schema;

use background::Background;
use failure::Doubt;
use options::Options;

/// How long a command may take; below an engine's own limit.
const PATIENCE: Duration = Duration::from_secs(4);
/// How often a write is sent that others made way for, or got in the way of, while it was under way.
const TRIES: usize = 5;

/// Records in a MongoDB collection.
pub struct Mongodb {
    database: Database,
    options: Options,
    /// Where the driver's own tasks run: they must outlive every command.
    background: Background,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let (options, server) = Options::parse(url).await?;
    let background = Background::start()?;
    let client = background
        .within(|| Client::with_options(server))
        .map_err(|error| failure::connecting(&error))?;
    let store = Mongodb {
        database: client.database(&options.database),
        options,
        background,
    };
    store.init().await?;
    Ok(Arc::new(store))
}

impl Mongodb {
    /// Runs a command on the primary, once: the options keep the driver from repeating it.
    async fn run(&self, command: Document, doubt: Doubt) -> Result<Document> {
        let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
        let running = self
            .database
            .run_command(command)
            .selection_criteria(primary);
        match tokio::time::timeout(PATIENCE, running).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(failure::answered(&error, doubt)),
            Err(_) => Err(failure::lost("MongoDB does not answer".into(), doubt)),
        }
    }

    /// Swaps one record; the server's time, where it told it.
    async fn swap_one(&self, write: &Write) -> (Swapped, Option<Stamp>) {
        let command = match commands::swap(&self.options.collection, write) {
            Ok(command) => command,
            Err(error) => return (Swapped::Failed(error), None),
        };
        for _ in 0..TRIES {
            let answer = match self.run(command.clone(), Doubt::MayHaveWritten).await {
                Ok(answer) => answer,
                // Two that insert the same name at once: the one that lost finds it the next time.
                Err(Error::Unavailable(why)) if why == failure::IN_THE_WAY => continue,
                Err(error) => return (Swapped::Failed(error), None),
            };
            match commands::swapped(&answer, write) {
                Ok(Some((swapped, stamp))) => return (swapped, Some(stamp)),
                Err(error) => return (Swapped::Failed(error), None),
                // Nothing was there. Only a linearizable read may say so.
                Ok(None) => match self.load(std::slice::from_ref(&write.name)).await {
                    Ok(Answer { mut value, stamp }) => {
                        let current = value.pop().flatten();
                        let expected = write.expect.as_ref().map(|version| version.write);
                        if current.as_ref().map(|stored| stored.version.write) == expected {
                            continue;
                        }
                        return (Swapped::Conflict(current), Some(stamp));
                    }
                    Err(error) => return (Swapped::Failed(error), None),
                },
            }
        }
        let problem = format!("`{}` is too busy in MongoDB", write.name);
        (Swapped::Failed(Error::Unavailable(problem)), None)
    }

    async fn time(&self) -> Result<Stamp> {
        let hello = self.run(doc! { "hello": 1 }, Doubt::None).await?;
        document::stamp(&hello, "localTime")
    }
}

#[async_trait]
impl Store for Mongodb {
    fn facts(&self) -> Facts {
        Facts {
            margin: self.options.margin,
            // So many of the largest records fit into one answer of 16 MB.
            batch: 32,
            in_flight: 4,
            poll: Duration::from_millis(if self.options.changes { 250 } else { 100 }),
        }
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        let command = commands::load(&self.options.collection, names);
        let answer = self.run(command, Doubt::None).await?;
        commands::loaded(&answer, names)
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        let done = join_all(writes.iter().map(|write| self.swap_one(write))).await;
        let latest = done.iter().filter_map(|(_, stamp)| *stamp);
        let stamp = match latest.max_by_key(|stamp| stamp.time) {
            Some(stamp) => stamp,
            None if writes.is_empty() => self.time().await?,
            None => return Err(all_failed(done)),
        };
        let value = done.into_iter().map(|(swapped, _)| swapped).collect();
        Ok(Answer { value, stamp })
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        let search = Search::new(query)?;
        let command = commands::find(&self.options.collection, query, &search);
        let answer = self.run(command, Doubt::None).await?;
        let found = commands::found(&answer)?;
        let stamp = match found.stamp {
            Some(stamp) => stamp,
            None => self.time().await?,
        };
        let mut query = query.clone();
        if let Some(cursor) = found.unfinished {
            // More than one answer can hold: what is there makes a page, if a short one.
            let kill = doc! { "killCursors": &self.options.collection, "cursors": [cursor] };
            let _ = self.run(kill, Doubt::None).await;
            query.limit = query.limit.min(found.records.len().saturating_sub(1));
        }
        let value = sql::page(found.records, &query);
        Ok(Answer { value, stamp })
    }

    fn changes(&self) -> Option<Changes> {
        let collection = self.database.collection(&self.options.collection);
        let follow = || changes::follow(collection);
        self.options.changes.then(|| self.background.within(follow))
    }

    async fn init(&self) -> Result<()> {
        schema::init(self).await
    }

    async fn check(&self) -> Result<Vec<Check>> {
        schema::check(self).await
    }
}

/// The error of a batch of which nothing was answered: the one that leaves most open.
fn all_failed(done: Vec<(Swapped, Option<Stamp>)>) -> Error {
    let mut errors = done.into_iter().filter_map(|(swapped, _)| match swapped {
        Swapped::Failed(error) => Some(error),
        _ => None,
    });
    let first = errors.next();
    errors
        .find(|error| matches!(error, Error::Indeterminate(_)))
        .filter(|_| !matches!(first, Some(Error::Indeterminate(_))))
        .or(first)
        .unwrap_or_else(|| Error::Indeterminate("MongoDB did not tell its time".into()))
}
