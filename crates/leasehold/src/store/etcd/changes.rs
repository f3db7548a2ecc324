//! Follows other processes' writes with a watch.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use leasehold_core::{Mode, Name};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::gateway::Gateway;
use super::keys::Keys;
use crate::store::Changes;
use crate::store::notification_request::NotificationRequest;

/// The maximum number of queued names. More are dropped, because the engine polls as well.
const BACKLOG: usize = 1_024;
/// The pause before watching again after a failure.
const PAUSE: Duration = Duration::from_millis(500);

/// Watches the records until the receiver is dropped.
pub(super) fn follow(
    gateway: Arc<Gateway>,
    keys: Keys,
    watches_all: NotificationRequest,
) -> Changes {
    let (sender, changes) = mpsc::channel(BACKLOG);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = sender.closed() => return,
                () = watch(&gateway, &keys, &watches_all, &sender) => {}
            }
            tokio::select! {
                () = sender.closed() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    });
    changes
}

/// Forwards changes until the watch breaks.
async fn watch(
    gateway: &Gateway,
    keys: &Keys,
    watches_all: &NotificationRequest,
    sender: &mpsc::Sender<Name>,
) {
    // The keys of gates and locks are adjacent, with no other keys in between.
    let create = json!({ "create_request": {
        "key": keys.encoded("gate/"),
        "range_end": keys.encoded_end("lock/"),
    } });
    let mut stream = match gateway.stream("/v3/watch", &create).await {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%error, "cannot watch for changes in etcd"),
    };
    let mut unread = Vec::new();
    while let Some(Ok(frame)) = stream.frame().await {
        let Ok(bytes) = frame.into_data() else {
            continue;
        };
        unread.extend_from_slice(&bytes);
        while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = unread.drain(..=end).collect();
            let answer: Value = serde_json::from_slice(&line).unwrap_or_default();
            let events = answer["result"]["events"].as_array();
            for name in events
                .into_iter()
                .flatten()
                .filter_map(|event| changed(keys, event, watches_all.is_active()))
            {
                let _ = sender.try_send(name);
            }
        }
    }
}

/// Returns the name that a waiter or watcher is interested in. A write that leaves an exclusive holder frees nothing.
fn changed(keys: &Keys, event: &Value, watches_all: bool) -> Option<Name> {
    let pair = &event["kv"];
    if event["type"] == "DELETE" {
        return keys.name(pair);
    }
    let (name, stored) = keys.stored(pair).ok()?;
    let mut holders = stored.record.holders.iter();
    (watches_all || holders.all(|holder| holder.mode != Mode::Exclusive)).then_some(name)
}
