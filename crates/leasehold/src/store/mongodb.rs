//! Leases in a MongoDB replica set.
//!
//! # Guarantee
//! Linearizable, and durable through the loss of a primary: every write is acknowledged by a majority and journaled
//! there, every read is linearizable and on the primary, whatever the defaults of the URL or the database are. A
//! standalone server, and a URL with weaker settings, are refused. The time is the primary's, read in the same round
//! trip.
//!
//! # Stored form
//! One document per record, with the `_id` `lock:NAME`: one field per value, `owner`, `mode` and `expires` for
//! readers, exact lists as JSON, times in microseconds. `asked` is when a write last conflicted.
//!
//! # Set-up
//! The collection and its index are created if they are missing; the role `readWrite` on the database suffices.
//! Requires MongoDB 4.4 or newer, as a replica set (one member suffices) or behind `mongos`.
//!
//! # Options
//! `mongodb://[USER:PASSWORD@]HOST[:PORT],…/DATABASE?…`, or `mongodb+srv://` for hosts in the DNS: `collection`
//! (`leases`), `changes=off` (poll instead of a change stream), `margin` (250ms: how far a new primary's clock may
//! differ), and the driver's usual ones.
//!
//! # Limits
//! A batch is sent as concurrent commands on separate documents, without a transaction. A write that expects a record
//! where there is none costs a second round trip.
//!
//! The driver never retries commands (`retryWrites` in the URL has no effect): the engine knows which ones may be
//! retried.

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
use failure::Ambiguity;
use options::MongodbOptions;

/// How long a command may take: less than the engine's own limit.
const CALL_TIMEOUT: Duration = Duration::from_secs(4);
/// How often a write that conflicts with concurrent ones is sent.
const TRIES: usize = 5;

/// A store in a MongoDB collection.
pub struct Mongodb {
    database: Database,
    options: MongodbOptions,
    /// Runs the driver's own tasks, which must outlive every command.
    background: Background,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let (options, server) = MongodbOptions::parse(url).await?;
    let background = Background::start()?;
    let client = background
        .enter(|| Client::with_options(server))
        .map_err(|error| failure::while_connecting(&error))?;
    let store = Mongodb {
        database: client.database(&options.database),
        options,
        background,
    };
    store.init().await?;
    Ok(Arc::new(store))
}

impl Mongodb {
    /// Runs a command on the primary once: the options prevent the driver from retrying it.
    async fn run(&self, command: Document, ambiguity: Ambiguity) -> Result<Document> {
        let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
        let running = self
            .database
            .run_command(command)
            .selection_criteria(primary);
        match tokio::time::timeout(CALL_TIMEOUT, running).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(failure::from_driver(&error, ambiguity)),
            Err(_) => Err(failure::unanswered(
                "MongoDB does not answer".into(),
                ambiguity,
            )),
        }
    }

    /// Swaps one record. Returns the server's time if it answered.
    async fn swap_one(&self, write: &Write) -> (Swapped, Option<Stamp>) {
        let command = match commands::swap(&self.options.collection, write) {
            Ok(command) => command,
            Err(error) => return (Swapped::Failed(error), None),
        };
        for _ in 0..TRIES {
            let answer = match self.run(command.clone(), Ambiguity::MayHaveWritten).await {
                Ok(answer) => answer,
                // Two concurrent inserts of a name: the one that failed finds the record next time.
                Err(Error::Unavailable(why)) if why == failure::WRITE_CONFLICT => continue,
                Err(error) => return (Swapped::Failed(error), None),
            };
            match commands::swapped(&answer, write) {
                Ok(Some((swapped, stamp))) => return (swapped, Some(stamp)),
                Err(error) => return (Swapped::Failed(error), None),
                // No record was found, which only a linearizable read can confirm.
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
        let problem = format!(
            "too many concurrent writes to `{}` in MongoDB: try again",
            write.name
        );
        (Swapped::Failed(Error::Unavailable(problem)), None)
    }

    async fn time(&self) -> Result<Stamp> {
        let hello = self.run(doc! { "hello": 1 }, Ambiguity::None).await?;
        document::stamp(&hello, "localTime")
    }
}

#[async_trait]
impl Store for Mongodb {
    fn facts(&self) -> Facts {
        Facts {
            margin: self.options.margin,
            // This many of the largest records fit into one answer of 16 MB.
            batch: 32,
            in_flight: 4,
            poll: Duration::from_millis(if self.options.changes { 250 } else { 100 }),
        }
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        let command = commands::load(&self.options.collection, names);
        let answer = self.run(command, Ambiguity::None).await?;
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
        let answer = self.run(command, Ambiguity::None).await?;
        let found = commands::found(&answer)?;
        let stamp = match found.stamp {
            Some(stamp) => stamp,
            None => self.time().await?,
        };
        let mut query = query.clone();
        if let Some(cursor) = found.unfinished {
            // One answer could not hold everything: return what is there as a shorter page.
            let kill = doc! { "killCursors": &self.options.collection, "cursors": [cursor] };
            let _ = self.run(kill, Ambiguity::None).await;
            query.limit = query.limit.min(found.records.len().saturating_sub(1));
        }
        let value = sql::page(found.records, &query);
        Ok(Answer { value, stamp })
    }

    fn changes(&self) -> Option<Changes> {
        let collection = self.database.collection(&self.options.collection);
        let follow = || changes::follow(collection);
        self.options.changes.then(|| self.background.enter(follow))
    }

    async fn init(&self) -> Result<()> {
        schema::init(self).await
    }

    async fn check(&self) -> Result<Vec<Check>> {
        schema::check(self).await
    }
}

/// Returns the error for a batch without any answer: an indeterminate one if there is one.
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
        .unwrap_or_else(|| Error::Indeterminate("MongoDB did not report its time".into()))
}
