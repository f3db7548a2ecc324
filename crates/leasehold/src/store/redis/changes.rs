//! Follows what other clients publish.

use std::time::Duration;

use futures_util::StreamExt as _;
use leasehold_core::{Kind, Name};
use redis::Client;
use tokio::sync::mpsc;

use crate::store::Changes;

/// Names that wait to be looked at; more are dropped, since the engine polls anyway.
const BACKLOG: usize = 1_024;
/// How long to leave a server alone that does not let us subscribe.
const PAUSE: Duration = Duration::from_secs(1);

/// Subscribes on a connection of its own, for as long as somebody listens.
pub(super) fn follow(client: Client, prefix: &str, own: String) -> Changes {
    let (told, changes) = mpsc::channel(BACKLOG);
    let channel = format!("{prefix}:changes");
    tokio::spawn(async move {
        while !told.is_closed() {
            tokio::select! {
                () = told.closed() => return,
                () = subscribe(&client, &channel, &own, &told) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    });
    changes
}

/// Passes on what others publish, until the connection breaks.
async fn subscribe(client: &Client, channel: &str, own: &str, told: &mpsc::Sender<Name>) {
    let Ok(mut connection) = client.get_async_pubsub().await else {
        return;
    };
    if connection.subscribe(channel).await.is_err() {
        return;
    }
    let mut messages = connection.on_message();
    while let Some(message) = messages.next().await {
        let name = message.get_payload::<String>().ok().and_then(|payload| {
            let (writer, name) = payload.split_once(':')?;
            let (kind, name) = name.split_once(':').filter(|_| writer != own)?;
            Name::new(Kind::parse(kind)?, name).ok()
        });
        if let Some(name) = name {
            let _ = told.try_send(name);
        }
    }
}
