//! Leases in Redis, or a compatible server.
//!
//! # Guarantee
//! Linearizable on one primary: a batch is one script, and Redis runs one script at a time. The durability of
//! acknowledged writes depends on the configuration: on disk with `appendfsync always`, on replicas with `?wait=N`.
//! An asynchronous failover may lose writes, and then a fence may be granted twice. `leasehold doctor` reports the
//! configuration.
//!
//! # Stored form
//! One hash per record, `leasehold:lock:NAME` (readable with `HGETALL`): the version, the record as JSON and, if
//! present, its body and its state. `leasehold:names:lock` is the sorted set of all names,
//! `leasehold:state:lock:STATE` that of the work items in a state, oldest first. `leasehold:probe` contains no data:
//! a call that writes no record writes to it, which a replica refuses and `WAIT` counts.
//!
//! # Set-up
//! None. The user needs `~leasehold:* &leasehold:* +@hash +@sortedset +@scripting +@pubsub +@connection +del +time
//! +info +wait`.
//!
//! # Options
//! `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, or `rediss://` for TLS, then `prefix=` (`leasehold`),
//! `changes=off` (poll instead of subscribing), `wait=N` and `wait_timeout=` (a write is acknowledged once N replicas
//! have it), `margin=` (250ms: how far the server's clock may step), and with TLS `ca=` (a file with trusted
//! certificates; by default the system's), `cert=` and `key=` (files with the client's certificate and key).
//!
//! # Limits
//! No Redis Cluster: a batch writes keys of several slots.

mod changes;
mod check;
mod connection;
mod failure;
mod options;
mod row;
mod server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::Name;
use redis::{Cmd, FromRedisValue as _, Pipeline, Value};

use super::sql::Search;
use super::{Answer, Changes, Check, Facts, Page, Query, Store, Stored, Swapped, Write};
use crate::host::{Host as _, Machine};
use crate::{Error, Result};
use changes::Publisher;
use connection::{Connection, Script};
use options::RedisOptions;
use server::Server;

/// A store in Redis.
pub struct Redis {
    connection: Connection,
    options: RedisOptions,
    swap: Script,
    find: Script,
    publisher: Publisher,
}

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    let options = RedisOptions::parse(url)?;
    let server = Server::new(options.server.clone(), options.tls.as_ref())?;
    let store = Redis {
        connection: Connection::new(server),
        options,
        swap: Script::new(include_str!("redis/swap.lua")),
        find: Script::new(include_str!("redis/find.lua")),
        publisher: Publisher::new(&format!("{:016x}", Machine.random() as u64)),
    };
    store.check_topology().await?;
    Ok(Arc::new(store))
}

impl Redis {
    /// Refuses replicas and clusters, which would answer but violate the guarantee.
    async fn check_topology(&self) -> Result<()> {
        let info = self.info().await?;
        if info.contains("role:slave") {
            return Err(Error::Denied(
                "this Redis is a replica: use the URL of its primary".into(),
            ));
        }
        if info.contains("cluster_enabled:1") {
            return Err(Error::Denied(
                "this is a Redis Cluster, whose scripts cannot write a batch: use a single primary"
                    .into(),
            ));
        }
        Ok(())
    }

    async fn info(&self) -> Result<String> {
        let mut commands = Pipeline::new();
        commands.cmd("INFO");
        let answers = self.connection.read(commands).await?;
        Ok(row::text(answers.first().unwrap_or(&Value::Nil)).to_string())
    }

    /// Returns the command that waits for replicas to have the write.
    fn waiting(&self) -> Option<Cmd> {
        let (replicas, timeout) = self.options.wait?;
        let mut wait = redis::cmd("WAIT");
        wait.arg(replicas).arg(timeout.as_millis() as u64);
        Some(wait)
    }

    /// Returns the argument that tells a script that a `WAIT` follows.
    fn wait_argument(&self) -> &'static str {
        match self.options.wait {
            Some(_) => "wait",
            None => "",
        }
    }

    /// Returns a write that a replica refuses. It follows a read, so that a demoted primary returns no outdated
    /// record.
    ///
    /// With `?wait` it changes data: since Redis 7.2 `WAIT` counts only the connection's own last write, and another
    /// connection may have written the record that was read.
    fn probe(&self) -> Cmd {
        let key = format!("{}:probe", self.options.prefix);
        match self.options.wait {
            Some(_) => Cmd::hset(key, "write", 1),
            None => Cmd::hdel(key, "none"),
        }
    }

    fn check_replicas(&self, answer: Option<&Value>) -> Result<()> {
        let (Some((replicas, timeout)), Some(answer)) = (self.options.wait, answer) else {
            return Ok(());
        };
        let reached = usize::from_redis_value(answer.clone()).unwrap_or_default();
        if reached < replicas {
            return Err(Error::Indeterminate(format!(
                "only {reached} of {replicas} replicas were up to date within {timeout:?}: check the replicas, or raise `wait_timeout` in the store URL"
            )));
        }
        Ok(())
    }

    /// Checks the replicas after a read: nothing has happened if they lag behind.
    fn check_replicas_for_read(&self, answer: Option<&Value>) -> Result<()> {
        let checked = self.check_replicas(answer);
        checked.map_err(|error| Error::Unavailable(error.to_string()))
    }
}

/// Returns the elements of an array of at least two.
fn array_elements(answer: Option<&Value>) -> Result<&[Value]> {
    match answer {
        Some(Value::Array(array_elements)) if array_elements.len() >= 2 => Ok(array_elements),
        other => Err(Error::Corrupt(format!(
            "Redis returned an unexpected answer: {other:?}"
        ))),
    }
}

#[async_trait]
impl Store for Redis {
    fn facts(&self) -> Facts {
        Facts {
            margin: self.options.margin,
            batch: 256,
            in_flight: 8,
            poll: Duration::from_millis(100),
        }
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        let mut commands = Pipeline::new();
        commands.cmd("TIME");
        for name in names {
            commands
                .cmd("HGETALL")
                .arg(row::key(&self.options.prefix, name));
        }
        commands.add_command(self.probe());
        // A write that replicas do not have yet must not count, even if it is loaded later.
        let waits = self.waiting().is_some();
        if let Some(wait) = self.waiting() {
            commands.add_command(wait);
        }
        let mut answers = self.connection.read(commands).await?;
        if waits {
            let reached = answers.pop();
            self.check_replicas_for_read(reached.as_ref())?;
        }
        answers.pop();
        let mut answers = answers.into_iter();
        let time = answers.next();
        let time = array_elements(time.as_ref())?;
        let stamp = row::stamp(&time[0], &time[1])?;
        let value = names
            .iter()
            .zip(answers)
            .map(|(name, hash)| row::stored(name, hash))
            .collect::<Result<_>>()?;
        Ok(Answer { value, stamp })
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        let mut call = self.swap.call(writes.len());
        for write in &writes {
            call.arg(row::key(&self.options.prefix, &write.name));
        }
        let mark = if self.options.changes {
            &*self.publisher.mark
        } else {
            ""
        };
        call.arg(&self.options.prefix)
            .arg(mark)
            .arg(self.publisher.own_subscribers())
            .arg(self.wait_argument());
        for write in &writes {
            row::add(&mut call, write)?;
        }
        let answers = self
            .connection
            .run(&self.swap, call, self.waiting())
            .await?;
        self.check_replicas(answers.get(1))?;
        let answer = array_elements(answers.first())?;
        let stamp = row::stamp(&answer[0], &answer[1])?;
        let written = |write: &Write| Swapped::Written {
            tag: write.put.as_ref().and_then(|(_, record)| row::tag(record)),
        };
        let mut value: Vec<_> = writes.iter().map(written).collect();
        for conflict in answer[2..].chunks_exact(2) {
            let number = usize::from_redis_value(conflict[0].clone()).unwrap_or_default();
            let Some(index) = number.checked_sub(1).filter(|index| *index < writes.len()) else {
                return Err(Error::Corrupt("Redis returned an unexpected answer".into()));
            };
            value[index] = match row::stored(&writes[index].name, conflict[1].clone()) {
                Ok(current) => Swapped::Conflict(current),
                Err(corrupt) => Swapped::Failed(corrupt),
            };
        }
        Ok(Answer { value, stamp })
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        let search = Search::new(query)?;
        let (kind, prefix) = (query.kind.as_str(), &self.options.prefix);
        let (index, order) = match &query.state {
            Some(state) => (format!("{prefix}:state:{kind}:{state}"), "state"),
            None => (format!("{prefix}:names:{kind}"), "name"),
        };
        let since = query
            .cursor
            .as_ref()
            .map(|_| search.since.to_string())
            .filter(|_| query.state.is_some());
        let mut call = self.find.call(1);
        call.arg(index)
            .arg(prefix)
            .arg(kind)
            .arg(&query.prefix)
            .arg(order);
        call.arg(since.unwrap_or_default())
            .arg(search.after)
            .arg(query.limit);
        call.arg(search.held.0.max(0)).arg(search.held.1);
        call.arg(self.wait_argument());
        let found = self.connection.run(&self.find, call, self.waiting()).await;
        let answers = found.map_err(connection::unambiguous)?;
        self.check_replicas_for_read(answers.get(1))?;
        let answer = array_elements(answers.first())?;
        let stamp = row::stamp(&answer[0], &answer[1])?;
        let mut page = Page::default();
        let (since, after) = (row::text(&answer[2]), row::text(&answer[3]));
        for record in answer[4..].chunks_exact(2) {
            let name = Name::new(query.kind, row::text(&record[0]))?;
            if let Some(stored) = row::stored(&name, record[1].clone())? {
                page.records.push((name, stored));
            }
        }
        page.cursor = (!after.is_empty()).then(|| match &query.state {
            Some(_) => format!("{since}:{after}"),
            None => after.to_string(),
        });
        Ok(Answer { value: page, stamp })
    }

    fn changes(&self) -> Option<Changes> {
        let server = self.connection.server().clone();
        let follow = || changes::follow(server, &self.options.prefix, self.publisher.clone());
        self.options.changes.then(follow)
    }

    async fn check(&self) -> Result<Vec<Check>> {
        let info = self.info().await?;
        let mut commands = Pipeline::new();
        commands.cmd("CONFIG").arg("GET").arg("appendfsync");
        // Without the right to read the configuration, the checks use INFO only.
        let config = self
            .connection
            .read(commands)
            .await
            .ok()
            .and_then(|answers| answers.into_iter().next());
        let config = config
            .and_then(|config| BTreeMap::from_redis_value(config).ok())
            .unwrap_or_default();
        Ok(check::checks(&info, &config, self.options.wait.is_some()))
    }
}
