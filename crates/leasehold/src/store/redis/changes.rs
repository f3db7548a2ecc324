//! Subscribes to changes that other clients publish.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use leasehold_core::{Kind, Name};
use tokio::sync::mpsc;

use super::server::Server;
use crate::store::Changes;

/// The maximum number of queued names. More are dropped, because the engine polls as well.
const BACKLOG: usize = 1_024;
/// The pause before subscribing again after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// The publisher of changes. Nothing is published without other subscribers.
#[derive(Clone)]
pub(super) struct Publisher {
    /// Marks this process's messages, which it ignores.
    pub(super) mark: Arc<str>,
    /// The number of this process's own subscriptions.
    own_subscribers: Arc<AtomicUsize>,
}

impl Publisher {
    pub(super) fn new(mark: &str) -> Self {
        Self {
            mark: mark.into(),
            own_subscribers: Arc::default(),
        }
    }

    /// Returns the number of subscribers that belong to this process.
    pub(super) fn own_subscribers(&self) -> usize {
        self.own_subscribers.load(Ordering::Relaxed)
    }
}

/// Counts a subscription while it exists.
struct OwnSubscription<'t>(&'t AtomicUsize);

impl<'t> OwnSubscription<'t> {
    fn of(publisher: &'t Publisher) -> Self {
        publisher.own_subscribers.fetch_add(1, Ordering::Relaxed);
        Self(&publisher.own_subscribers)
    }
}

impl Drop for OwnSubscription<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Subscribes on a separate connection until the receiver is dropped.
pub(super) fn follow(server: Server, prefix: &str, publisher: Publisher) -> Changes {
    let (sender, changes) = mpsc::channel(BACKLOG);
    let channel = format!("{prefix}:changes");
    tokio::spawn(async move {
        while !sender.is_closed() {
            tokio::select! {
                () = sender.closed() => return,
                () = subscribe(&server, &channel, &publisher, &sender) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    });
    changes
}

/// Forwards published changes until the connection breaks.
async fn subscribe(
    server: &Server,
    channel: &str,
    publisher: &Publisher,
    sender: &mpsc::Sender<Name>,
) {
    let Ok(mut connection) = server.subscriber().await else {
        return;
    };
    if connection.subscribe(channel).await.is_err() {
        return;
    }
    let _subscription = OwnSubscription::of(publisher);
    let mut messages = connection.on_message();
    while let Some(message) = messages.next().await {
        let Ok(payload) = message.get_payload::<String>() else {
            continue;
        };
        let mut lines = payload.lines();
        if lines.next() == Some(&*publisher.mark) {
            continue;
        }
        for name in lines.filter_map(parse_name) {
            let _ = sender.try_send(name);
        }
    }
}

/// Parses a name as `swap.lua` publishes it: kind, colon, name.
fn parse_name(message: &str) -> Option<Name> {
    let (kind, name) = message.split_once(':')?;
    Name::new(Kind::parse(kind)?, name).ok()
}
