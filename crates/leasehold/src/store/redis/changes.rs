//! Follows what other clients publish.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use leasehold_core::{Kind, Name};
use tokio::sync::mpsc;

use super::server::Server;
use crate::store::Changes;

/// Names that wait to be looked at; more are dropped, since the engine polls anyway.
const BACKLOG: usize = 1_024;
/// How long to leave a server alone that does not let us subscribe.
const PAUSE: Duration = Duration::from_secs(1);

/// Who tells of changes here. Nothing is told where nobody else listens.
#[derive(Clone)]
pub(super) struct Teller {
    /// Marks what this store has told, which it need not hear.
    pub(super) mark: Arc<str>,
    /// Subscriptions of its own that stand.
    listening: Arc<AtomicUsize>,
}

impl Teller {
    pub(super) fn new(mark: &str) -> Self {
        Self {
            mark: mark.into(),
            listening: Arc::default(),
        }
    }

    /// How many of those who listen are of this store.
    pub(super) fn listening(&self) -> usize {
        self.listening.load(Ordering::Relaxed)
    }
}

/// A subscription that stands.
struct Listening<'t>(&'t AtomicUsize);

impl<'t> Listening<'t> {
    fn of(teller: &'t Teller) -> Self {
        teller.listening.fetch_add(1, Ordering::Relaxed);
        Self(&teller.listening)
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Subscribes on a connection of its own, for as long as somebody listens.
pub(super) fn follow(server: Server, prefix: &str, teller: Teller) -> Changes {
    let (told, changes) = mpsc::channel(BACKLOG);
    let channel = format!("{prefix}:changes");
    tokio::spawn(async move {
        while !told.is_closed() {
            tokio::select! {
                () = told.closed() => return,
                () = subscribe(&server, &channel, &teller, &told) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    });
    changes
}

/// Passes on what others publish, until the connection breaks.
async fn subscribe(server: &Server, channel: &str, teller: &Teller, told: &mpsc::Sender<Name>) {
    let Ok(mut connection) = server.subscriber().await else {
        return;
    };
    if connection.subscribe(channel).await.is_err() {
        return;
    }
    let _listening = Listening::of(teller);
    let mut messages = connection.on_message();
    while let Some(message) = messages.next().await {
        let Ok(payload) = message.get_payload::<String>() else {
            continue;
        };
        let mut lines = payload.lines();
        if lines.next() == Some(&*teller.mark) {
            continue;
        }
        for name in lines.filter_map(read) {
            let _ = told.try_send(name);
        }
    }
}

/// A name as `swap.lua` tells it: its kind, a colon, and the name.
fn read(told: &str) -> Option<Name> {
    let (kind, name) = told.split_once(':')?;
    Name::new(Kind::parse(kind)?, name).ok()
}
