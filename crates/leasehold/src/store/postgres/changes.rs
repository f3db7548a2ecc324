//! Change notifications by `NOTIFY` and `LISTEN`.
//!
//! `NOTIFY` inside a writing transaction would serialize all such commits of a server, each with its own wait for the
//! disk. So notifications are sent by a separate statement afterwards, batched, and without that wait.
//!
//! They are still not cheap, and usually there is no listener. So each listener keeps a row among the records, under
//! a kind of its own, and every write reads those rows in its own statement: its answer contains the [`Audience`]. A
//! process therefore notifies from its first write on, and only while another process listens.

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::{Kind, Mode, Name, Record};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::Ambiguity;
use super::listeners::{Audience, Listeners};
use super::pool::{Pool, Value};
use super::schema::{TableLocation, quoted};
use crate::store::Changes;
use crate::store::notification_request::NotificationRequest;

/// The maximum number of queued notifications. More are dropped, because waiters poll as well.
const QUEUE: usize = 4_096;
/// How long notifications are collected between two batches.
const PAUSE: Duration = Duration::from_millis(3);
/// How long a process listens before it registers, so that a command that ends at once writes no row.
const REGISTRATION_DELAY: Duration = Duration::from_millis(100);
/// How often a listener renews its row: twice before it expires.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(25);
/// The pause before reconnecting to a server, and the timeout of a notification.
const RETRY: Duration = Duration::from_millis(500);
/// The message by which a process learns whether it receives its own messages.
const PROBE: &str = "probe";

const NOTIFY: &str = "select pg_notify($1, message), set_config('synchronous_commit', 'off', true) \
    from unnest($2::text[]) message";

/// Notifies other processes of changes, in the background. Ends with the store.
#[derive(Clone)]
pub(super) struct Notifier {
    queue: mpsc::Sender<Task>,
    /// The prefix of this process's messages, by which it ignores its own.
    mark: Arc<str>,
    channel: Arc<str>,
    /// Whether this process watches all names.
    watches_all: NotificationRequest,
    /// Whether this process receives messages. Behind a pooler it does not, and does not register.
    receives: Arc<AtomicBool>,
}

/// What the background task does.
enum Task {
    Notify(Name),
    Probe,
    Register,
    /// Withdraws the registration and reports that all earlier tasks are done.
    Close(oneshot::Sender<()>),
}

impl Notifier {
    pub(super) fn start(pool: Arc<Pool>, location: &TableLocation, mark: &str) -> Self {
        let (queue, tasks) = mpsc::channel(QUEUE);
        let notifier = Self {
            queue,
            mark: mark.into(),
            channel: location.channel().into(),
            watches_all: NotificationRequest::default(),
            receives: Arc::default(),
        };
        let sender = Sender {
            pool,
            listeners: Listeners::new(location, mark),
            mark: notifier.mark.clone(),
            channel: notifier.channel.clone(),
            watches_all: notifier.watches_all.clone(),
            is_registered: false,
        };
        tokio::spawn(sender.run(tasks));
        notifier
    }

    pub(super) fn notify(&self, name: &Name) {
        self.enqueue(Task::Notify(name.clone()));
    }

    /// Requests notifications of every write from other processes for a while.
    pub(super) fn watch(&self) {
        let is_known = self.watches_all.is_active();
        self.watches_all.renew();
        if !is_known && self.receives.load(Ordering::Relaxed) {
            self.enqueue(Task::Register);
        }
    }

    /// Returns once all queued hints have been sent, or could not be.
    pub(super) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.queue.send(Task::Close(done)).await.is_ok() {
            let _ = closed.await;
        }
    }

    fn enqueue(&self, task: Task) {
        let _ = self.queue.try_send(task);
    }

    /// Listens for other processes' notifications on a connection of its own, which is replaced when it is lost.
    pub(super) fn listen(&self, server: Config, tls: MakeRustlsConnect) -> Changes {
        let (sender, changes) = mpsc::channel(QUEUE);
        let notifier = self.clone();
        tokio::spawn(async move {
            loop {
                let received = notifier.receive(&server, &tls, &sender);
                tokio::select! {
                    () = sender.closed() => {}
                    Err(error) = received => tracing::debug!(%error, "cannot listen for changes in PostgreSQL"),
                }
                notifier.receives.store(false, Ordering::Relaxed);
                tokio::select! {
                    () = sender.closed() => return,
                    () = tokio::time::sleep(RETRY) => {}
                }
            }
        });
        changes
    }

    /// Forwards notifications until the connection ends.
    async fn receive(
        &self,
        server: &Config,
        tls: &MakeRustlsConnect,
        sender: &mpsc::Sender<Name>,
    ) -> Result<(), tokio_postgres::Error> {
        let (client, mut connection) = server.connect(tls.clone()).await?;
        let listen = format!("listen {}", quoted(&self.channel));
        let mut listening = Box::pin(client.batch_execute(&listen));
        let mut answered = false;
        let mut repeat = tokio::time::interval(RENEWAL_INTERVAL);
        repeat.reset();
        loop {
            let message = tokio::select! {
                message = poll_fn(|context| connection.poll_message(context)) => message,
                answer = &mut listening, if !answered => {
                    answer?;
                    answered = true;
                    self.enqueue(Task::Probe);
                    continue;
                }
                _ = repeat.tick() => {
                    let receives = self.receives.load(Ordering::Relaxed);
                    self.enqueue(if receives { Task::Register } else { Task::Probe });
                    continue;
                }
            };
            match message.transpose()? {
                None => return Ok(()),
                Some(AsyncMessage::Notification(notification)) => {
                    let message = notification.payload();
                    if !self.is_own(message) {
                        if let Some(name) = parse_change(message) {
                            let _ = sender.try_send(name);
                        }
                    } else if !self.receives.swap(true, Ordering::Relaxed) {
                        let watches_all = self.watches_all.is_active();
                        repeat.reset_after(if watches_all {
                            Duration::ZERO
                        } else {
                            REGISTRATION_DELAY
                        });
                    }
                }
                Some(_) => {}
            }
        }
    }

    fn is_own(&self, message: &str) -> bool {
        let mark = message.split_once(' ').map(|(mark, _)| mark);
        mark == Some(&*self.mark)
    }
}

/// Returns whether to notify the audience of this write. A write that leaves an exclusive holder frees nothing, so it
/// does not concern waiters.
pub(super) fn is_relevant(audience: Audience, put: Option<&Record>) -> bool {
    let frees = || {
        put.is_none_or(|record| {
            let mut holders = record.holders.iter();
            holders.all(|holder| holder.mode != Mode::Exclusive)
        })
    };
    match audience {
        Audience::None => false,
        Audience::Waiters => frees(),
        Audience::Watchers => true,
    }
}

/// Parses the name in another process's message: mark, kind and name, separated by spaces.
fn parse_change(message: &str) -> Option<Name> {
    let (_, changed) = message.split_once(' ')?;
    let (kind, name) = changed.split_once(' ')?;
    Name::new(Kind::parse(kind)?, name).ok()
}

/// The background task.
struct Sender {
    pool: Arc<Pool>,
    listeners: Listeners,
    mark: Arc<str>,
    channel: Arc<str>,
    watches_all: NotificationRequest,
    is_registered: bool,
}

impl Sender {
    async fn run(mut self, mut queue: mpsc::Receiver<Task>) {
        let mut tasks = Vec::new();
        while queue.recv_many(&mut tasks, QUEUE).await > 0 {
            let (mut messages, mut registers, mut closing) = (HashSet::new(), false, Vec::new());
            let mark = &self.mark;
            for task in tasks.drain(..) {
                match task {
                    Task::Notify(name) => {
                        messages.insert(format!("{mark} {} {name}", name.kind().as_str()));
                    }
                    Task::Probe => {
                        messages.insert(format!("{mark} {PROBE}"));
                    }
                    Task::Register => registers = true,
                    Task::Close(done) => closing.push(done),
                }
            }
            if registers {
                self.is_registered = true;
                let watches_all = self.watches_all.is_active();
                self.listeners
                    .register(&self.pool, Instant::now() + RETRY, watches_all)
                    .await;
            }
            if !messages.is_empty() {
                self.notify(messages.into_iter().collect()).await;
            }
            if !closing.is_empty() && std::mem::take(&mut self.is_registered) {
                self.listeners
                    .unregister(&self.pool, Instant::now() + RETRY)
                    .await;
            }
            for done in closing {
                let _ = done.send(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn notify(&self, messages: Vec<String>) {
        let values: [Value<'_>; 2] = [(&&*self.channel, Type::TEXT), (&messages, Type::TEXT_ARRAY)];
        let deadline = Instant::now() + RETRY;
        let sent = self.pool.query(deadline, Ambiguity::None, NOTIFY, &values);
        if let Err(error) = sent.await {
            tracing::debug!(%error, "cannot send a change notification");
        }
    }
}
