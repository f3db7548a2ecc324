//! Hints that a name may have changed, by `NOTIFY` and `LISTEN`.
//!
//! `NOTIFY` in the transaction that writes would make all such transactions of a database commit one after the other,
//! each with its own wait for the disk. So hints are sent on their own just after, many at once, without such a wait.
//!
//! They are not cheap even so, and mostly there is nobody to hear them. So those who listen say so: when they begin, again
//! every half minute, and to whoever begins. A process that can hear that tells nothing while nobody else has said so.

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::{Kind, Mode, Name, Record};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::Doubt;
use super::pool::{Pool, Value};
use super::schema::quoted;
use crate::host::{Host, Machine};
use crate::store::Changes;
use crate::store::watched::Watched;

/// Hints that may wait to be sent or taken. More are dropped: those who wait look by themselves, too.
const QUEUE: usize = 4_096;
/// How long hints are collected after some were sent.
const PAUSE: Duration = Duration::from_millis(3);
/// What a process tells the others that begins to listen, …
const BEGINS: &str = "begins";
/// … that listens, …
const LISTENS: &str = "listens";
/// … and that watches all names.
const WATCHING: &str = "watching";
/// How often it tells that it listens: twice before it is taken to have gone.
const REPEAT: Duration = Duration::from_secs(25);
/// How long to leave a server alone that gives no connection.
const RETRY: Duration = Duration::from_millis(500);

const TELL: &str = "select pg_notify($1, told), set_config('synchronous_commit', 'off', true) \
    from unnest($2::text[]) told";

/// Tells other processes of changes, in the background. Ends with the store.
#[derive(Clone)]
pub(super) struct Herald {
    told: mpsc::Sender<Told>,
    /// Marks what this process has told, which it need not hear.
    mark: Arc<str>,
    channel: Arc<str>,
    /// Whether another process listens, and whether it watches.
    heard: Watched,
    watched: Watched,
    /// Whether this process hears what is told: it has heard itself.
    hears: Arc<AtomicBool>,
}

/// What is told.
#[derive(PartialEq, Eq, Hash)]
enum Told {
    Changed(Name),
    Begins,
    Listens,
    Watching,
}

impl Herald {
    pub(super) fn start(pool: Arc<Pool>, channel: String) -> Self {
        let (told, queue) = mpsc::channel(QUEUE);
        let herald = Self {
            told,
            mark: format!("{:016x}", Machine.random() as u64).into(),
            channel: channel.into(),
            heard: Watched::default(),
            watched: Watched::default(),
            hears: Arc::default(),
        };
        let (mark, channel) = (herald.mark.clone(), herald.channel.clone());
        tokio::spawn(tell(pool, queue, mark, channel));
        herald
    }

    pub(super) fn changed(&self, name: &Name) {
        self.say(Told::Changed(name.clone()));
    }

    /// Asks the others to tell everything for a while.
    pub(super) fn watching(&self) {
        self.say(Told::Watching);
    }

    fn say(&self, told: Told) {
        let _ = self.told.try_send(told);
    }

    /// Whether there may be others who listen. Behind a pooler nobody hears, and so nobody knows.
    pub(super) fn has_listeners(&self) -> bool {
        self.heard.is_true() || !self.hears.load(Ordering::Relaxed)
    }

    /// Whether somebody may wait for what this write did, or watches. One that leaves an exclusive holder frees nothing.
    pub(super) fn is_worth_telling(&self, put: Option<&Record>) -> bool {
        let frees = put.is_none_or(|record| {
            let mut holders = record.holders.iter();
            holders.all(|holder| holder.mode != Mode::Exclusive)
        });
        frees || self.watched.is_true()
    }

    /// What others tell, on a connection of its own, which is made again whenever it is lost.
    pub(super) fn listen(&self, server: Config, tls: MakeRustlsConnect) -> Changes {
        let (sender, changes) = mpsc::channel(QUEUE);
        let herald = self.clone();
        tokio::spawn(async move {
            loop {
                let heard = herald.hear(&server, &tls, &sender);
                tokio::select! {
                    () = sender.closed() => {}
                    Err(error) = heard => tracing::debug!(%error, "changes in PostgreSQL are not heard of"),
                }
                herald.hears.store(false, Ordering::Relaxed);
                tokio::select! {
                    () = sender.closed() => return,
                    () = tokio::time::sleep(RETRY) => {}
                }
            }
        });
        changes
    }

    /// Hands on what is told until the connection ends.
    async fn hear(
        &self,
        server: &Config,
        tls: &MakeRustlsConnect,
        sender: &mpsc::Sender<Name>,
    ) -> Result<(), tokio_postgres::Error> {
        let (client, mut connection) = server.connect(tls.clone()).await?;
        let listening = format!("listen {}", quoted(&self.channel));
        let mut asked = Box::pin(client.batch_execute(&listening));
        let mut answered = false;
        let mut repeat = tokio::time::interval(REPEAT);
        repeat.reset();
        loop {
            let message = tokio::select! {
                message = poll_fn(|context| connection.poll_message(context)) => message,
                listening = &mut asked, if !answered => {
                    listening?;
                    answered = true;
                    self.say(Told::Begins);
                    continue;
                }
                _ = repeat.tick() => {
                    self.say(Told::Listens);
                    continue;
                }
            };
            match message.transpose()? {
                None => return Ok(()),
                Some(AsyncMessage::Notification(told)) => {
                    if let Some(name) = self.read(told.payload()) {
                        let _ = sender.try_send(name);
                    }
                }
                Some(_) => {}
            }
        }
    }

    fn read(&self, payload: &str) -> Option<Name> {
        let (mark, told) = payload.split_once(' ')?;
        if *mark == *self.mark {
            self.hears.store(true, Ordering::Relaxed);
            return None;
        }
        if matches!(told, BEGINS | LISTENS | WATCHING) {
            self.heard.note();
            match told {
                BEGINS => self.say(Told::Listens),
                WATCHING => self.watched.note(),
                _ => {}
            }
            return None;
        }
        let (kind, name) = told.split_once(' ')?;
        Name::new(Kind::parse(kind)?, name).ok()
    }
}

async fn tell(pool: Arc<Pool>, mut queue: mpsc::Receiver<Told>, mark: Arc<str>, channel: Arc<str>) {
    let mut waiting = Vec::new();
    while queue.recv_many(&mut waiting, QUEUE).await > 0 {
        let told: HashSet<_> = waiting.drain(..).collect();
        let told = told.into_iter().map(|told| match told {
            Told::Changed(name) => format!("{mark} {} {name}", name.kind().as_str()),
            Told::Begins => format!("{mark} {BEGINS}"),
            Told::Listens => format!("{mark} {LISTENS}"),
            Told::Watching => format!("{mark} {WATCHING}"),
        });
        let told: Vec<_> = told.collect();
        let values: [Value<'_>; 2] = [(&&*channel, Type::TEXT), (&told, Type::TEXT_ARRAY)];
        let deadline = Instant::now() + RETRY;
        if let Err(error) = pool.ask(deadline, Doubt::None, TELL, &values).await {
            tracing::debug!(%error, "a change was not told");
        }
        tokio::time::sleep(PAUSE).await;
    }
}
